"""Requests that are kept whole: one large one at a time per user, within a budget, and not for ever."""

import tracemalloc

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.session.test_mutations import cluster, create, created, delete, deleted, tell

from kvota.model.errors import ProtocolError
from kvota.session.pausing import Reason
from kvota.session.whole_requests import LARGE_BYTES, LARGE_TOPICS
from kvota.testing.frames import (
    METADATA,
    decoded,
    fetch,
    fetch_answer,
    metadata_answer,
    produce,
    produce_answer,
    split,
)
from kvota.testing.stage import BROKER, Cluster, Stage, quotas

UNKNOWN = 3
LARGE = tuple(f"{number:05}{'n' * 195}" for number in range(400))  # 80 KB
QUESTION_MS, FOREVER_MS = 30_000, 10_000_000


def world() -> Cluster:
    return cluster(rate=1_000_000)


def stages(shared: Cluster, number: int, users: str = "") -> list[Stage]:
    """Connections of one cluster; each letter of ``users`` is one's user, none: all are strangers."""
    made = [Stage(shared, number=number) for number in range(1, number + 1)]
    for stage, user in zip(made, users, strict=False):
        stage.machine.caller.principal.name = user
    return made


def tell_unknown(stage: Stage, question: bytes) -> bytes:
    """The broker knows none of the topics; returns what goes up because of it."""
    asked = decoded(question, METADATA, 4, is_answer=False).topics
    before = len(stage.to_broker)
    stage.broker(
        metadata_answer(
            4,
            correlation=int.from_bytes(question[8:12], "big"),
            brokers=[(1, *BROKER)],
            topics=[(topic.name, UNKNOWN, 0) for topic in asked],
        )
    )
    return stage.to_broker[before:]


def finish(stage: Stage, question: bytes) -> None:
    names = [topic.name for topic in decoded(question, METADATA, 4, is_answer=False).topics]
    tell_unknown(stage, question)
    stage.broker(deleted(*((name, UNKNOWN) for name in names)))


def used_bytes(shared: Cluster) -> int:
    whole = shared.shared.whole_requests
    return whole.small.used_bytes + whole.large.used_bytes


# ------------------------------------------------------------------ whose turn it is


def test_who_waits_for_room_when_a_mute_begins_asks_again_when_it_is_over() -> None:
    shared = Cluster(quotas(FETCH=1_000, CONTROLLER_MUTATION=10**6))
    whole = shared.shared.whole_requests
    whole.small = shared.shared.budgets.another(limit_bytes=1)  # for one at a time
    holds, waits = stages(shared, 2)
    question = holds.client(delete("a"))
    waits.client(fetch(correlation=1))
    waits.client(delete("b"))
    assert waits.pausing.reasons & Reason.ROOM

    waits.broker(fetch_answer(correlation=1, records=b"x" * 50_000))
    assert waits.muted
    finish(holds, question)

    assert waits.advance(100_000)
    assert waits.pausing.reasons == Reason.WAITING


def test_of_large_requests_a_user_has_one_at_a_time_in_the_order_they_came() -> None:
    shared = world()
    first, second, third = stages(shared, 3)

    question = first.client(delete(*LARGE))
    assert question
    assert second.client(delete(*LARGE)) == b""
    assert third.client(delete(*LARGE)) == b""
    finish(first, question)

    assert (second.wakes, third.wakes) == (1, 0)
    question = second.wake_up()
    assert question
    finish(second, question)
    assert third.wakes == 1
    assert third.wake_up()


def test_another_user_has_a_turn_of_its_own() -> None:
    first, second = stages(world(), 2, users="ab")

    assert first.client(delete(*LARGE))

    assert second.client(delete(*LARGE))


def test_a_small_request_waits_for_no_large_one() -> None:
    first, second = stages(world(), 2)

    assert first.client(delete(*LARGE))

    assert second.client(delete("few"))


def test_many_short_names_are_a_large_request() -> None:
    first, second = stages(world(), 2)
    names = [str(number) for number in range(LARGE_TOPICS + 1)]
    frame = delete(*names)
    assert len(frame) < LARGE_BYTES

    assert first.client(frame)

    assert second.client(frame) == b""


def test_who_waits_is_not_read_beyond_its_first_bytes() -> None:
    first, second = stages(world(), 2)
    first.client(delete(*LARGE))

    second.client(delete(*LARGE)[:20_000])

    assert second.machine.pauses_reading
    assert second.pausing.reasons == Reason.ROOM


@pytest.mark.parametrize("sent", [20_000, None], ids=["arriving", "whole"])
def test_whoever_leaves_wakes_the_next(sent: int | None) -> None:
    shared = world()
    first, second, third = stages(shared, 3)
    first.client(delete(*LARGE)[:sent])
    second.client(delete(*LARGE))
    third.client(delete(*LARGE))

    second.end()
    assert third.wakes == 0
    first.end()

    assert third.wakes == 1
    assert third.wake_up()


def test_who_is_woken_and_has_gone_passes_its_turn_on() -> None:
    first, second, third = stages(world(), 3)
    question = first.client(delete(*LARGE))
    second.client(delete(*LARGE))
    third.client(delete(*LARGE))

    finish(first, question)
    assert second.wakes == 1
    second.machine.close()
    second.machine.pass_room_on()

    assert third.wakes == 1


def test_who_is_woken_and_muted_meanwhile_passes_its_turn_on() -> None:
    first, second, third = stages(world(), 3)
    question = first.client(delete(*LARGE))
    second.client(delete(*LARGE))
    third.client(delete(*LARGE))
    second.machine.caller.pausing.mute(5_000)

    finish(first, question)
    assert second.wake_up() == b""
    question = third.wake_up()
    assert question
    finish(third, question)

    assert second.resume(Reason.MUTED)


def test_when_all_have_ended_nothing_is_taken() -> None:
    shared = world()
    one, other = stages(shared, 2)
    finish(one, one.client(delete(*LARGE)))
    finish(one, one.client(delete("few")))
    other.client(delete(*LARGE))
    other.end()

    assert used_bytes(shared) == 0
    assert shared.shared.whole_requests._lines == {}


# ------------------------------------------------------------------ the budget


def test_requests_of_many_users_share_the_memory() -> None:
    shared = world()
    users = [Stage(shared, number=number) for number in range(1, 21)]
    frame = delete(*(f"{number:05}{'n' * 180}" for number in range(5_000)))

    went_up = 0
    for number, stage in enumerate(users):
        stage.machine.caller.principal.name = f"user {number}"
        went_up += bool(stage.client(frame))

    assert 2 <= went_up <= 8
    for stage in users:
        stage.end()
    assert used_bytes(shared) == 0


@pytest.mark.parametrize(("topics", "name_bytes"), [(3_000, 188), (3_000, 5), (300, 249)])
def test_a_request_takes_no_more_memory_than_it_is_weighed(topics: int, name_bytes: int) -> None:
    shared = world()
    stage = Stage(shared)
    names = [f"{number:05}" + "n" * (name_bytes - 5) for number in range(topics)]
    frame = delete(*names)
    known = metadata_answer(
        4, correlation=0x6B766F74, brokers=[(1, *BROKER)], topics=[(name, 0, 1) for name in names]
    )
    done = deleted(*((name, 0) for name in names))
    stage.client(delete("warm", "up"))
    stage = Stage(shared, number=2)

    tracemalloc.start()
    stage.client(*(frame[at : at + 65_536] for at in range(0, len(frame), 65_536)))
    weighed_bytes = used_bytes(shared)
    stage.broker(*(known[at : at + 65_536] for at in range(0, len(known), 65_536)))
    shared.rows.clear()
    stage.broker(*(done[at : at + 65_536] for at in range(0, len(done), 65_536)))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert stage.machine.idle
    # What the stage itself keeps: all that has gone up or down, and the rows.
    kept_bytes = 3 * len(frame) + len(known) + 2 * len(done) + 500 * topics
    assert peak_bytes <= weighed_bytes + kept_bytes + 500_000


# ------------------------------------------------------------------ not for ever


def test_a_question_that_is_not_answered_ends_the_connection() -> None:
    shared = world()
    first, second = stages(shared, 2)
    first.client(delete(*LARGE))
    second.client(delete(*LARGE))

    first.advance(QUESTION_MS - 1)
    assert not first.closed
    first.advance(1)

    assert "the broker has not answered what a mutation waits for" in first.closed
    assert second.wake_up()
    assert shared.rows == []


def test_a_mutation_may_take_as_long_as_its_client_says() -> None:
    shared = world()
    stage = Stage(shared)
    tell(stage, stage.client(create(("new", 3))))

    stage.advance(QUESTION_MS - 1)
    stage.broker(created(("new", 0, 3)))
    stage.advance(FOREVER_MS)

    assert not stage.closed
    assert [row.value for row in shared.rows] == [3]


def test_a_mutation_that_is_never_answered_stays_charged() -> None:
    shared = world()
    stage = Stage(shared)
    tell(stage, stage.client(create(("new", 3))))

    stage.advance(FOREVER_MS)

    assert stage.closed
    assert [row.value for row in shared.rows] == [3]


# ------------------------------------------------------------------ in steps


class Slow(Stage):
    """Does one step at a time, by hand."""

    def __init__(self, cluster: Cluster) -> None:
        self.steps = 0
        super().__init__(cluster)

    def _go_on(self, forwarded: bytes | bytearray | None) -> None:
        self.steps += self.machine.caller.at_work is not None
        super()._go_on(forwarded)


def test_a_request_with_many_topics_is_worked_on_in_steps() -> None:
    stage = Slow(world())
    names = [str(number) for number in range(5_000)]

    question = stage.client(delete(*names))
    asked = stage.steps
    forwarded = tell_unknown(stage, question)
    decided = stage.steps
    told = stage.broker(deleted(*((name, UNKNOWN) for name in names)))

    assert asked > 40
    assert decided > asked + 30
    assert stage.steps > decided + 30
    assert forwarded == delete(*names)
    assert told == deleted(*((name, UNKNOWN) for name in names))


def test_a_connection_at_work_is_not_idle_and_records_its_charges_when_it_ends() -> None:
    stage = Stage(world())
    names = [str(number) for number in range(1_000)]
    tell(stage, stage.client(delete(*names)), *((name, 0, 2) for name in names))

    stage.machine.from_upstream(deleted(*((name, 0) for name in names)), stage._now_us)
    for _ in range(8):
        stage.machine.commands.clear()
        stage.machine.step(stage._now_us)
    assert not stage.machine.idle
    stage.end()

    assert len(stage.cluster.rows) == 1_000


def test_what_cannot_be_read_in_a_later_step_ends_the_connection_uncharged() -> None:
    stage = Stage(world())
    frame = bytearray(delete(*(str(number) for number in range(1_000)), version=3))
    frame[-12:-10] = b"\x7f\xff"  # the length of a name near the end

    with pytest.raises(ProtocolError, match="DeleteTopics v3 request"):
        stage.client(bytes(frame))
    stage.end()

    assert stage.cluster.rows == []
    assert used_bytes(stage.cluster) == 0


def test_other_requests_behind_it_wait_as_before() -> None:
    stage = Stage(world())
    names = [str(number) for number in range(2_000)]

    question = stage.client(delete(*names) + produce(correlation=9))
    assert len(split(question)) == 1
    tell_unknown(stage, question)
    stage.broker(deleted(*((name, ErrorCode.unknown_topic_or_partition.value) for name in names)))

    assert stage.to_broker.endswith(produce(correlation=9))
    stage.broker(produce_answer(correlation=9))
    assert stage.machine.idle
