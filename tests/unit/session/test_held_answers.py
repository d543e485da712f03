"""Answers that take more than a step: what stands behind them is held, in order, until others have had their turn."""

import pytest
from kio.schema.errors import ErrorCode

from kvota.model.decision_sink import NO_ANSWER
from kvota.model.errors import ProtocolError
from kvota.session.commands import Do
from kvota.testing.frames import (
    API_VERSIONS,
    FIND_COORDINATOR,
    HEARTBEAT,
    answer,
    decoded,
    fetch,
    fetch_answer,
    parts,
    produce,
    produce_answer,
    request,
    split,
    with_correlation,
)
from kvota.testing.stage import BROKER, GATEWAY, Cluster, Stage, quotas

GROUPS = 2_000
HEARTBEAT_ANSWER = answer(HEARTBEAT, 4, correlation=2)


class ByHand(Stage):
    """Others have their turn only when the test says so."""

    def __init__(self, cluster: Cluster | None = None) -> None:
        self.held = 0
        super().__init__(cluster)

    def _perform(self) -> None:
        commands = self.machine.commands
        self.held += commands.count((Do.BREATHE, None))
        commands[:] = [one for one in commands if one[0] != Do.BREATHE]
        super()._perform()

    def read_on(self) -> bytes:
        """Their turn is over."""
        before = len(self.to_client)
        self.to_client += self.machine.read_on(self._now_us) or b""
        self._perform()
        return self.to_client[before:]

    def read_all(self) -> None:
        while self.machine.leaves_upstream_unread:
            self.read_on()


def coordinators(count: int = GROUPS, *, host: str = BROKER[0], correlation: int = 1) -> bytes:
    one = {
        "node_id": 1,
        "host": host,
        "port": 9092,
        "error_code": ErrorCode(0),
        "error_message": None,
    }
    rows = ({**one, "key": f"group-{number}"} for number in range(count))
    named = parts(FIND_COORDINATOR, 4, "response", "Coordinator", *rows)
    return answer(FIND_COORDINATOR, 4, correlation=correlation, coordinators=named)


def hosts(frame: bytes) -> set[str]:
    return {one.host for one in decoded(frame, FIND_COORDINATOR, 4).coordinators}


def asked() -> ByHand:
    """A connection that has asked for coordinators, and then for a heartbeat."""
    stage = ByHand()
    stage.client(request(FIND_COORDINATOR, 4) + request(HEARTBEAT, 4, correlation=2))
    return stage


def test_what_stands_behind_a_large_answer_follows_it() -> None:
    stage = asked()

    assert stage.broker(coordinators() + HEARTBEAT_ANSWER) == b""
    assert stage.machine.leaves_upstream_unread
    steps = 1
    while not stage.read_on():
        steps += 1

    first, second = split(stage.to_client)
    assert steps >= GROUPS // 256
    assert hosts(first) == {GATEWAY}
    assert second == HEARTBEAT_ANSWER
    assert not stage.machine.leaves_upstream_unread
    assert stage.machine.idle


def test_what_stands_before_it_goes_on_at_once() -> None:
    stage = ByHand()
    stage.client(request(HEARTBEAT, 4, correlation=2) + request(FIND_COORDINATOR, 4))

    assert stage.broker(HEARTBEAT_ANSWER + coordinators()) == HEARTBEAT_ANSWER
    stage.read_all()

    assert len(split(stage.to_client)) == 2


def test_what_is_read_all_the_same_comes_behind_it() -> None:
    stage = asked()
    both = coordinators() + HEARTBEAT_ANSWER

    stage.broker(both[:-5])
    assert stage.broker(both[-5:]) == b""
    stage.read_all()

    assert split(stage.to_client)[1] == HEARTBEAT_ANSWER


def test_an_answer_of_the_gateways_own_waits_for_it() -> None:
    stage = ByHand()
    newer = request(API_VERSIONS, 0, correlation=3)
    newer = newer[:6] + (9).to_bytes(2, "big") + newer[8:]
    stage.client(request(FIND_COORDINATOR, 4))

    stage.broker(coordinators())
    stage.client(newer)
    assert stage.to_client == b""
    stage.read_all()

    first, own = split(stage.to_client)
    assert hosts(first) == {GATEWAY}
    assert own[4:8] == (3).to_bytes(4, "big")


def test_a_node_that_nobody_may_be_told_of_ends_the_connection_in_a_later_step() -> None:
    stage = asked()
    good = coordinators()
    at = good.rindex(BROKER[0].encode()) - 5
    bad = good[:at] + (77).to_bytes(4, "big") + good[at + 4 :]

    assert stage.broker(bad) == b""
    with pytest.raises(ProtocolError, match="node 77"):
        stage.read_all()

    assert stage.to_client == b""
    stage.end()


def test_a_connection_that_ends_in_between_leaves_nothing() -> None:
    stage = asked()
    stage.broker(coordinators() + HEARTBEAT_ANSWER)

    stage.end()

    assert stage.read_on() == b""
    assert stage.cluster.shared.whole_answers.used_bytes == 0


def test_hundreds_of_small_answers_in_one_chunk_are_taken_in_turns() -> None:
    stage = ByHand()
    count = 1_000
    one = request(FIND_COORDINATOR, 4)
    stage.client(b"".join(one[:8] + n.to_bytes(4, "big") + one[12:] for n in range(count)))
    all_of_them = b"".join(coordinators(1, correlation=n) for n in range(count))

    stage.broker(all_of_them)
    stage.read_all()

    told = split(stage.to_client)
    assert [frame[4:8] for frame in told] == [n.to_bytes(4, "big") for n in range(count)]
    assert hosts(told[-1]) == {GATEWAY}
    assert stage.held > 5


def test_a_dense_fetch_answer_goes_on_in_turns_byte_for_byte() -> None:
    stage = ByHand()
    stage.client(fetch(16) + request(HEARTBEAT, 4, correlation=2))
    frame = fetch_answer(16, partitions=1)
    # Empty topics, as many as a chunk takes, in place of the one.
    topics = bytes(16 + 2).replace(b"\0" * 18, bytes(16) + b"\1\0") * 20_000
    body = frame[8:19] + bytes((0xA1, 0x9C, 1)) + topics + b"\0"
    whole = (4 + len(body)).to_bytes(4, "big") + frame[4:8] + body + HEARTBEAT_ANSWER

    for at in range(0, len(whole), 200_000):
        stage.broker(whole[at : at + 200_000])
        stage.read_all()

    assert stage.to_client == whole
    assert stage.held > 10


@pytest.mark.parametrize("ends", [False, True], ids=["answered", "ended before"])
def test_a_produce_answer_in_steps_is_recorded_once(ends: bool) -> None:
    stage = ByHand(Cluster(quotas(PRODUCE=1_000_000)))
    stage.client(produce(9) + produce(9, correlation=2))
    topic = b"\2t" + b"\2" + bytes(30) + b"\1\0\0" + b"\0"
    body = b"\0" + bytes((0xD1, 0x0F)) + topic * 2_000 + (3).to_bytes(4, "big") + b"\0"
    frame = (4 + len(body)).to_bytes(4, "big") + (1).to_bytes(4, "big") + body

    stage.broker(frame + produce_answer(9, correlation=2))
    assert stage.cluster.rows == []
    if ends:
        stage.end()
        assert [row.upstream_ms for row in stage.cluster.rows] == [NO_ANSWER] * 2
        return
    stage.read_all()

    assert [(row.seq, row.upstream_ms) for row in stage.cluster.rows] == [(0, 3), (1, 0)]
    assert stage.to_client == frame + with_correlation(produce_answer(9), 2)
