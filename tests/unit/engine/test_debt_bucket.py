"""A token bucket that keeps its debt: who pays, who waits, and what changes nothing."""

import pytest

from kvota.engine.arithmetic import INT32_MAX
from kvota.engine.debt_bucket import MUST_WAIT, DebtBucket
from kvota.model.quota_window import QuotaWindow

NOW_MS = 1_700_000_000_000
BURST = QuotaWindow(1, 1_000)
LIMIT = 1_000.0  # a byte a millisecond: values and times are the same numbers


def bucket_of(
    limit: float | None = LIMIT, *, burst_ms: int = 1_000, debt_max_ms: int = 15_000
) -> DebtBucket:
    window = QuotaWindow(1, burst_ms)
    return DebtBucket(window, limit, debt_max_ms=debt_max_ms, born_ms=NOW_MS)


def owing(seconds: float, **settings: int) -> DebtBucket:
    bucket = bucket_of(**settings)
    bucket.admit(seconds * 1_000 + bucket.window_ms, NOW_MS)
    return bucket


def test_a_full_bucket_lets_its_burst_through_and_then_says_how_long_the_rest_takes() -> None:
    bucket = bucket_of()

    assert [bucket.charge(value, NOW_MS) for value in (600, 400, 1, 250)] == [0, 0, 1, 251]


def test_it_charges_first_and_then_checks_so_a_large_request_passes_at_once() -> None:
    bucket = bucket_of()

    assert bucket.charge(10_000_000, NOW_MS) == 9_999_000


@pytest.mark.parametrize("owed_ms", [0, 1, 15_000])
def test_up_to_the_debt_that_may_be_owed_a_charge_passes(owed_ms: int) -> None:
    bucket = owing(owed_ms / 1_000)

    assert bucket.charge(5, NOW_MS) == owed_ms + 5


def test_beyond_it_a_charge_has_to_wait_until_so_much_is_paid() -> None:
    bucket = owing(15.001)

    assert bucket.charge(5, NOW_MS) == MUST_WAIT
    assert bucket.turn_in_ms(NOW_MS) == 1
    assert (bucket.turn_in_ms(NOW_MS + 1), bucket.charge(5, NOW_MS + 1)) == (0, 15_005)


def test_a_debt_of_0_lets_one_request_at_a_time_through() -> None:
    bucket = bucket_of(debt_max_ms=0)

    assert [bucket.charge(3_000, NOW_MS), bucket.charge(1, NOW_MS)] == [2_000, MUST_WAIT]
    assert bucket.charge(3_000, NOW_MS + 2_000) == 3_000


@pytest.mark.parametrize("times", [1, 100])
def test_whoever_has_to_wait_has_changed_nothing(times: int) -> None:
    asked, left_alone = owing(20), owing(20)

    for number in range(times):
        assert asked.charge(1_000_000, NOW_MS + number) == MUST_WAIT

    for later_ms in (times, 5_000, 21_000):
        assert asked.peek(NOW_MS + later_ms) == left_alone.peek(NOW_MS + later_ms)
    assert asked.last_ms == left_alone.last_ms == NOW_MS


def test_looking_changes_nothing() -> None:
    looked_at, left_alone = owing(20), owing(20)

    for later_ms in (-9_000, 0, 7, 60_000, 3_600_000, 1):
        now_ms = NOW_MS + later_ms
        looked_at.peek(now_ms)
        looked_at.turn_in_ms(now_ms)
        looked_at.allowance(now_ms)
        looked_at.is_as_new(now_ms)
        looked_at.went_back(now_ms)

    now_ms = NOW_MS + 6_000
    assert looked_at.charge(1, now_ms) == left_alone.charge(1, now_ms) == 14_001


def test_what_cannot_wait_is_admitted_however_much_is_owed() -> None:
    bucket = owing(100)

    assert bucket.admit(1_000, NOW_MS) == 101_000


def test_what_is_given_back_is_owed_no_more_and_never_more_than_the_burst() -> None:
    bucket = owing(5)

    assert bucket.admit(-2_000, NOW_MS) == 3_000
    assert bucket.admit(-1_000_000, NOW_MS) == 0
    assert bucket.allowance(NOW_MS) == 1_000


def test_a_refused_value_is_told_its_throttle_and_not_counted() -> None:
    bucket = owing(5)

    assert [bucket.refuse(2_000, NOW_MS), bucket.refuse(2_000, NOW_MS + 1_000)] == [7_000, 6_000]
    assert bucket.peek(NOW_MS + 1_000) == 4_000


def test_a_rejected_request_is_told_what_is_owed_without_it() -> None:
    bucket = owing(20)

    assert [bucket.reject(NOW_MS), bucket.reject(NOW_MS + 4_000)] == [20_000, 16_000]


# ------------------------------------------------------------------ changes


def test_a_higher_limit_keeps_the_debt_in_bytes_and_a_lower_one_in_seconds() -> None:
    bucket = owing(20)

    bucket.configure(BURST, 10 * LIMIT)
    assert bucket.peek(NOW_MS) == 2_000
    bucket.configure(BURST, LIMIT / 10)

    assert bucket.peek(NOW_MS) == 20_000
    assert bucket.charge(1, NOW_MS + 20_000) == 10


def test_a_longer_burst_is_no_gift_and_a_shorter_one_no_debt() -> None:
    bucket = bucket_of()
    bucket.charge(0, NOW_MS)  # it is full until its first charge, whatever its burst

    bucket.configure(QuotaWindow(1, 5_000), LIMIT)
    assert bucket.allowance(NOW_MS) == 1_000
    assert bucket.allowance(NOW_MS + 9_000) == 5_000
    bucket.configure(QuotaWindow(1, 200), LIMIT)

    assert (bucket.peek(NOW_MS), bucket.allowance(NOW_MS)) == (0, 200)


def test_another_debt_that_may_be_owed_counts_from_the_next_charge_on() -> None:
    bucket = owing(10)

    bucket.set_debt_max(9_000)
    assert (bucket.charge(1, NOW_MS), bucket.turn_in_ms(NOW_MS)) == (MUST_WAIT, 1_000)
    bucket.set_debt_max(15_000)

    assert bucket.charge(1, NOW_MS) == 10_001


def test_without_a_limit_nothing_is_owed() -> None:
    bucket = owing(20)

    bucket.configure(BURST, None)
    assert (bucket.peek(NOW_MS), bucket.turn_in_ms(NOW_MS)) == (0, 0)
    assert (bucket.allowance(NOW_MS), bucket.charge(10**15, NOW_MS)) == (INT32_MAX, 0)
    bucket.configure(BURST, LIMIT)

    assert bucket.charge(5_000, NOW_MS) == 5_000


def test_a_quota_that_is_gone_for_a_moment_changes_nothing_where_nothing_came_meanwhile() -> None:
    bucket = owing(20)

    bucket.configure(BURST, None)
    bucket.configure(BURST, LIMIT)

    assert bucket.peek(NOW_MS + 5_000) == 15_000


def test_nothing_is_lost_where_the_limit_is_0() -> None:
    bucket = owing(20)

    bucket.configure(BURST, 0.0)

    assert (bucket.allowance(NOW_MS), bucket.admit(5, NOW_MS)) == (0, 20_000)


# ------------------------------------------------------------------ the gate


def test_while_others_wait_nobody_passes_however_little_is_owed() -> None:
    bucket = bucket_of()

    bucket.close_gate()
    assert bucket.charge(1, NOW_MS) == MUST_WAIT
    bucket.set_debt_max(60_000)
    assert bucket.charge(1, NOW_MS) == MUST_WAIT
    bucket.open_gate()

    assert bucket.charge(1, NOW_MS) == 0


# ------------------------------------------------------------------ the clock


def test_a_clock_that_steps_back_refills_nothing_and_adds_no_debt() -> None:
    bucket = owing(20)
    before_ms = NOW_MS - 3_600_000

    assert (bucket.peek(before_ms), bucket.turn_in_ms(before_ms)) == (20_000, 5_000)
    assert bucket.went_back(before_ms)
    assert bucket.reject(before_ms) == 20_000
    assert not bucket.went_back(before_ms)
    assert bucket.charge(1, before_ms + 5_000) == 15_001


def test_a_charge_within_the_burst_moves_the_clock_back_too() -> None:
    bucket = bucket_of()
    before_ms = NOW_MS - 3_600_000

    assert bucket.charge(900, before_ms) == 0
    assert bucket.charge(600, before_ms + 100) == 400


def test_what_is_told_saturates_and_never_wraps() -> None:
    bucket = bucket_of()

    assert bucket.charge(1e300, NOW_MS) == INT32_MAX
    assert bucket.turn_in_ms(NOW_MS + 10**12) == INT32_MAX


def test_a_bucket_is_as_new_when_it_is_full_again() -> None:
    bucket = owing(20)

    assert [bucket.is_as_new(NOW_MS + later_ms) for later_ms in (0, 20_999, 21_000)] == [
        False,
        False,
        True,
    ]
