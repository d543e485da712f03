"""How the counters of a quota type count, and a lane whose algorithm changes."""

from copy import deepcopy

import pytest

from kvota.engine import Lane, QuotaType, QuotaWindow, SampledRate
from kvota.engine.arithmetic import BLOCKED_THROTTLE_MS
from kvota.engine.bucket_counter import BucketCounter
from kvota.engine.counting import Counting, countings
from kvota.engine.debt_bucket import MUST_WAIT, DebtBucket
from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import Algorithm

P, F, M = QuotaType.PRODUCE, QuotaType.FETCH, QuotaType.CONTROLLER_MUTATION
NOW_MS = 1_700_000_000_000
WINDOW = QuotaWindow(11, 1_000)
SAMPLED = Counting.of_kafka(P, WINDOW)
BUCKET = Counting(P, Algorithm.TOKEN_BUCKET, QuotaWindow(1, 1_000), 15_000)


def lane_by(counting: Counting, limit: float = 1_000.0) -> Lane:
    lane = Lane(P, 1, {"user": "u"}, counting.new_counter(limit, NOW_MS))
    lane.configure(counting=counting, configured_limit=limit)
    return lane


def change(lane: Lane, counting: Counting, limit: float = 1_000.0) -> None:
    lane.configure(counting=counting, configured_limit=limit)


# ------------------------------------------------------------------ what counts how


def test_types_without_settings_of_their_own_count_as_kafka_does() -> None:
    of_type = countings({P: QuotaWindow(3, 500)}, {})

    assert of_type[P] == Counting(P, Algorithm.SAMPLED_RATE, QuotaWindow(3, 500))
    assert of_type[F] == Counting(F, Algorithm.SAMPLED_RATE, WINDOW)
    assert of_type[M].algorithm is Algorithm.TOKEN_BUCKET
    assert set(of_type) == set(QuotaType)


def test_a_bucket_stands_in_the_record_as_one_sample_of_its_burst() -> None:
    settings = BucketSettings(burst_ms=2_000, debt_max_ms=7_000)

    of_type = countings({P: WINDOW}, {P: settings})

    assert of_type[P] == Counting(P, Algorithm.TOKEN_BUCKET, QuotaWindow(1, 2_000), 7_000)
    assert of_type[F].algorithm is Algorithm.SAMPLED_RATE


@pytest.mark.parametrize("quota_type", [M, QuotaType.REQUEST])
def test_only_bandwidth_has_a_choice(quota_type: QuotaType) -> None:
    with pytest.raises(ValueError, match="one algorithm only"):
        countings({}, {quota_type: BucketSettings()})


@pytest.mark.parametrize(
    ("counting", "kind"),
    [(SAMPLED, SampledRate), (BUCKET, DebtBucket), (Counting.of_kafka(M, WINDOW), BucketCounter)],
)
def test_a_new_counter_is_empty_and_of_its_kind(counting: Counting, kind: type) -> None:
    counter = counting.new_counter(1_000.0, NOW_MS)

    assert isinstance(counter, kind)
    assert (counter.last_ms, counter.peek(NOW_MS)) == (NOW_MS, 0)


# ------------------------------------------------------------------ another algorithm


def test_the_first_charge_under_another_algorithm_starts_a_new_counter() -> None:
    lane = lane_by(SAMPLED)
    lane.charge(1_000_000, NOW_MS)
    before = lane.version

    change(lane, BUCKET)

    assert (lane.algorithm, lane.samples, lane.sample_ms) == (Algorithm.TOKEN_BUCKET, 1, 1_000)
    assert (lane.version, lane.window_ms, lane.window_bytes) == (before + 1, 1_000, 1_000)
    assert (lane.peek(NOW_MS), lane.allowance(NOW_MS)) == (0, 1_000)
    assert isinstance(lane.counter, SampledRate)
    assert lane.charge(1_500, NOW_MS) == 500
    assert isinstance(lane.counter, DebtBucket)
    assert lane.version == before + 2  # whoever keeps the lane asks for it again
    assert lane.charge == lane.counter.charge


@pytest.mark.parametrize(("first", "other"), [(SAMPLED, BUCKET), (BUCKET, SAMPLED)])
def test_a_change_and_a_change_back_without_a_charge_leave_the_counter_as_it_was(
    first: Counting, other: Counting
) -> None:
    lane = lane_by(first)
    lane.charge(20_000, NOW_MS)
    untouched = deepcopy(lane)

    change(lane, other)
    lane.peek(NOW_MS + 500)
    lane.allowance(NOW_MS + 500)
    change(lane, first)

    for later_ms in (1_000, 4_000, 9_000):
        now_ms = NOW_MS + later_ms
        assert lane.peek(now_ms) == untouched.peek(now_ms)
        assert lane.charge(700, now_ms) == untouched.charge(700, now_ms)


@pytest.mark.parametrize(("first", "other"), [(SAMPLED, BUCKET), (BUCKET, SAMPLED)])
@pytest.mark.parametrize("how", ["charge", "admit", "refuse"])
def test_a_change_and_a_change_back_with_a_charge_between_start_anew(
    first: Counting, other: Counting, how: str
) -> None:
    lane = lane_by(first)
    lane.charge(20_000, NOW_MS)

    change(lane, other)
    getattr(lane, how)(100, NOW_MS)
    change(lane, first)

    assert lane.peek(NOW_MS) == 0
    assert lane.charge(1_000, NOW_MS) == 0


def test_the_limit_of_before_the_change_is_kept_for_the_change_back() -> None:
    lane = lane_by(BUCKET)
    lane.charge(11_000, NOW_MS)

    change(lane, SAMPLED, limit=500.0)
    change(lane, BUCKET, limit=500.0)

    assert lane.peek(NOW_MS) == 10_000
    assert lane.charge(500, NOW_MS) == 11_000


# ------------------------------------------------------------------ who waits


def test_only_a_bucket_that_is_in_force_makes_wait() -> None:
    lane = lane_by(BUCKET)
    lane.admit(100_000, NOW_MS)
    assert (lane.makes_wait, lane.turn_in_ms(NOW_MS)) == (True, 84_000)

    change(lane, SAMPLED)

    assert (lane.makes_wait, lane.turn_in_ms(NOW_MS)) == (False, 0)
    assert lane_by(SAMPLED).makes_wait is False


def test_who_stands_in_line_is_still_first_after_the_algorithm_has_changed_back() -> None:
    lane = lane_by(BUCKET)
    lane.admit(100_000, NOW_MS)
    turn = lane.join(lambda: None)

    change(lane, SAMPLED)
    change(lane, BUCKET)

    assert lane.waiting_line().is_first(turn)
    assert lane.charge(1, NOW_MS + 200_000) == MUST_WAIT
    lane.leave(turn)
    assert lane.charge(1, NOW_MS + 200_000) == 0


def test_a_new_bucket_behind_a_line_lets_nobody_pass_either() -> None:
    lane = lane_by(BUCKET)
    lane.admit(100_000, NOW_MS)
    lane.join(lambda: None)

    change(lane, SAMPLED)
    lane.charge(1, NOW_MS)
    change(lane, BUCKET)

    assert lane.charge(1, NOW_MS) == MUST_WAIT


def test_a_blocked_bucket_makes_everybody_wait_and_keeps_its_debt() -> None:
    lane = lane_by(BUCKET)
    lane.admit(11_000, NOW_MS)

    change(lane, BUCKET, limit=0.5)
    assert lane.charge(1, NOW_MS) == MUST_WAIT
    assert lane.turn_in_ms(NOW_MS) == lane.reject(1, NOW_MS) == BLOCKED_THROTTLE_MS
    assert lane.admit(10**9, NOW_MS) == BLOCKED_THROTTLE_MS
    change(lane, BUCKET)

    assert lane.peek(NOW_MS) == 10_000
