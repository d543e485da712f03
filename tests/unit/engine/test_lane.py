"""One counter as its clients see it: limit and factor, version, blocked limits, who waits for it."""

import pytest

from kvota.engine import MUST_WAIT, Lane, QuotaType, QuotaWindow, SampledRate
from kvota.engine.arithmetic import BLOCKED_THROTTLE_MS
from kvota.engine.bucket_counter import BucketCounter
from kvota.engine.counting import Counting

P, M = QuotaType.PRODUCE, QuotaType.CONTROLLER_MUTATION
NOW_MS = 1_700_000_000_000
WINDOW = QuotaWindow(11, 1000)
NONE_MAX = 2**31 - 1


def rate_lane(limit: float | None, factor: float = 1.0) -> Lane:
    lane = Lane(P, 1, {"user": "u"}, SampledRate(WINDOW, limit, born_ms=NOW_MS))
    lane.configure(
        counting=Counting.of_kafka(lane.quota_type, WINDOW), configured_limit=limit, factor=factor
    )
    return lane


def bucket_lane(limit: float | None) -> Lane:
    lane = Lane(M, -1, {"user": "u"}, BucketCounter(WINDOW, limit, born_ms=NOW_MS))
    lane.configure(counting=Counting.of_kafka(lane.quota_type, WINDOW), configured_limit=limit)
    return lane


def test_a_lane_says_all_that_a_row_and_a_client_need() -> None:
    lane = rate_lane(1000.0)

    assert (lane.quota_type, lane.node_id, lane.tags) == (P, 1, "user=u")
    assert (lane.configured_limit, lane.factor, lane.limit) == (1000.0, 1.0, 1000.0)
    assert (lane.samples, lane.sample_ms) == (11, 1000)
    assert (lane.window_ms, lane.window_bytes, lane.is_blocked) == (10_000, 10_000, False)


def test_nothing_stands_between_a_lane_and_its_counter() -> None:
    lane = rate_lane(1000.0)

    assert lane.charge == lane.counter.charge  # type: ignore[union-attr]
    assert lane.allowance == lane.counter.allowance  # type: ignore[union-attr]


def test_a_lane_without_a_counter_only_observes() -> None:
    lane = Lane(P, 1, {"client-id": "c", "user": ""})

    assert lane.charge(1e300, NOW_MS) == lane.refuse(1e300, NOW_MS) == lane.peek(NOW_MS) == 0
    assert lane.allowance(NOW_MS) == lane.window_bytes == NONE_MAX
    assert (lane.samples, lane.sample_ms, lane.limit, lane.window_ms) == (0, 0, None, 0)
    assert not lane.is_blocked


def test_the_limit_in_force_is_the_configured_one_times_the_factor() -> None:
    lane = rate_lane(1000.0, factor=0.25)

    assert (lane.configured_limit, lane.limit) == (1000.0, 250.0)
    assert lane.allowance(NOW_MS) == lane.window_bytes == 2_500
    assert lane.charge(2_501, NOW_MS) == 4


def test_a_factor_of_0_blocks_even_an_infinite_limit() -> None:
    lane = rate_lane(float("inf"), factor=0.0)

    assert (lane.limit, lane.is_blocked) == (0.0, True)


@pytest.mark.parametrize("factor", [0.25, 1.0, 3.0])
def test_no_limit_stays_none_by_any_factor_but_0(factor: float) -> None:
    lane = rate_lane(None, factor=factor)

    assert (lane.limit, lane.is_blocked) == (None, False)


def test_a_factor_of_0_stops_who_has_no_limit_too() -> None:
    lane = rate_lane(None, factor=0.0)

    assert (lane.configured_limit, lane.limit, lane.is_shut) == (None, 0.0, True)


def test_the_version_grows_with_every_change_and_only_then() -> None:
    lane = rate_lane(1000.0)
    versions = [lane.version]

    def seen(*, window: QuotaWindow = WINDOW, limit: float = 1000.0, factor: float = 1.0) -> bool:
        changed = lane.configure(
            counting=Counting.of_kafka(lane.quota_type, window),
            configured_limit=limit,
            factor=factor,
        )
        versions.append(lane.version)
        return changed

    changes = [
        seen(),
        seen(limit=2000.0),
        seen(limit=2000.0),
        seen(limit=1000.0, factor=2.0),  # the same limit in force, but not the same facts
        seen(limit=1000.0, factor=2.0, window=QuotaWindow(3, 500)),
    ]
    lane.outdate()

    assert changes == [False, True, False, True, True]
    first = versions[0]
    assert versions == [first, first, first + 1, first + 1, first + 2, first + 3]
    assert lane.version == first + 4


def test_what_was_counted_is_held_against_the_new_limit() -> None:
    lane = rate_lane(1000.0)
    lane.charge(20_000, NOW_MS)

    lane.configure(counting=Counting.of_kafka(lane.quota_type, WINDOW), configured_limit=4000.0)

    assert lane.charge(0, NOW_MS) == 0
    assert lane.allowance(NOW_MS) == 20_000


# ------------------------------------------------------------------ blocked


@pytest.mark.parametrize("limit", [0.0, 1e-9, 0.999])
def test_below_the_floor_every_charge_is_recorded_and_throttled_for_30_s(limit: float) -> None:
    lane = rate_lane(limit)

    assert lane.is_blocked
    assert [lane.charge(value, NOW_MS) for value in (5_000, 0, 1)] == [BLOCKED_THROTTLE_MS] * 3
    assert (lane.allowance(NOW_MS), lane.window_bytes) == (0, 0)
    assert lane.refuse(100, NOW_MS) == lane.peek(NOW_MS) == BLOCKED_THROTTLE_MS == 30_000
    # Recorded: 5,001 in ten seconds.
    lane.configure(counting=Counting.of_kafka(lane.quota_type, WINDOW), configured_limit=500.0)
    assert lane.charge(0, NOW_MS) == 2


def test_the_floor_itself_is_a_rate() -> None:
    lane = rate_lane(1.0)

    assert not lane.is_blocked
    assert [lane.charge(10, NOW_MS), lane.charge(10, NOW_MS)] == [0, 10_000]


def test_a_factor_of_0_blocks_and_is_lifted_again() -> None:
    lane = rate_lane(1000.0, factor=0.0)
    blocked = lane.charge(10_000, NOW_MS), lane.reject(10_000, NOW_MS), lane.turn_in_ms(NOW_MS)

    lane.configure(
        counting=Counting.of_kafka(lane.quota_type, WINDOW), configured_limit=1000.0, factor=1.0
    )

    # However it counts: who may not produce waits, and is not charged.
    assert (blocked, lane.is_blocked) == ((MUST_WAIT, 30_000, 30_000), False)
    assert (lane.makes_wait, lane.turn_in_ms(NOW_MS)) == (False, 0)
    assert lane.charge(1, NOW_MS) == 0


@pytest.mark.parametrize(
    ("limit", "is_blocked"), [(0.0, True), (9e-7, True), (1e-6, False), (None, False)]
)
def test_mutations_have_a_floor_of_their_own(limit: float | None, is_blocked: bool) -> None:
    assert bucket_lane(limit).is_blocked == is_blocked


def test_a_floor_can_be_given_for_comparisons_with_kafka_which_has_none() -> None:
    lane = Lane(P, 1, {}, SampledRate(WINDOW, 0.0), floor=0.0)

    lane.configure(counting=Counting.of_kafka(lane.quota_type, WINDOW), configured_limit=0.0)

    assert not lane.is_blocked
    assert lane.charge(5, NOW_MS) == -1  # Kafka's wrap-around, which holds nobody back


# ------------------------------------------------------------------ a bucket behind a lane


def test_a_lane_to_a_bucket_charges_as_a_permissive_request() -> None:
    lane = bucket_lane(10.0)

    assert (lane.window_ms, lane.window_bytes, lane.allowance(NOW_MS)) == (11_000, 110, 110)
    assert [lane.charge(90, NOW_MS) for _ in range(2)] == [0, 7_000]
    assert (lane.allowance(NOW_MS), lane.peek(NOW_MS)) == (0, 7_000)
    assert (lane.peek(NOW_MS + 4_000), lane.allowance(NOW_MS + 8_000)) == (3_000, 10)


def test_what_a_lane_to_a_bucket_refuses_is_given_back() -> None:
    lane = bucket_lane(10.0)

    assert lane.refuse(120, NOW_MS) == 1_000
    assert lane.allowance(NOW_MS) == 110


# ------------------------------------------------------------------ who waits


def test_those_who_wait_are_woken_once_when_the_lane_is_outdated() -> None:
    lane = rate_lane(1000.0)
    woken: list[str] = []
    line = lane.waiting_line()
    line.join(lambda: woken.append("a"))
    line.join(lambda: woken.append("b"))

    lane.outdate()

    assert woken == ["a", "b"]
    assert lane.waiting_line() is line


def test_a_lane_nobody_ever_waited_for_has_no_line() -> None:
    lane = rate_lane(1000.0)

    lane.outdate()
    lane.wake_waiters()

    assert lane.line is None
