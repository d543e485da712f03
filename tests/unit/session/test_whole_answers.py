"""Answers that are kept until they are whole share a budget; without room the broker is not read on."""

import pytest

from kvota.testing.frames import METADATA, metadata_answer, request
from kvota.testing.stage import BROKER, Cluster, Stage

TOPICS = [(f"{number:05}{'n' * 240}", 0, 1) for number in range(1_500)]
LARGE = metadata_answer(4, correlation=1, brokers=[(1, *BROKER)], topics=TOPICS)  # 440 KB
HEAD_BYTES = 20_000


def stages(number: int) -> tuple[Cluster, list[Stage]]:
    """Connections that have asked for Metadata; there is room for one large answer."""
    world = Cluster()
    world.shared.whole_answers._limit_bytes = 500_000
    made = [Stage(world, number=number) for number in range(number)]
    for stage in made:
        stage.client(request(METADATA, 4))
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
    world.shared.whole_answers._limit_bytes = 1_000

    first.broker(LARGE[:HEAD_BYTES])

    assert first.reads_broker
    assert first.broker(LARGE[HEAD_BYTES:])


def test_a_small_answer_needs_no_room() -> None:
    _world, (first, second) = stages(2)
    small = metadata_answer(4, correlation=1, brokers=[(1, *BROKER)], topics=TOPICS[:100])

    first.broker(LARGE[:HEAD_BYTES])

    assert second.broker(small[:9_000], small[9_000:])
    assert second.reads_broker
