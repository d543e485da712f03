"""Answers that are kept until they are whole share a budget; without room the broker is not read on."""

import pytest
from kio.schema.errors import ErrorCode

from kvota.model.errors import ProtocolError
from kvota.testing.frames import (
    FIND_COORDINATOR,
    HEARTBEAT,
    METADATA,
    answer,
    decoded,
    metadata_answer,
    parts,
    request,
    resized,
)
from kvota.testing.stage import BROKER, Cluster, Stage


def coordinators(count: int) -> bytes:
    host, port = BROKER
    one = {
        "node_id": 1,
        "host": host,
        "port": port,
        "error_code": ErrorCode(0),
        "error_message": None,
    }
    rows = ({**one, "key": f"{number:05}{'g' * 240}"} for number in range(count))
    named = parts(FIND_COORDINATOR, 4, "response", "Coordinator", *rows)
    return answer(FIND_COORDINATOR, 4, coordinators=named)


LARGE = coordinators(1_600)  # 440 KB
HEAD_BYTES = 20_000


def stages(number: int) -> tuple[Cluster, list[Stage]]:
    """Connections that have asked for coordinators; there is room for one large answer."""
    world = Cluster()
    world.shared.whole_answers.limit_bytes = 500_000
    made = [Stage(world, number=number) for number in range(number)]
    for stage in made:
        stage.client(request(FIND_COORDINATOR, 4))
    return world, made


def test_while_one_large_answer_arrives_another_ones_broker_is_not_read_on() -> None:
    world, (first, second) = stages(2)

    first.broker(LARGE[:HEAD_BYTES])
    second.broker(LARGE[:HEAD_BYTES])
    assert (first.reads_broker, second.reads_broker) == (True, False)

    assert len(first.broker(LARGE[HEAD_BYTES:])) > HEAD_BYTES
    assert second.wakes == 1
    second.wake_up()
    assert second.reads_broker
    assert second.broker(LARGE[HEAD_BYTES:]) == first.to_client
    assert world.shared.whole_answers.used_bytes == 0


def test_what_had_been_read_all_the_same_is_taken() -> None:
    world, (first, second) = stages(2)
    first.broker(LARGE[:HEAD_BYTES])
    second.broker(LARGE[:HEAD_BYTES])

    assert second.broker(LARGE[HEAD_BYTES:])

    assert second.reads_broker
    first.broker(LARGE[HEAD_BYTES:])
    assert world.shared.whole_answers.used_bytes == 0
    assert not world.shared.whole_answers.is_waited_for


@pytest.mark.parametrize("who", [0, 1], ids=["who has room", "who waits"])
def test_who_ends_in_the_middle_leaves_its_room(who: int) -> None:
    world, (first, second, third) = stages(3)
    for stage in (first, second, third):
        stage.broker(LARGE[:HEAD_BYTES])

    (first, second)[who].end()
    (second, first)[who].wake_up()
    (second, first)[who].broker(LARGE[HEAD_BYTES:])
    third.wake_up()

    assert third.broker(LARGE[HEAD_BYTES:])
    assert world.shared.whole_answers.used_bytes == 0


def test_who_was_woken_and_has_gone_passes_the_room_on() -> None:
    world, (first, second, third) = stages(3)
    for stage in (first, second, third):
        stage.broker(LARGE[:HEAD_BYTES])

    first.broker(LARGE[HEAD_BYTES:])
    second.machine.close()
    second.machine.pass_room_on()

    assert third.wakes == 1
    third.end()
    assert world.shared.whole_answers.used_bytes == 0


def test_an_answer_larger_than_the_budget_passes_alone() -> None:
    world, (first,) = stages(1)
    world.shared.whole_answers.limit_bytes = 1_000

    first.broker(LARGE[:HEAD_BYTES])

    assert first.reads_broker
    assert first.broker(LARGE[HEAD_BYTES:])


def test_a_small_answer_needs_no_room() -> None:
    _world, (first, second) = stages(2)
    small = coordinators(100)

    first.broker(LARGE[:HEAD_BYTES])

    assert second.broker(small[:9_000], small[9_000:])
    assert second.reads_broker


# ------------------------------------------------------------------ Metadata

TOPICS = [(f"{number:05}{'n' * 240}", 0, 1) for number in range(2_000)]


def metadata(version: int, brokers: int) -> bytes:
    """600 KB of topics behind so many brokers with racks of 400 bytes."""
    host, port = BROKER
    one = {"node_id": 1, "host": host, "port": port} | ({"rack": "r" * 400} if version else {})
    named = parts(METADATA, version, "response", "MetadataResponseBroker", *[one] * brokers)
    topics = decoded(
        metadata_answer(version, correlation=1, topics=TOPICS), METADATA, version
    ).topics
    throttle_ms = 0 if version >= 3 else None
    return answer(METADATA, version, throttle_ms=throttle_ms, brokers=named, topics=topics)


@pytest.mark.parametrize("brokers", [1, 900], ids=["few brokers", "360 KB of brokers"])
@pytest.mark.parametrize("version", [0, 1, 4, 9, 12])
def test_a_large_metadata_answer_goes_on_while_it_arrives(version: int, brokers: int) -> None:
    both = metadata(version, brokers) + answer(HEARTBEAT, 4, correlation=2)
    asked = request(METADATA, version) + request(HEARTBEAT, 4, correlation=2)
    whole, cut = Stage(), Stage()
    whole.client(asked)
    cut.client(asked)

    whole.broker(both)
    for begin in range(0, len(both), 100_000):
        cut.broker(both[begin : begin + 100_000])
        if begin > (600_000 if brokers > 1 and version else 300_000):
            assert len(cut.to_client) > begin

    assert cut.to_client == whole.to_client
    assert BROKER[0].encode() not in cut.to_client
    assert cut.machine.idle
    assert cut.cluster.shared.whole_answers.used_bytes == 0


def test_brokers_that_take_more_than_a_megabyte_end_the_connection() -> None:
    stage = Stage()
    stage.client(request(METADATA, 4))
    frame = metadata(4, 1_000)
    frame = frame.replace(b"r" * 400, b"r" * 1_600).replace(b"\x01\x90rrr", b"\x06\x40rrr")
    frame = resized(frame)

    stage.broker(frame[:1_000_000])
    with pytest.raises(ProtocolError, match="Metadata v4 answer, its first"):
        stage.broker(frame[1_000_000:1_100_000])

    assert stage.to_client == b""
