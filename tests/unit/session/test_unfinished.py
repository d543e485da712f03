"""A Produce of which a part is here: a sampled rate is charged at its end, a bucket at its head.

A bucket gives back what never came, and no more than its charge still weighs.
"""

from collections.abc import Callable

import pytest
from tests.simulation.law import check_law
from tests.unit.session.test_charged_produce import RequestCounter

from kvota.model.bucket_settings import BucketSettings
from kvota.model.decision_sink import ADMITTED, NO_ANSWER, REJECTED, THROTTLED
from kvota.model.quota_type import QuotaType
from kvota.testing.frames import produce, produce_answer
from kvota.testing.stage import Cluster, Stage, quotas

LIMIT = 10_000
FRAME = produce(records=b"x" * 200_000)
SIZE = len(FRAME) - 4
HERE = 20_000
MISSING = len(FRAME) - HERE
BUCKETS = {QuotaType.PRODUCE: BucketSettings(burst_ms=1_000, debt_max_ms=15_000)}
BOTH = pytest.mark.parametrize("buckets", [{}, BUCKETS], ids=["sampled_rate", "token_bucket"])
Buckets = dict[QuotaType, BucketSettings]


def cluster_of(buckets: Buckets, limit: float = LIMIT, **settings: object) -> Cluster:
    return Cluster(quotas(PRODUCE=limit), buckets=buckets, **settings)  # type: ignore[arg-type]


def begun(cluster: Cluster, frame: bytes = FRAME, number: int = 1) -> Stage:
    stage = Stage(cluster, number=number)
    assert stage.client(frame[:HERE]) == frame[:HERE]
    return stage


def values(cluster: Cluster) -> list[float]:
    check_law(list(cluster.rows))
    return [row.value for row in sorted(cluster.rows, key=lambda row: row.seq)]


def with_a_counter(buckets: Buckets) -> tuple[Cluster, RequestCounter]:
    counter = RequestCounter()
    cluster = cluster_of(buckets, produce_quotas=(counter,))
    counter.sink_of = cluster
    return cluster, counter


def owed_ms(cluster: Cluster) -> int:
    lane = cluster.engine.lane(QuotaType.PRODUCE, 1, "ANONYMOUS", "app", cluster.now_ms)
    assert lane is not None
    return lane.peek(cluster.now_ms)


def test_of_one_that_a_further_quota_refuses_nothing_is_given_back() -> None:
    counter = RequestCounter(allowed=0)
    cluster = cluster_of({}, produce_quotas=(counter,))
    counter.sink_of = cluster
    stage = Stage(cluster)
    stage.client(FRAME[:HERE])

    stage.end()

    assert cluster.rows == []


@BOTH
@pytest.mark.parametrize("frame", [FRAME, FRAME + FRAME[:10_000]], ids=["whole", "half a head"])
def test_of_what_is_whole_or_was_not_charged_nothing_is_given_back(
    buckets: Buckets, frame: bytes
) -> None:
    cluster = cluster_of(buckets, limit=10**9)
    stage = Stage(cluster)
    stage.client(frame[:HERE], frame[HERE:])

    stage.end()

    assert values(cluster) == [SIZE]


# ------------------------------------------------------------------ sampled rate


AT_THE_END = pytest.mark.parametrize(
    "cluster",
    [
        pytest.param(lambda: cluster_of({}), id="sampled_rate"),
        pytest.param(Cluster, id="no quota"),
        pytest.param(lambda: Cluster(buckets=BUCKETS), id="no quota, token_bucket"),
    ],
)
MakesCluster = Callable[[], Cluster]


@AT_THE_END
@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_it_is_charged_when_its_last_byte_is_here(cluster: MakesCluster, acks: int) -> None:
    world, frame = cluster(), produce(acks=acks, records=b"x" * 200_000)
    stage = begun(world, frame)
    world.clock.advance(700)
    stage.client(frame[HERE:-1])
    assert (list(world.rows), stage.muted) == ([], False)
    world.clock.advance(700)
    charged_us = world.clock.now_us()

    assert stage.client(frame[-1:]) == frame[-1:]
    if acks:
        stage.broker(produce_answer())

    (row,) = world.rows
    assert (row.value, row.ts_us) == (SIZE, charged_us)
    assert stage.muted is (row.throttle_ms > 0)
    stage.end()
    assert values(world) == [SIZE]


@AT_THE_END
def test_one_that_breaks_off_was_never_charged(cluster: MakesCluster) -> None:
    world = cluster()
    stage = begun(world)
    stage.client(FRAME[HERE:-1])

    stage.end()
    stage.end()

    assert world.rows == []


def test_who_announces_much_keeps_nobody_back_who_shares_its_counter() -> None:
    cluster = cluster_of({})
    begun(cluster)

    other = Stage(cluster, number=2)
    assert other.client(produce()) == produce()

    assert not other.muted


def test_what_comes_behind_it_waits_for_the_mute() -> None:
    stage = begun(cluster_of({}))

    assert stage.client(FRAME[HERE:] + produce(correlation=8)) == FRAME[HERE:]

    assert stage.advance(stage.mutes[0]) == produce(correlation=8)


def test_further_quotas_are_charged_at_the_head_and_answered_with_it() -> None:
    cluster, counter = with_a_counter({})
    stage = begun(cluster)
    assert len(counter.seen) == 1

    stage.client(FRAME[HERE:])
    stage.broker(produce_answer())

    assert sorted(row.value for row in cluster.rows) == [1, SIZE]


def test_further_quotas_of_one_that_breaks_off_have_their_row() -> None:
    cluster, _ = with_a_counter({})
    stage = begun(cluster)

    stage.end()

    (row,) = cluster.rows
    assert (row.value, row.upstream_ms) == (1, NO_ANSWER)


def test_the_quota_that_is_in_force_at_the_end_counts() -> None:
    cluster = cluster_of({})
    stage = begun(cluster)
    cluster.replace_quotas(quotas(PRODUCE=LIMIT * 1_000))

    stage.client(FRAME[HERE:])
    stage.end()

    (row,) = cluster.rows
    assert (row.memo.limit, row.throttle_ms) == (LIMIT * 1_000, 0)


def test_an_algorithm_that_changes_in_the_middle_charges_it_whatever_is_owed() -> None:
    cluster = cluster_of({})
    stage = begun(cluster)
    cluster.engine.replace_countings({}, BUCKETS)
    Stage(cluster, number=2).client(FRAME)  # owes more than may be owed

    assert stage.client(FRAME[HERE:] + produce(correlation=8)) == FRAME[HERE:]
    stage.end()

    row = max(cluster.rows, key=lambda row: row.seq)
    assert (row.value, row.outcome) == (SIZE, THROTTLED)
    assert row.throttle_ms == (2 * SIZE - LIMIT) * 1000 // LIMIT


# ------------------------------------------------------------------ token bucket


def test_the_first_one_after_a_change_to_a_bucket_is_charged_at_its_head() -> None:
    cluster = cluster_of({})
    Stage(cluster, number=2).client(produce())  # by a sampled rate
    cluster.engine.replace_countings({}, BUCKETS)

    begun(cluster)
    other = Stage(cluster, number=3)

    assert other.client(produce()) == b""
    assert other.machine.is_in_line


@pytest.mark.parametrize("acks", [-1, 1, 0])
def test_what_did_not_come_is_given_back_behind_the_row_of_its_charge(acks: int) -> None:
    cluster = cluster_of(BUCKETS)
    stage = begun(cluster, produce(acks=acks, records=b"x" * 200_000))

    stage.end()

    charge, back = cluster.rows
    assert (charge.value, charge.outcome) == (SIZE, THROTTLED)
    assert (back.value, back.throttle_ms, back.upstream_ms) == (-MISSING, 0, NO_ANSWER)
    assert (back.outcome, back.seq) == (ADMITTED, charge.seq + 1)
    assert back.memo.tags == charge.memo.tags
    assert values(cluster) == [SIZE, -MISSING]


def test_it_is_given_back_once() -> None:
    cluster = cluster_of(BUCKETS)
    stage = begun(cluster)

    stage.end()
    stage.end()

    assert values(cluster) == [SIZE, -MISSING]


def test_afterwards_the_counter_is_where_it_would_be_without_what_is_missing() -> None:
    cluster, other = cluster_of(BUCKETS), cluster_of(BUCKETS)
    begun(cluster).end()
    lane = other.engine.lane(QuotaType.PRODUCE, 1, "ANONYMOUS", "app", other.now_ms)
    assert lane is not None
    lane.admit(SIZE - MISSING, other.now_ms)

    assert owed_ms(cluster) == owed_ms(other)


def test_what_came_later_is_not_given_back() -> None:
    cluster = cluster_of(BUCKETS)
    stage = begun(cluster)
    stage.client(FRAME[HERE:100_000])

    stage.end()

    assert values(cluster) == [SIZE, 100_000 - len(FRAME)]


def test_where_there_is_no_debt_the_record_says_what_came() -> None:
    cluster = cluster_of(BUCKETS, limit=10**9)

    begun(cluster).end()

    assert values(cluster) == [SIZE, -MISSING]


def test_of_several_charges_that_of_the_bytes_is_given_back() -> None:
    cluster, _ = with_a_counter(BUCKETS)
    stage = begun(cluster)

    stage.end()

    assert [row.value for row in cluster.rows] == [1, SIZE, -MISSING]
    assert [row.memo.quota_type for row in cluster.rows[1:]] == [QuotaType.PRODUCE] * 2


def test_what_time_has_paid_is_not_given_back() -> None:
    cluster = cluster_of(BUCKETS)
    stage = begun(cluster)
    cluster.clock.advance(5_000)

    stage.end()

    assert values(cluster) == [SIZE, -(MISSING - 5 * LIMIT)]


def test_time_counts_however_often_the_clock_goes_back() -> None:
    cluster = cluster_of(BUCKETS)
    stage = begun(cluster)
    for _ in range(4):
        cluster.clock.advance(3_000)
        owe_nothing(cluster)
        cluster.clock.step_wall(-3_000)
        owe_nothing(cluster)

    stage.end()

    *_, back = cluster.rows
    assert back.value == -(MISSING - 12 * LIMIT)


def owe_nothing(cluster: Cluster) -> None:
    """A charge of nothing: the counter sees the clock."""
    lane = cluster.engine.lane(QuotaType.PRODUCE, 1, "ANONYMOUS", "app", cluster.now_ms)
    assert lane is not None
    lane.admit(0, cluster.now_ms)


@pytest.mark.parametrize(
    ("factor", "given"), [(0.5, MISSING // 2), (4.0, MISSING)], ids=["lowered", "raised"]
)
def test_under_another_limit_neither_more_bytes_nor_more_time_is_given_back(
    factor: float, given: int
) -> None:
    cluster = cluster_of(BUCKETS)
    stage = begun(cluster)
    cluster.replace_quotas(quotas(PRODUCE=LIMIT * factor))

    stage.end()

    assert values(cluster) == [SIZE, -given]
    assert cluster.rows[1].memo.limit == LIMIT * factor


def test_another_algorithm_gives_nothing_back() -> None:
    cluster = cluster_of(BUCKETS)
    stage = begun(cluster)
    cluster.engine.replace_countings({}, {})

    stage.end()

    assert values(cluster) == [SIZE]


@pytest.mark.parametrize(("before", "after"), [(0.5, LIMIT), (LIMIT, 0.5)])
def test_a_limit_that_blocks_gives_nothing_back(before: float, after: float) -> None:
    cluster = cluster_of(BUCKETS, limit=before, enforced=frozenset())
    stage = begun(cluster)
    cluster.replace_quotas(quotas(PRODUCE=after))

    stage.end()

    assert values(cluster) == [SIZE]


def test_a_counter_that_was_forgotten_gives_nothing_back() -> None:
    cluster = cluster_of(BUCKETS)
    stage = begun(cluster)
    cluster.clock.advance(3_600_001)
    assert cluster.purge_counters()
    cluster.clock.step_wall(-3_600_001)

    stage.end()

    assert [row.value for row in cluster.rows] == [SIZE]


def test_in_shadow_mode_what_spent_nothing_gives_nothing_back() -> None:
    cluster = cluster_of(BUCKETS, enforced=frozenset())
    first, second = begun(cluster), begun(cluster, number=2)

    second.end()
    first.end()

    rows = sorted(cluster.rows, key=lambda row: row.seq)
    assert [row.outcome for row in rows] == [THROTTLED, REJECTED, ADMITTED]
    assert values(cluster) == [SIZE, SIZE, -MISSING]
    assert rows[2].memo.connection == 1


def test_who_waits_in_line_goes_when_there_is_room_again() -> None:
    cluster = cluster_of(BUCKETS)
    stage, waits = begun(cluster), Stage(cluster, number=2)
    assert waits.client(produce()) == b""

    stage.end()

    assert waits.wakes == 1
    assert waits.wake_up() == produce()
