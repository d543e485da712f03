"""The open loop of a replay: requests come when they came, against many candidate quotas at once.

A call takes rows of one counter in order. State that outlives the call is in the arrays passed in, so no
result depends on the cutting. Throttles stay doubles, as nobody waits for them. Where bandwidth is counted
by a token bucket, a Produce that comes while more than ``debt_max`` is owed spends nothing and counts as
rejected, as in shadow mode.
"""

# Columns and state go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: FBT001, PLR0913, PLR0917

import numpy as np

from kvota.pipeline.kernels.compiled_arithmetic import compiled, kernel, step
from kvota.pipeline.kernels.counter_steps import (
    UNSTEADY_MS,
    Doubles,
    Flags,
    Int64s,
    begin_rate,
    measure_rate,
    record_rate,
    steady_rate,
    sum_from,
)
from kvota.pipeline.kernels.grid_sums import (
    CURRENT,
    LONG_AGO_MS,
    RECORD_MS,
    SAMPLE_MS,
    SAMPLES,
    SLOTS,
    TOUCHED_MS,
    arrive,
    note_all,
    note_none_over,
    note_refused,
    set_limits,
)

_BLOCKED_THROTTLE_MS = compiled.BLOCKED_THROTTLE_MS
_is_blocked = compiled.is_blocked
_burst_tokens = compiled.burst_tokens
_refill = compiled.refill
_spend = compiled.spend
_rate_per_s = compiled.rate_per_s
_rate_window_ms = compiled.rate_window_ms
_sample_complete = compiled.sample_complete
_counter_expired = compiled.counter_expired
_unit_ms = compiled.unit_ms
_debt_at = compiled.debt_at
_debt_with = compiled.debt_with
_debt_under = compiled.debt_under
_worth_with = compiled.worth_with


@kernel
def bucket_open_rows(
    ts_us: Int64s,
    value: Doubles,
    limit: Doubles,
    samples: Int64s,
    sample_ms: Int64s,
    strict: Flags,
    complete: Flags,
    quotas: Doubles,
    relative: bool,
    floor: float,
    clock: Int64s,
    tokens: Doubles,
    sums: Doubles,
) -> None:
    """Replay token buckets in the open loop; ``tokens`` has a place per candidate."""
    limits, throttles_ms = np.empty(len(quotas)), np.empty(len(quotas))
    rejected = np.empty(len(quotas))
    for row in range(len(ts_us)):
        if row == 0 or (relative and limit[row] != limit[row - 1]):
            set_limits(limits, quotas, limit[row], relative)
        now_ms = ts_us[row] // 1000
        width, length_ms, amount = samples[row], sample_ms[row], value[row]
        counts = arrive(clock, sums, now_ms, amount, width * length_ms, complete[row])
        if (
            clock[SAMPLES] != width
            or clock[SAMPLE_MS] != length_ms
            or _counter_expired(clock[RECORD_MS], now_ms)
        ):
            clock[SAMPLES], clock[SAMPLE_MS], clock[TOUCHED_MS] = width, length_ms, 0
            tokens[:] = 0.0
        before_ms = clock[TOUCHED_MS]
        clock[TOUCHED_MS] = clock[RECORD_MS] = now_ms
        check_first = strict[row] and amount >= 0
        for c in range(len(quotas)):
            blocked = _is_blocked(limits[c], floor)
            burst = _burst_tokens(width, length_ms, limits[c])
            have = _refill(tokens[c], before_ms, now_ms, limits[c], burst)
            refused = check_first and (blocked or have < 0)
            left = have if refused else _spend(have, amount, burst)
            tokens[c] = left
            violated = refused or (left < 0 and not check_first)
            throttle_ms = -left / limits[c] * 1000.0 if violated else 0.0
            throttles_ms[c] = float(_BLOCKED_THROTTLE_MS) if blocked else throttle_ms
            rejected[c] = 1.0 if refused else 0.0
        if counts:
            note_all(sums, throttles_ms, now_ms, amount)
            if check_first:
                note_refused(sums, rejected)


@kernel
def debt_open_rows(
    ts_us: Int64s,
    value: Doubles,
    limit: Doubles,
    samples: Int64s,
    sample_ms: Int64s,
    complete: Flags,
    quotas: Doubles,
    relative: bool,
    floor: float,
    debt_max_ms: float,  # infinite: nobody waits for a turn
    clock: Int64s,
    debts: Doubles,
    worths: Doubles,
    sums: Doubles,
) -> None:
    """Replay debt buckets in the open loop; ``debts`` and ``worths`` have a place per candidate."""
    limits, units_ms = np.empty(len(quotas)), np.empty(len(quotas))
    throttles_ms, rejected = np.empty(len(quotas)), np.empty(len(quotas))
    for row in range(len(ts_us)):
        if row == 0 or (relative and limit[row] != limit[row - 1]):
            set_limits(limits, quotas, limit[row], relative)
            for c in range(len(quotas)):
                units_ms[c] = 0.0 if _is_blocked(limits[c], floor) else _unit_ms(limits[c])
        now_ms = ts_us[row] // 1000
        amount = value[row]
        burst_ms = float(samples[row] * sample_ms[row])
        counts = arrive(clock, sums, now_ms, amount, samples[row] * sample_ms[row], complete[row])
        if clock[RECORD_MS] == LONG_AGO_MS:
            debts[:] = -burst_ms
            clock[TOUCHED_MS] = now_ms
        clock[SAMPLES], clock[SAMPLE_MS] = samples[row], sample_ms[row]
        before_ms = clock[TOUCHED_MS]
        clock[TOUCHED_MS] = clock[RECORD_MS] = now_ms
        can_wait = debt_max_ms < np.inf and amount >= 0
        for c in range(len(quotas)):
            blocked = _is_blocked(limits[c], floor)
            owed_ms = _debt_at(debts[c], before_ms, now_ms, burst_ms)
            if relative:  # else a candidate's limit stays what it is
                owed_ms = _debt_under(owed_ms, worths[c], 0.0 if blocked else limits[c])
            refused = can_wait and (blocked or owed_ms > debt_max_ms)
            left_ms = owed_ms if refused else _debt_with(owed_ms, amount, units_ms[c], burst_ms)
            if relative:
                charged, bound = 0.0 if refused else amount, 0.0 if blocked else limits[c]
                worths[c] = _worth_with(owed_ms, worths[c], charged, bound, left_ms)
            debts[c] = left_ms
            throttles_ms[c] = float(_BLOCKED_THROTTLE_MS) if blocked else max(0.0, left_ms)
            rejected[c] = 1.0 if refused else 0.0
        if counts:
            note_all(sums, throttles_ms, now_ms, amount)
            if can_wait:
                note_refused(sums, rejected)


@step
def _least_of(limits: Doubles, floor: float) -> float:
    """Return the least limit; minus infinity where one of them is blocked or no number."""
    least = np.inf
    for limit in limits:
        if not limit > 0.0 or _is_blocked(limit, floor):
            return -np.inf
        least = min(least, limit)
    return least


@kernel
def rate_open_rows(  # noqa: PLR0912, PLR0915  (one pass over columns, in the order of the steps)
    ts_us: Int64s,
    value: Doubles,
    limit: Doubles,
    samples: Int64s,
    sample_ms: Int64s,
    complete: Flags,
    quotas: Doubles,
    relative: bool,
    floor: float,
    brief: bool,  # no throttle is longer than a sample
    clock: Int64s,
    starts: Int64s,
    lasts: Int64s,
    totals: Doubles,
    sums: Doubles,
) -> None:
    """Replay sampled rates in the open loop; all candidates see the same rate."""
    limits, throttles_ms = np.empty(len(quotas)), np.empty(len(quotas))
    free = 0.0  # nobody is over up to this rate
    steady_ms, oldest_ms, before = UNSTEADY_MS, 0, 0.0
    for row in range(len(ts_us)):
        if row == 0 or (relative and limit[row] != limit[row - 1]):
            set_limits(limits, quotas, limit[row], relative)
            free = _least_of(limits, floor)
        now_ms = ts_us[row] // 1000
        width, length_ms, amount = samples[row], sample_ms[row], value[row]
        counts = arrive(clock, sums, now_ms, amount, width * length_ms, complete[row])
        if (
            clock[SAMPLES] != width
            or clock[SAMPLE_MS] != length_ms
            or _counter_expired(clock[RECORD_MS], now_ms)
        ):
            clock[SAMPLES], clock[SAMPLE_MS], clock[CURRENT], clock[SLOTS] = width, length_ms, 0, 1
            begin_rate(starts, lasts, totals, now_ms)
            steady_ms = UNSTEADY_MS
        current, slots = clock[CURRENT], clock[SLOTS]
        clock[RECORD_MS] = now_ms
        is_steady = now_ms < steady_ms and not _sample_complete(starts[current], now_ms, length_ms)
        if is_steady:
            totals[current] += amount
            lasts[current] = now_ms
        else:
            steady_ms = UNSTEADY_MS
            clock[CURRENT], clock[SLOTS] = current, slots = record_rate(
                starts, lasts, totals, current, slots, amount, now_ms, width, length_ms
            )
        if amount < 0:
            continue
        if is_steady:
            total = sum_from(totals, before, current, slots)
            window_ms = _rate_window_ms(oldest_ms, now_ms, width, length_ms)
        else:
            total, window_ms = measure_rate(starts, lasts, totals, slots, now_ms, width, length_ms)
            steady_ms, oldest_ms, before = steady_rate(
                starts, lasts, totals, current, slots, width, length_ms
            )
        rate = _rate_per_s(total, window_ms)
        if not counts:
            continue
        if rate <= free:
            note_none_over(sums, now_ms, amount)
            continue
        longest_ms = float(length_ms) if brief else np.inf
        for c in range(len(quotas)):
            over = max(0.0, rate - limits[c])
            throttle_ms = min(over / limits[c] * window_ms, longest_ms)
            blocked = _is_blocked(limits[c], floor)
            throttles_ms[c] = float(_BLOCKED_THROTTLE_MS) if blocked else throttle_ms
        note_all(sums, throttles_ms, now_ms, amount)
