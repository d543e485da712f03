"""The debt bucket against a model of exact fractions, and what must not move it."""

from copy import deepcopy
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kvota.engine.arithmetic import INT32_MAX
from kvota.engine.debt_bucket import MUST_WAIT, DebtBucket
from kvota.model.quota_window import QuotaWindow

pytestmark = pytest.mark.timeout(120)

_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=300)
_BEGIN_MS = 1_700_000_000_000
# Powers of two: what a byte costs is exact in a double, so the model has to agree to the last bit.
_LIMITS = st.sampled_from([1_000.0 * 2.0**power for power in range(-6, 12)])
_BURSTS_MS = st.sampled_from([1, 100, 1_000, 60_000])
_DEBTS_MAX_MS = st.sampled_from([0, 1_000, 15_000])
_VALUES = st.one_of(st.integers(0, 4_000), st.integers(0, 10**8), st.just(0))
_STEPS_MS = st.one_of(
    st.integers(0, 30),
    st.integers(0, 20_000),
    st.sampled_from([0, 1, 999, 1_000, 15_000, 3_600_001]),
    st.integers(-20_000, 0),
)
_DEEDS = st.sampled_from(
    ["charge", "charge", "charge", "admit", "give back", "refuse", "reject", "limit", "burst"]
)
_STEPS = st.lists(st.tuples(_DEEDS, _VALUES, _LIMITS, _BURSTS_MS, _STEPS_MS), max_size=40)


class Model:
    """What is owed, in exact ms and in exact bytes, and nothing else.

    Time pays both in the same proportion. Under a limit that rises what is owed is so many bytes, at the next charge.
    """

    def __init__(self, limit: float, burst_ms: int, debt_max_ms: int) -> None:
        self.limit = Fraction(limit)
        self.burst_ms = burst_ms
        self.debt_max_ms = debt_max_ms
        self.debt_ms: Fraction | None = (
            None  # full until the first charge, whatever the burst is then
        )
        self.owed_bytes = Fraction(0)
        self.seen_ms = _BEGIN_MS
        self.is_exact = True  # what is owed is of one limit: then doubles are exact, too

    def at(self, now_ms: int) -> Fraction:
        if self.debt_ms is None:
            return Fraction(-self.burst_ms)
        owed_ms = max(self.debt_ms - max(0, now_ms - self.seen_ms), Fraction(-self.burst_ms))
        if owed_ms <= 0:
            return owed_ms
        return min(owed_ms, self.bytes_at(owed_ms) * 1000 / self.limit)

    def bytes_at(self, owed_ms: Fraction) -> Fraction:
        assert self.debt_ms is not None
        return self.owed_bytes * owed_ms / self.debt_ms

    def owe(self, value: int, now_ms: int) -> int:
        before_ms = self.at(now_ms)
        before_bytes = Fraction(0)
        if before_ms > 0:
            before_bytes = max(self._bytes_left(now_ms), before_ms * self.limit / 1000)
        self.debt_ms = max(before_ms + value * 1000 / self.limit, Fraction(-self.burst_ms))
        self.seen_ms = now_ms
        self.owed_bytes = before_bytes + value
        if before_ms <= 0 or self.debt_ms <= 0:
            self.owed_bytes = max(self.debt_ms, Fraction(0)) * self.limit / 1000
            self.is_exact = True
        self.is_exact &= self.debt_ms <= 0 or self.owed_bytes * 1000 == self.debt_ms * self.limit
        return self.told(self.debt_ms)

    def _bytes_left(self, now_ms: int) -> Fraction:
        assert self.debt_ms is not None
        return self.bytes_at(self.debt_ms - max(0, now_ms - self.seen_ms))

    def charge(self, value: int, now_ms: int) -> int:
        return MUST_WAIT if self.at(now_ms) > self.debt_max_ms else self.owe(value, now_ms)

    def agrees(self, told_ms: int, exact_ms: int) -> bool:
        """Where debts of several limits are mixed doubles are not exact: whole ms may differ by one."""
        off_ms = 0 if self.is_exact else 1 + max(0, exact_ms) // 10**9
        return abs(told_ms - exact_ms) <= off_ms

    @staticmethod
    def told(debt_ms: Fraction) -> int:
        return min(max(0, ceil(debt_ms)), INT32_MAX)


@_CALM
@given(limit=_LIMITS, burst_ms=_BURSTS_MS, debt_max_ms=_DEBTS_MAX_MS, steps=_STEPS)
def test_it_owes_what_an_exact_model_owes(
    limit: float,
    burst_ms: int,
    debt_max_ms: int,
    steps: list[tuple[str, int, float, int, int]],
) -> None:
    window = QuotaWindow(1, burst_ms)
    bucket = DebtBucket(window, limit, debt_max_ms=debt_max_ms, born_ms=_BEGIN_MS)
    model = Model(limit, burst_ms, debt_max_ms)
    now_ms = _BEGIN_MS

    for deed, value, new_limit, new_burst_ms, step_ms in steps:
        now_ms += step_ms
        was_exact = model.is_exact
        match deed:
            case "charge":
                # On the very edge a mixed debt may be told from the exact one.
                assume(was_exact or abs(model.at(now_ms) - debt_max_ms) > Fraction(1, 1000))
                found, expected = bucket.charge(value, now_ms), model.charge(value, now_ms)
            case "admit":
                found, expected = bucket.admit(value, now_ms), model.owe(value, now_ms)
            case "give back":
                found, expected = bucket.admit(-value, now_ms), model.owe(-value, now_ms)
            case "refuse":
                model.owe(0, now_ms)
                expected = model.told(model.debt_ms + value * 1000 / model.limit)
                found = bucket.refuse(value, now_ms)
            case "reject":
                found, expected = bucket.reject(now_ms), model.owe(0, now_ms)
            case "limit":
                model.limit, found, expected = Fraction(new_limit), 0, 0
                model.is_exact = False  # until the next charge has told
            case _:
                model.burst_ms, found, expected = new_burst_ms, 0, 0
        assert model.agrees(found, expected)
        bucket.configure(QuotaWindow(1, model.burst_ms), float(model.limit))
        assert model.agrees(bucket.peek(now_ms), model.told(model.at(now_ms)))
        turn_in_ms = model.told(model.at(now_ms) - debt_max_ms)
        assert model.agrees(bucket.turn_in_ms(now_ms), turn_in_ms)


@_CALM
@given(
    limit=st.floats(1.0, 1e9),
    debt_max_ms=_DEBTS_MAX_MS,
    steps=_STEPS,
    peeks=st.lists(_STEPS_MS, max_size=3),
)
def test_no_decision_tells_whether_somebody_looked(
    limit: float,
    debt_max_ms: int,
    steps: list[tuple[str, int, float, int, int]],
    peeks: list[int],
) -> None:
    window = QuotaWindow(1, 1_000)
    looked_at = DebtBucket(window, limit, debt_max_ms=debt_max_ms, born_ms=_BEGIN_MS)
    left_alone = deepcopy(looked_at)
    now_ms = _BEGIN_MS

    for _, value, _, _, step_ms in steps:
        now_ms += step_ms
        for offset_ms in peeks:
            at_ms = now_ms + offset_ms
            peeked_ms = looked_at.peek(at_ms)
            assert peeked_ms == deepcopy(looked_at).admit(0, at_ms)
            assert looked_at.turn_in_ms(at_ms) <= peeked_ms
            assert looked_at.allowance(at_ms) == 0 or peeked_ms == 0
            looked_at.is_as_new(at_ms)
            looked_at.went_back(at_ms)
        assert looked_at.charge(value, now_ms) == left_alone.charge(value, now_ms)


@_CALM
@given(steps=_STEPS, value=st.integers(0, 10**9), limits=st.lists(st.floats(1.0, 1e9), max_size=4))
def test_what_is_owed_stays_as_time_under_a_lower_limit_and_as_bytes_under_a_higher_one(
    steps: list[tuple[str, int, float, int, int]], value: int, limits: list[float]
) -> None:
    bucket = DebtBucket(QuotaWindow(1, 1_000), 1_000.0, debt_max_ms=15_000, born_ms=_BEGIN_MS)
    now_ms = _BEGIN_MS
    for _, charged, _, _, step_ms in steps:
        now_ms += step_ms
        bucket.charge(charged, now_ms)
    bucket.admit(value, now_ms)
    owed_ms = max(0.0, bucket.peek_debt_ms(now_ms))

    for limit in limits:
        bucket.configure(QuotaWindow(1, 1_000), limit)
        expected_ms = owed_ms if limit <= 1_000.0 else owed_ms * 1_000.0 / limit
        assert max(0.0, bucket.peek_debt_ms(now_ms)) == pytest.approx(expected_ms)
    bucket.configure(QuotaWindow(1, 1_000), None)
    assert (bucket.peek(now_ms), bucket.turn_in_ms(now_ms)) == (0, 0)


@_CALM
@given(low=st.floats(1.0, 999.0), rows=st.lists(st.booleans(), min_size=1, max_size=8))
def test_a_limit_that_falls_and_rises_again_lets_nobody_off(low: float, rows: list[bool]) -> None:
    window = QuotaWindow(1, 1_000)
    bucket = DebtBucket(window, 1_000.0, debt_max_ms=15_000, born_ms=_BEGIN_MS)
    bucket.admit(20_000, _BEGIN_MS)
    owed_ms = bucket.peek_debt_ms(_BEGIN_MS)

    for has_row in rows:
        for limit in (low, 1_000.0):
            bucket.configure(window, limit)
            if has_row:
                bucket.reject(_BEGIN_MS)
            assert bucket.peek_debt_ms(_BEGIN_MS) == pytest.approx(owed_ms)


def test_who_asked_for_a_thousand_seconds_of_a_low_limit_goes_on_when_it_is_raised() -> None:
    window = QuotaWindow(1, 1_000)
    bucket = DebtBucket(window, 1e6, debt_max_ms=15_000, born_ms=_BEGIN_MS)
    bucket.admit(3_000_000, _BEGIN_MS)
    bucket.configure(window, 1e3)

    assert bucket.admit(1_000_000, _BEGIN_MS) == 1_002_000
    bucket.configure(window, 1e6)
    assert bucket.peek(_BEGIN_MS) == 3_000
    assert bucket.charge(1_000_000, _BEGIN_MS) == 4_000


@_CALM
@given(limit=_LIMITS, burst_ms=_BURSTS_MS, debt_max_ms=_DEBTS_MAX_MS, steps=_STEPS)
def test_no_more_comes_than_under_the_highest_limit_of_all(
    limit: float,
    burst_ms: int,
    debt_max_ms: int,
    steps: list[tuple[str, int, float, int, int]],
) -> None:
    window = QuotaWindow(1, burst_ms)
    bucket = DebtBucket(window, limit, debt_max_ms=debt_max_ms, born_ms=_BEGIN_MS)
    highest = max([limit, *(step[2] for step in steps)])
    now_ms, seen_ms, over_ms = _BEGIN_MS, _BEGIN_MS, 0.0

    for deed, value, new_limit, _, step_ms in steps:
        now_ms += step_ms
        if deed == "limit":
            bucket.configure(window, new_limit)
        else:
            came = bucket.charge(value, now_ms) != MUST_WAIT
            over_ms = max(0.0, over_ms - max(0, now_ms - seen_ms))
            seen_ms = now_ms if came else seen_ms
            if came:
                assert over_ms <= burst_ms + debt_max_ms + 1e-3
                over_ms += value * 1000 / highest
            else:
                bucket.reject(now_ms)
                seen_ms = now_ms


@_CALM
@given(
    steps=_STEPS,
    step_back_ms=st.integers(1, 10**8),
    value=st.integers(0, 100_000),
)
def test_a_clock_that_steps_back_refills_nothing_and_adds_no_debt(
    steps: list[tuple[str, int, float, int, int]], step_back_ms: int, value: int
) -> None:
    bucket = DebtBucket(QuotaWindow(1, 1_000), 1_000.0, debt_max_ms=15_000, born_ms=_BEGIN_MS)
    now_ms = _BEGIN_MS
    for _, charged, _, _, step_ms in steps:
        now_ms += abs(step_ms)
        bucket.admit(charged, now_ms)
    expected = deepcopy(bucket)

    got = [bucket.admit(0, now_ms - step_back_ms), bucket.admit(value, now_ms - step_back_ms)]

    assert got == [expected.admit(0, now_ms), expected.admit(value, now_ms)]
    assert bucket.peek(now_ms - step_back_ms + 700) == expected.peek(now_ms + 700)
