"""The debt bucket against a model of exact fractions, and what must not move it."""

from copy import deepcopy
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import HealthCheck, given, settings
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
    """What is owed, in exact ms, and nothing else."""

    def __init__(self, limit: float, burst_ms: int, debt_max_ms: int) -> None:
        self.limit = Fraction(limit)
        self.burst_ms = burst_ms
        self.debt_max_ms = debt_max_ms
        self.debt_ms = Fraction(-burst_ms)
        self.seen_ms = _BEGIN_MS

    def at(self, now_ms: int) -> Fraction:
        return max(self.debt_ms - max(0, now_ms - self.seen_ms), Fraction(-self.burst_ms))

    def owe(self, value: int, now_ms: int) -> int:
        owed_ms = self.at(now_ms) + value * 1000 / self.limit
        self.debt_ms, self.seen_ms = max(owed_ms, Fraction(-self.burst_ms)), now_ms
        return self.told(self.debt_ms)

    def charge(self, value: int, now_ms: int) -> int:
        return MUST_WAIT if self.at(now_ms) > self.debt_max_ms else self.owe(value, now_ms)

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
        match deed:
            case "charge":
                assert bucket.charge(value, now_ms) == model.charge(value, now_ms)
            case "admit":
                assert bucket.admit(value, now_ms) == model.owe(value, now_ms)
            case "give back":
                assert bucket.admit(-value, now_ms) == model.owe(-value, now_ms)
            case "refuse":
                model.owe(0, now_ms)
                told_ms = model.told(model.debt_ms + value * 1000 / model.limit)
                assert bucket.refuse(value, now_ms) == told_ms
            case "reject":
                assert bucket.reject(now_ms) == model.owe(0, now_ms)
            case "limit":
                model.limit = Fraction(new_limit)
            case _:
                model.burst_ms = new_burst_ms
        bucket.configure(QuotaWindow(1, model.burst_ms), float(model.limit))
        assert bucket.peek(now_ms) == model.told(model.at(now_ms))
        assert bucket.turn_in_ms(now_ms) == model.told(model.at(now_ms) - debt_max_ms)


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
def test_what_is_owed_in_seconds_outlives_every_change_of_the_limit(
    steps: list[tuple[str, int, float, int, int]], value: int, limits: list[float]
) -> None:
    bucket = DebtBucket(QuotaWindow(1, 1_000), 1_000.0, debt_max_ms=15_000, born_ms=_BEGIN_MS)
    now_ms = _BEGIN_MS
    for _, charged, _, _, step_ms in steps:
        now_ms += step_ms
        bucket.charge(charged, now_ms)
    bucket.admit(value, now_ms)
    owed_ms = bucket.peek(now_ms)

    for limit in limits:
        bucket.configure(QuotaWindow(1, 1_000), limit)
        assert bucket.peek(now_ms) == owed_ms


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
