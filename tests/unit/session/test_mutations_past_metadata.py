"""Mutations where the Metadata asked before is behind the times.

What has passed here is believed first; what succeeds against all that was known is charged afterwards.
"""

import pytest
from kio.schema.errors import ErrorCode
from tests.unit.session.test_mutations import (
    charges,
    cluster,
    create,
    created,
    delete,
    delete_by_id,
    deleted,
    grow,
    grown,
    tell,
)

from kvota.model.decision_sink import ADMITTED, REJECTED, THROTTLED
from kvota.session.facts import Possible, TopicCounts, _Topic
from kvota.testing.frames import CREATE_TOPICS, METADATA, metadata_answer, throttle_of, topic_id
from kvota.testing.stage import Cluster, Stage

EXISTS, UNKNOWN_ID = 36, 100


def made(world: Cluster, name: str, partitions: int) -> None:
    """A topic is created through another connection; its charge is not looked at."""
    stage = Stage(world, number=2)
    tell(stage, stage.client(create((name, partitions))))
    stage.broker(created((name, 0, partitions)))
    world.rows.clear()


def test_a_deletion_that_succeeds_though_metadata_knew_nothing_is_charged() -> None:
    stage = Stage(cluster())
    made(stage.cluster, "new", 7)

    tell(stage, stage.client(delete("new")))
    stage.broker(deleted(("new", 0)))

    assert charges(stage.cluster.rows) == [(7, ADMITTED)]
    assert stage.cluster.rows[0].memo.api_version == 5


def test_a_topic_made_in_this_moment_is_not_deleted_past_an_empty_bucket() -> None:
    stage = Stage(cluster())
    made(stage.cluster, "new", 101)  # more than the bucket holds

    tell(stage, stage.client(delete("new")))

    assert charges(stage.cluster.rows) == [(101, REJECTED)]


def test_a_topic_deleted_in_this_moment_is_not_made_again_past_an_empty_bucket() -> None:
    stage = Stage(cluster())
    made(stage.cluster, "gone", 50)
    tell(stage, stage.client(delete("gone")), ("gone", 0, 50))
    stage.broker(deleted(("gone", 0)))
    made(stage.cluster, "filler", 1)
    stage.cluster.rows.clear()

    tell(stage, stage.client(create(("gone", 50))), ("gone", 0, 50))

    assert charges(stage.cluster.rows) == [(50, REJECTED)]


def test_what_has_passed_here_is_believed_while_it_is_fresh() -> None:
    stage = Stage(cluster())
    made(stage.cluster, "new", 7)

    tell(stage, stage.client(create(("new", 9))))  # Metadata has not heard of it
    stage.broker(created(("new", EXISTS, 9)))
    tell(stage, stage.client(delete("new")))
    stage.broker(deleted(("new", 0)))
    tell(stage, stage.client(delete("new")), ("new", 0, 7))  # nor of that
    stage.broker(deleted(("new", 3)))

    assert charges(stage.cluster.rows) == [(7, ADMITTED)]


def test_who_may_not_see_a_topic_is_told_so_and_not_of_a_quota() -> None:
    stage = Stage(cluster())
    made(stage.cluster, "secret", 101)

    tell(stage, stage.client(delete("secret")), ("secret", 29, 0))
    stage.broker(deleted(("secret", 29)))

    assert stage.cluster.rows == []


def test_a_deletion_of_what_nobody_here_has_made_is_charged_afterwards() -> None:
    stage = Stage(cluster())
    made(stage.cluster, "new", 7)
    stage.advance(TopicCounts.FRESH_MS)

    tell(stage, stage.client(delete("new")))
    assert stage.cluster.rows == []
    stage.broker(deleted(("new", 0)))

    assert charges(stage.cluster.rows) == [(7, ADMITTED)]
    assert stage.cluster.rows[0].memo.api_version == 0


def test_the_same_by_id() -> None:
    stage = Stage(cluster())
    stage.machine.caller.upstream_versions = {METADATA: (0, 13)}
    made(stage.cluster, "new", 7)

    question = stage.client(delete_by_id(topic_id("new")))
    correlation = int.from_bytes(question[8:12], "big")
    stage.broker(metadata_answer(12, correlation=correlation, topics=[]))
    stage.broker(deleted(("new", 0), version=6))

    assert charges(stage.cluster.rows) == [(7, ADMITTED)]


def test_a_deletion_by_an_id_of_which_its_creation_did_not_tell_is_charged_by_the_name_in_the_answer() -> (
    None
):
    stage = Stage(cluster())
    stage.machine.caller.upstream_versions = {METADATA: (0, 13)}
    tell(stage, stage.client(create(("new", 7), version=4)))
    stage.broker(created(("new", 0, 7), version=4))

    for error_code in (0, 0):
        question = stage.client(delete_by_id(topic_id("new")))
        correlation = int.from_bytes(question[8:12], "big")
        stage.broker(metadata_answer(12, correlation=correlation, topics=[]))
        stage.broker(deleted(("new", error_code), version=6))

    # Of the second one nobody knows any more.
    assert charges(stage.cluster.rows) == [(7, ADMITTED), (7, ADMITTED), (1, ADMITTED)]


def test_what_changes_while_metadata_is_on_its_way_is_believed_however_long_that_takes() -> None:
    stage = Stage(cluster())
    other = Stage(stage.cluster, number=2)
    question = stage.client(delete("t"))
    tell(other, other.client(grow(("t", 30))), ("t", 0, 3))
    other.broker(grown(("t", 0)))
    stage.cluster.rows.clear()

    stage.advance(TopicCounts.FRESH_MS + 7_000)
    tell(stage, question, ("t", 0, 3))
    stage.broker(deleted(("t", 0)))

    assert charges(stage.cluster.rows) == [(30, ADMITTED)]


def test_of_a_topic_that_nobody_remembers_the_default_count_is_charged() -> None:
    stage = Stage(cluster(limits={"default_partitions": 4}))

    tell(stage, stage.client(delete("unseen")))
    stage.broker(deleted(("unseen", 0)))

    assert charges(stage.cluster.rows) == [(4, ADMITTED)]


def test_what_the_broker_refuses_as_expected_stays_uncharged() -> None:
    stage = Stage(cluster())

    tell(stage, stage.client(delete("new", "old")))
    stage.broker(deleted(("new", 3), ("old", 3)))

    assert stage.cluster.rows == []


def test_a_creation_that_succeeds_though_metadata_knew_the_topic_is_charged() -> None:
    stage = Stage(cluster())

    tell(stage, stage.client(create(("again", 9))), ("again", 0, 3))
    stage.broker(created(("again", 0, 9)))

    assert charges(stage.cluster.rows) == [(9, ADMITTED)]


def test_an_answer_without_a_count_leaves_the_count_that_was_asked_for() -> None:
    stage = Stage(cluster())

    tell(stage, stage.client(create(("again", 9), version=4)), ("again", 0, 3))
    stage.broker(created(("again", 0, 9), version=4))

    assert charges(stage.cluster.rows) == [(9, ADMITTED)]


def test_a_count_that_metadata_had_wrong_is_the_one_that_was_made_here() -> None:
    stage = Stage(cluster())
    made(stage.cluster, "more", 9)
    made(stage.cluster, "less", 2)

    tell(stage, stage.client(delete("more", "less")), ("more", 0, 3), ("less", 0, 5))
    stage.broker(deleted(("more", 0), ("less", 0)))

    assert charges(stage.cluster.rows) == [(9, ADMITTED), (2, ADMITTED)]


def test_what_changed_long_ago_is_told_by_metadata() -> None:
    stage = Stage(cluster())
    made(stage.cluster, "old", 9)
    stage.advance(TopicCounts.FRESH_MS)

    tell(stage, stage.client(delete("old")), ("old", 0, 3))
    stage.broker(deleted(("old", 0)))

    assert charges(stage.cluster.rows) == [(3, ADMITTED)]


def test_growth_that_succeeds_though_metadata_knew_nothing_is_charged() -> None:
    stage = Stage(cluster())
    made(stage.cluster, "new", 7)

    tell(stage, stage.client(grow(("new", 10))))
    stage.broker(grown(("new", 0)))
    tell(stage, stage.client(grow(("new", 12))), ("new", 0, 7))
    stage.broker(grown(("new", 0)))
    tell(stage, stage.client(delete("new")))
    stage.broker(deleted(("new", 0)))

    assert [row.value for row in stage.cluster.rows] == [3, 2, 12]


def test_growth_that_metadata_held_for_a_shrinking_is_charged() -> None:
    stage = Stage(cluster())

    tell(stage, stage.client(grow(("new", 10))), ("new", 0, 12))
    stage.broker(grown(("new", 0)))

    assert charges(stage.cluster.rows) == [(1, ADMITTED)]


def test_a_topic_is_charged_once_though_a_broker_took_it_twice() -> None:
    stage = Stage(cluster())
    made(stage.cluster, "new", 7)

    tell(stage, stage.client(delete("new", "new")))
    stage.broker(deleted(("new", 0)))

    assert charges(stage.cluster.rows) == [(7, ADMITTED)]


def test_a_validation_that_succeeds_costs_nothing() -> None:
    stage = Stage(cluster())

    stage.client(create(("a", 60), validate_only=True))
    stage.broker(created(("a", 0, 60)))

    assert stage.cluster.rows == []


def test_in_shadow_mode_what_was_rejected_and_went_up_has_its_one_row() -> None:
    stage = Stage(cluster(enforced=frozenset()))
    made(stage.cluster, "filler", 101)

    tell(stage, stage.client(create(("a", 60))))
    stage.broker(created(("a", 0, 60)))

    assert charges(stage.cluster.rows) == [(60, REJECTED)]


@pytest.mark.parametrize(("version", "outcome"), [(4, THROTTLED), (7, ADMITTED)])
def test_only_a_permissive_request_is_muted_for_what_is_charged_afterwards(
    version: int, outcome: int
) -> None:
    stage = Stage(cluster())
    made(stage.cluster, "filler", 100)

    tell(stage, stage.client(create(("again", 20), version=version)), ("again", 0, 3))
    told = stage.broker(created(("again", 0, 20), version=version))

    assert [row.value for row in stage.cluster.rows] == [20]
    assert stage.muted == (outcome == THROTTLED)
    assert (throttle_of(told, CREATE_TOPICS, version) > 0) == stage.muted


def test_an_answer_that_names_another_topic_charges_for_that_which_was_asked_for() -> None:
    stage = Stage(cluster())

    tell(stage, stage.client(create(("a", 9))), ("a", 0, 3))
    stage.broker(created(("b", ErrorCode.none.value, 20)))

    assert charges(stage.cluster.rows) == [(9, ADMITTED)]


# ------------------------------------------------------------------ several at a time


def begun(world: Cluster, number: int, frame: bytes, *told: tuple[str, int, int]) -> Stage:
    """A mutation that has gone up on a connection of its own; ``told``: by Metadata."""
    stage = Stage(world, number=number)
    assert tell(stage, stage.client(frame), *told) == frame
    return stage


def a_growth_beside_a_deletion() -> tuple[Cluster, Stage, Stage]:
    """Both are under way, of a topic of one partition that is to have 40."""
    world = cluster()
    made(world, "t", 1)
    growing = begun(world, 3, grow(("t", 40)), ("t", 0, 1))
    deleting = begun(world, 4, delete("t"), ("t", 0, 1))
    return world, growing, deleting


def test_a_deletion_beside_a_growth_is_charged_as_if_it_came_behind() -> None:
    world, growing, deleting = a_growth_beside_a_deletion()

    deleting.broker(deleted(("t", 0)))
    growing.broker(grown(("t", 0)))

    assert sum(row.value for row in world.rows) == 39 + 40


def test_a_growth_that_comes_too_late_is_given_back_and_the_deletion_beside_it_is_not() -> None:
    world, growing, deleting = a_growth_beside_a_deletion()

    deleting.broker(deleted(("t", 0)))
    growing.broker(grown(("t", 3)))

    assert sum(row.value for row in world.rows) == 40


def test_a_deletion_does_not_pay_for_a_growth_that_was_refused_before() -> None:
    world, growing, deleting = a_growth_beside_a_deletion()

    growing.broker(grown(("t", 3)))
    deleting.broker(deleted(("t", 0)))

    assert sum(row.value for row in world.rows) == 1


def test_of_more_growths_than_are_looked_at_one_by_one_all_are_paid_for() -> None:
    world = cluster(rate=10**6)
    made(world, "t", 1)
    partitions = range(2, 2 + 3 * _Topic.AFTERS_MAX)
    growing = [begun(world, 10 + n, grow(("t", n)), ("t", 0, 1)) for n in partitions]
    deleting = begun(world, 4, delete("t"), ("t", 0, 1))
    for stage in growing[:-1]:
        stage.broker(grown(("t", 37)))
    growing[-1].broker(grown(("t", 0)))
    deleting.broker(deleted(("t", 0)))

    assert sum(row.value for row in world.rows) == 2 * partitions[-1] - 1
    assert len(world.shared.facts.topics._topics["t"].afters) == 0


def test_who_leaves_before_the_answers_has_paid_for_what_is_carried_out() -> None:
    world = cluster()
    creating = begun(world, 3, create(("t", 5)))
    creating.end()

    deleting = begun(world, 4, delete("t"))  # Metadata has not heard of it
    deleting.end()
    again = begun(world, 5, create(("t", 5)), ("t", 0, 5))  # and now has
    again.end()

    assert [row.value for row in world.rows] == [5, 5, 5]


@pytest.mark.parametrize(
    ("frame", "told", "cost"),
    [
        (create(("t", 9)), [("t", 0, 1)], 9),  # a deletion may be carried out before it
        (grow(("t", 9)), [], 9),  # a creation may be
        (grow(("t", 2)), [("t", 0, 5)], 0),
    ],
)
def test_who_leaves_before_the_answer_pays_for_what_ought_to_fail(
    frame: bytes, told: list[tuple[str, int, int]], cost: int
) -> None:
    world = cluster()

    begun(world, 3, frame, *told).end()

    assert sum(row.value for row in world.rows) == cost


def test_a_deletion_that_is_left_beside_a_creation_is_paid_for() -> None:
    world = cluster()
    deleting = begun(world, 3, delete("t"))
    creating = begun(world, 4, create(("t", 5)))
    deleting.end()
    creating.broker(created(("t", 0, 5)))

    assert sorted(row.value for row in world.rows) == [5, 5]


def test_growth_of_what_nobody_knows_is_bounded_as_of_what_is_known() -> None:
    stage = Stage(cluster())

    told = stage.client(grow(("a", 9_000), ("b", 9_000)))
    up = tell(stage, told)

    assert up == grow(("a", 9_000))


def test_a_connection_that_ends_while_metadata_is_asked_for_pays_for_nothing() -> None:
    stage = Stage(cluster())
    stage.client(delete("t"))
    stage.end()

    creating = begun(stage.cluster, 3, create(("t", 5)))
    creating.broker(created(("t", 0, 5)))

    assert [row.value for row in stage.cluster.rows] == [5]


def test_what_was_refused_or_went_up_in_shadow_mode_is_not_paid_for_twice() -> None:
    shadow = cluster(enforced=frozenset())
    made(shadow, "filler", 101)

    begun(shadow, 3, create(("t", 9))).end()

    assert charges(shadow.rows) == [(9, REJECTED)]


def test_one_mutation_alone_makes_all_certain_again() -> None:
    world = cluster()
    creating = begun(world, 3, create(("t", 5)))
    creating.end()
    growing = begun(world, 4, grow(("t", 30)))
    growing.broker(grown(("t", 0)))
    stage = Stage(world, number=5)
    stage.advance(TopicCounts.FRESH_MS)
    world.rows.clear()

    growing = begun(world, 6, grow(("t", 31)), ("t", 0, 30))
    growing.broker(grown(("t", 0)))
    deleting = begun(world, 7, delete("t"), ("t", 0, 5))
    deleting.broker(deleted(("t", 0)))

    assert [row.value for row in world.rows] == [1, 31]


def test_a_deletion_that_timed_out_may_be_carried_out_and_the_name_used_again() -> None:
    world = cluster()
    made(world, "t", 5)
    deleting = begun(world, 3, delete("t"), ("t", 0, 5))
    deleting.broker(deleted(("t", 7)))

    creating = begun(world, 4, create(("t", 5)), ("t", 0, 5))
    creating.end()

    assert [row.value for row in world.rows] == [5, 5]


# ------------------------------------------------------------------ the memory


def test_the_memory_keeps_the_last_topics_and_no_more() -> None:
    counts = TopicCounts()

    for number in range(TopicCounts.KEYS_MAX // 2 + 1):
        counts.happened(f"t{number}", number + 1, 0)
        counts.is_named(f"t{number}", number.to_bytes(16, "big"))

    assert len(counts._topics) == TopicCounts.KEYS_MAX
    assert counts.last("t0") is None
    assert counts.last(f"t{number}") == number + 1


def test_a_name_that_no_topic_can_have_is_not_remembered() -> None:
    counts = TopicCounts()

    counts.happened("n" * 250, 3, 0)

    assert counts.last("n" * 250) is None


def test_a_topic_that_has_grown_by_its_name_has_grown_by_its_id() -> None:
    counts = TopicCounts()
    counts.happened("t", 1, 0)
    counts.is_named("t", b"id-of-t")

    counts.happened("t", 9, 1)

    assert counts.fresh("t", 1, 1) == counts.fresh(b"id-of-t", 1, 1) == Possible.exactly(9)


def junk(number: int) -> list[str]:
    return [f"junk-{each}" for each in range(number)]


@pytest.mark.parametrize("error", [7, None])
def test_what_ought_to_fail_and_of_which_nobody_is_told_is_paid_for(error: int | None) -> None:
    stage = Stage(cluster())

    tell(stage, stage.client(create(("a", 9))), ("a", 0, 3))
    stage.broker(created(*([] if error is None else [("a", error, 9)])))

    assert charges(stage.cluster.rows) == [(9, ADMITTED)]


@pytest.mark.parametrize("others", [0, 1_000], ids=["small", "large"])
@pytest.mark.parametrize("end", ["leaves", "times out", "in part", "is missing"])
@pytest.mark.parametrize("later_ms", [0, 2 * TopicCounts.FRESH_MS])
def test_a_deletion_that_a_creation_has_overtaken_is_paid_for(
    others: int, end: str, later_ms: int
) -> None:
    """The creation went up behind it, and may have been carried out before it."""
    world, names = cluster(), junk(others)
    deleting = begun(world, 3, delete("t", *names))
    creating = begun(world, 4, create(("t", 5)))
    creating.broker(created(("t", 0, 5)))
    creating.advance(later_ms)

    answers = {
        "times out": [(name, 7) for name in ("t", *names)],
        "in part": [("t", 7), *((name, 3) for name in names)],
        "is missing": [(name, 3) for name in names],
    }
    if end == "leaves":
        deleting.end()
    else:
        deleting.broker(deleted(*answers[end]))

    assert [row.value for row in world.rows] == [5, 5]


@pytest.mark.parametrize("others", [0, 1_000], ids=["small", "large"])
def test_a_deletion_that_a_growth_has_overtaken_pays_for_the_growth_when_it_is_left(
    others: int,
) -> None:
    world = cluster()
    made(world, "t", 1)
    deleting = begun(world, 3, delete("t", *junk(others)), ("t", 0, 1))
    growing = begun(world, 4, grow(("t", 40)), ("t", 0, 1))

    deleting.end()
    growing.broker(grown(("t", 0)))

    assert sum(row.value for row in world.rows) == 40 + 39


def test_of_a_large_creation_that_timed_out_in_part_the_rest_is_paid_for() -> None:
    world = cluster(rate=10**6)
    names = junk(1_500)
    exist = [(name, 0, 3) for name in names]
    creating = begun(world, 3, create(*((name, 2) for name in names)), *exist)

    answers = [(name, 7 if number < 500 else 36, 2) for number, name in enumerate(names)]
    creating.broker(created(*answers))

    assert sum(row.value for row in world.rows) == 500 * 2


def test_who_may_not_see_what_it_would_delete_pays_nothing_for_leaving() -> None:
    world = cluster()
    made(world, "secret", 9)

    begun(world, 3, delete("secret"), ("secret", 29, 0)).end()

    assert world.rows == []


def test_a_permissive_request_is_muted_for_what_it_owes_though_all_it_was_charged_is_given_back() -> (
    None
):
    stage = Stage(cluster())
    made(stage.cluster, "filler", 100)
    frame = create(("new", 1), ("again", 20), version=4)

    tell(stage, stage.client(frame), ("again", 0, 3))
    stage.broker(created(("new", 36, 1), ("again", 7, 20), version=4))

    assert [row.value for row in stage.cluster.rows] == [20, 1, -1]
    assert stage.muted


def test_who_leaves_while_an_answer_is_gone_through_pays_for_all_that_it_tells_of() -> None:
    names = junk(1_500)
    sums: list[float] = []
    while True:
        world = cluster(rate=10**6)
        exist = [(name, 0, 3) for name in names[1:]]  # so those ought to fail
        stage = begun(world, 3, create(*((name, 1) for name in names)), *exist)
        told = created(*((name, 0, 1) for name in names))
        stage.machine.from_upstream(told, world.clock.now_us())
        for _ in sums:  # each time one step more
            if stage.machine.caller.at_work is None:
                break
            stage.machine.step(world.clock.now_us())
        is_done = stage.machine.caller.at_work is None
        stage.end()
        sums.append(sum(row.value for row in world.rows))
        if is_done:
            break

    assert len(sums) > 3
    assert set(sums) == {1_500}


def test_who_leaves_very_many_pays_for_what_one_request_may_ask_for() -> None:
    world = cluster(rate=10**6)
    names = [f"t{number}" for number in range(1_500)]

    begun(world, 3, grow(*((name, 3) for name in names)), *((name, 0, 1) for name in names)).end()
    begun(world, 4, create(*((name, 1) for name in names)), *((name, 0, 3) for name in names)).end()

    assert sum(row.value for row in world.rows) == 3 * 1_500 + 1_500
