"""Replays charges against many candidate quotas at once; the candidates are the inner loop.

A call takes rows of one counter in order. State that outlives the call is in the arrays passed in,
so no result depends on the cutting. The arithmetic is ``kvota.engine.arithmetic``; throttles stay
doubles where nobody waits for them.

*Open* loop: requests come when they came. *Backlog*: the demand stays, a request is sent when it was
recorded or when the last throttle is over. *Think*: every throttle shifts all later requests. In the
closed loops (backlog, think) each candidate has its own clock, and a refused request is sent again
after its wait.

Where bandwidth is counted by a token bucket, a Produce that comes while more than ``debt_max`` is owed
spends nothing and counts as rejected in the open loop, as in shadow mode; in the closed ones it goes on
when its turn comes.
"""

# Columns and state go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: FBT001, PLR0913, PLR0917

import numpy as np

from kvota.pipeline.compiled_arithmetic import compiled, kernel, step
from kvota.pipeline.counter_steps import (
    Doubles,
    Flags,
    Int64s,
    begin_rate,
    measure_rate,
    record_rate,
)

# Places in ``clock``, which all candidates share.
CURRENT, SLOTS, SAMPLES, SAMPLE_MS, TOUCHED_MS, RECORD_MS, FIRST_MS, JUDGED_MS, EVENTS = range(9)
CLOCK_SIZE = 9

# Rows of ``sums``, a column per candidate. Throttled time is counted up to COVERED_MS. VALUE is the
# sum of all recorded values; it is the same for all candidates, so only its first column is used.
(OVER, THROTTLE_MS, THROTTLED_MS, WORST_MS, WITHIN, REJECTED, DELAY_MS, DELAY_MS_MAX) = range(8)
END_MS, COVERED_MS, VALUE = 8, 9, 10
SUMS = 11

# Rows of ``own``, a column per candidate: in a closed loop each candidate has its own clock.
OWN_FREE_MS, OWN_TOUCHED_MS, OWN_RECORD_MS, OWN_CURRENT, OWN_SLOTS = range(5)
OWN_ROWS = 5

OPEN, BACKLOG, THINK = 0, 1, 2

# Long before every recorded time, so that a counter that never recorded is an expired one.
LONG_AGO_MS = -(2**61)

# A refused request is admitted after its wait; rounding to whole ms can make one more try necessary.
_TRIES_MAX = 4

# Waits end here (34 years), so that sums of times stay within 64 bits.
_WAIT_MS_MAX = 2**40
_FREE_MS_MAX = 2**60

_UNLIMITED = compiled.UNLIMITED
_BLOCKED_THROTTLE_MS = compiled.BLOCKED_THROTTLE_MS
_is_blocked = compiled.is_blocked
_java_round = compiled.java_round
_burst_tokens = compiled.burst_tokens
_refill = compiled.refill
_spend = compiled.spend
_rate_per_s = compiled.rate_per_s
_bucket_throttle_long = compiled.bucket_throttle_long
_counter_expired = compiled.counter_expired
_unit_ms = compiled.unit_ms
_debt_at = compiled.debt_at
_debt_with = compiled.debt_with
_debt_throttle = compiled.debt_throttle


@step
def _arrive(
    clock: Int64s,
    now_ms: int,
    value: float,
    window_ms: int,
    is_complete: bool,
) -> bool:
    """Note that a request came; return whether it counts: neither warm-up nor a give-back."""
    if clock[FIRST_MS] == LONG_AGO_MS:
        clock[FIRST_MS] = now_ms
        clock[JUDGED_MS] = now_ms if is_complete else now_ms + window_ms
    if value < 0 or now_ms < clock[JUDGED_MS]:
        return False
    clock[EVENTS] += 1
    return True


@step
def _set_limits(limits: Doubles, quotas: Doubles, bound: float, relative: bool) -> None:
    """Set the candidates' limits for rows whose recorded limit is ``bound`` (NaN: none)."""
    factor = 1.0
    if relative:
        factor = _UNLIMITED if np.isnan(bound) else bound
    for c in range(len(quotas)):
        limits[c] = quotas[c] * factor


@step
def _note(sums: Doubles, c: int, now_ms: int, throttle_ms: float, value: float) -> None:
    """Add one judged request; without branches, so that candidates go through in parallel."""
    over = throttle_ms > 0
    end_ms = now_ms + throttle_ms
    sums[OVER, c] += 1.0 if over else 0.0
    sums[THROTTLE_MS, c] += throttle_ms
    sums[WORST_MS, c] = max(sums[WORST_MS, c], throttle_ms)
    sums[WITHIN, c] += 0.0 if over else value
    sums[THROTTLED_MS, c] += max(0.0, end_ms - max(float(now_ms), sums[COVERED_MS, c]))
    sums[COVERED_MS, c] = max(sums[COVERED_MS, c], end_ms)
    sums[END_MS, c] = now_ms


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
    limits = np.empty(len(quotas))
    for row in range(len(ts_us)):
        if row == 0 or (relative and limit[row] != limit[row - 1]):
            _set_limits(limits, quotas, limit[row], relative)
        now_ms = ts_us[row] // 1000
        width, length_ms, amount = samples[row], sample_ms[row], value[row]
        counts = _arrive(clock, now_ms, amount, width * length_ms, complete[row])
        if now_ms >= clock[JUDGED_MS]:
            sums[VALUE, 0] += amount
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
            if counts:
                violated = refused or (left < 0 and not check_first)
                throttle_ms = -left / limits[c] * 1000.0 if violated else 0.0
                if blocked:
                    throttle_ms = float(_BLOCKED_THROTTLE_MS)
                _note(sums, c, now_ms, throttle_ms, amount)
                sums[REJECTED, c] += 1.0 if refused else 0.0


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
    sums: Doubles,
) -> None:
    """Replay debt buckets in the open loop; ``debts`` has a place per candidate."""
    limits, units_ms = np.empty(len(quotas)), np.empty(len(quotas))
    for row in range(len(ts_us)):
        if row == 0 or (relative and limit[row] != limit[row - 1]):
            _set_limits(limits, quotas, limit[row], relative)
            for c in range(len(quotas)):
                units_ms[c] = 0.0 if _is_blocked(limits[c], floor) else _unit_ms(limits[c])
        now_ms = ts_us[row] // 1000
        amount = value[row]
        burst_ms = float(samples[row] * sample_ms[row])
        counts = _arrive(clock, now_ms, amount, samples[row] * sample_ms[row], complete[row])
        if now_ms >= clock[JUDGED_MS]:
            sums[VALUE, 0] += amount
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
            refused = can_wait and (blocked or owed_ms > debt_max_ms)
            left_ms = owed_ms if refused else _debt_with(owed_ms, amount, units_ms[c], burst_ms)
            debts[c] = left_ms
            if counts:
                throttle_ms = float(_BLOCKED_THROTTLE_MS) if blocked else max(0.0, left_ms)
                _note(sums, c, now_ms, throttle_ms, amount)
                sums[REJECTED, c] += 1.0 if refused else 0.0


@kernel
def rate_open_rows(
    ts_us: Int64s,
    value: Doubles,
    limit: Doubles,
    samples: Int64s,
    sample_ms: Int64s,
    complete: Flags,
    quotas: Doubles,
    relative: bool,
    floor: float,
    clock: Int64s,
    starts: Int64s,
    lasts: Int64s,
    totals: Doubles,
    sums: Doubles,
) -> None:
    """Replay sampled rates in the open loop; all candidates see the same rate."""
    limits = np.empty(len(quotas))
    for row in range(len(ts_us)):
        if row == 0 or (relative and limit[row] != limit[row - 1]):
            _set_limits(limits, quotas, limit[row], relative)
        now_ms = ts_us[row] // 1000
        width, length_ms, amount = samples[row], sample_ms[row], value[row]
        counts = _arrive(clock, now_ms, amount, width * length_ms, complete[row])
        if now_ms >= clock[JUDGED_MS]:
            sums[VALUE, 0] += amount
        if (
            clock[SAMPLES] != width
            or clock[SAMPLE_MS] != length_ms
            or _counter_expired(clock[RECORD_MS], now_ms)
        ):
            clock[SAMPLES], clock[SAMPLE_MS], clock[CURRENT], clock[SLOTS] = width, length_ms, 0, 1
            begin_rate(starts, lasts, totals, now_ms)
        clock[CURRENT], clock[SLOTS] = record_rate(
            starts,
            lasts,
            totals,
            clock[CURRENT],
            clock[SLOTS],
            amount,
            now_ms,
            width,
            length_ms,
        )
        clock[RECORD_MS] = now_ms
        if amount < 0:
            continue
        total, window_ms = measure_rate(
            starts, lasts, totals, clock[SLOTS], now_ms, width, length_ms
        )
        rate = _rate_per_s(total, window_ms)
        if counts:
            for c in range(len(quotas)):
                over = max(0.0, rate - limits[c])
                throttle_ms = over / limits[c] * window_ms
                if _is_blocked(limits[c], floor):
                    throttle_ms = float(_BLOCKED_THROTTLE_MS)
                _note(sums, c, now_ms, throttle_ms, amount)


@step
def _closed_bucket(
    tokens: Doubles,
    own: Int64s,
    c: int,
    sent_ms: int,
    amount: float,
    limit: float,
    burst: float,
    check_first: bool,
    blocked: bool,
) -> tuple[int, int, int]:
    """Return when it was admitted, how often it was refused, and the throttle from ``sent_ms``.

    Under a blocked limit a request that is checked first is given up after the last try.
    """
    if blocked and check_first:
        wait_ms = _TRIES_MAX * _BLOCKED_THROTTLE_MS
        return sent_ms + wait_ms, _TRIES_MAX, wait_ms
    have = _refill(tokens[c], own[OWN_TOUCHED_MS, c], sent_ms, limit, burst)
    admitted_ms, refusals = sent_ms, 0
    while check_first and have < 0 and refusals < _TRIES_MAX:
        wait_ms = min(max(1, _bucket_throttle_long(have, limit)), _WAIT_MS_MAX)
        have = _refill(have, admitted_ms, admitted_ms + wait_ms, limit, burst)
        admitted_ms += wait_ms
        refusals += 1
    left = _spend(have, amount, burst)
    tokens[c] = left
    own[OWN_TOUCHED_MS, c] = admitted_ms
    own[OWN_RECORD_MS, c] = admitted_ms
    throttle_ms = admitted_ms - sent_ms
    if blocked and amount >= 0:
        throttle_ms = _BLOCKED_THROTTLE_MS
    elif not check_first and amount >= 0 and left < 0:
        throttle_ms = min(_bucket_throttle_long(left, limit), _WAIT_MS_MAX)
    return admitted_ms, refusals, throttle_ms


@step
def _closed_debt(
    debts: Doubles,
    own: Int64s,
    c: int,
    sent_ms: int,
    amount: float,
    limit: float,
    burst_ms: float,
    debt_max_ms: float,
    blocked: bool,
) -> tuple[int, int, int]:
    """Return when it was admitted, how often it waited for its turn, and the throttle from ``sent_ms``.

    Under a blocked limit no turn comes: who has to wait for it gives up.
    """
    owed_ms = _debt_at(debts[c], own[OWN_TOUCHED_MS, c], sent_ms, burst_ms)
    admitted_ms, waits = sent_ms, 0
    can_wait = debt_max_ms < np.inf and amount >= 0
    if can_wait and (blocked or owed_ms > debt_max_ms):
        admitted_ms += _BLOCKED_THROTTLE_MS if blocked else _debt_throttle(owed_ms - debt_max_ms)
        owed_ms = _debt_at(owed_ms, sent_ms, admitted_ms, burst_ms)
        waits = 1
    if not blocked:
        owed_ms = _debt_with(owed_ms, amount, _unit_ms(limit), burst_ms)
    debts[c] = owed_ms
    own[OWN_TOUCHED_MS, c] = admitted_ms
    own[OWN_RECORD_MS, c] = admitted_ms
    throttle_ms = admitted_ms - sent_ms
    if blocked and amount >= 0:
        throttle_ms = _BLOCKED_THROTTLE_MS
    elif amount >= 0:
        throttle_ms += _debt_throttle(owed_ms)
    return admitted_ms, waits, throttle_ms


@step
def _closed_rate(
    starts: Int64s,
    lasts: Int64s,
    totals: Doubles,
    own: Int64s,
    c: int,
    sent_ms: int,
    amount: float,
    limit: float,
    samples: int,
    sample_ms: int,
    blocked: bool,
) -> int:
    """Return the throttle from ``sent_ms``."""
    current, slots = record_rate(
        starts,
        lasts,
        totals,
        own[OWN_CURRENT, c],
        own[OWN_SLOTS, c],
        amount,
        sent_ms,
        samples,
        sample_ms,
    )
    own[OWN_CURRENT, c], own[OWN_SLOTS, c], own[OWN_RECORD_MS, c] = current, slots, sent_ms
    if amount < 0:
        return 0
    total, window_ms = measure_rate(starts, lasts, totals, slots, sent_ms, samples, sample_ms)
    over = max(0.0, _rate_per_s(total, window_ms) - limit)
    wait_ms: int = _BLOCKED_THROTTLE_MS if blocked else _java_round(over / limit * window_ms)
    return min(wait_ms, _WAIT_MS_MAX)


@kernel
def closed_rows(
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
    bucket: bool,
    mode: int,
    clock: Int64s,
    own: Int64s,
    tokens: Doubles,  # a place per candidate
    starts: Int64s,  # a row of samples per candidate
    lasts: Int64s,
    totals: Doubles,
    sums: Doubles,
) -> None:
    """Replay a sampled rate or a token bucket of mutations in a closed loop: a client that must wait sends later."""
    limits = np.empty(len(quotas))
    for row in range(len(ts_us)):
        if row == 0 or (relative and limit[row] != limit[row - 1]):
            _set_limits(limits, quotas, limit[row], relative)
        now_ms = ts_us[row] // 1000
        width, length_ms, amount = samples[row], sample_ms[row], value[row]
        counts = _arrive(clock, now_ms, amount, width * length_ms, complete[row])
        if now_ms >= clock[JUDGED_MS]:
            sums[VALUE, 0] += amount
        if clock[SAMPLES] != width or clock[SAMPLE_MS] != length_ms:
            clock[SAMPLES], clock[SAMPLE_MS] = width, length_ms
            own[OWN_RECORD_MS, :] = LONG_AGO_MS
        check_first = strict[row] and amount >= 0
        for c in range(len(quotas)):
            free_ms = own[OWN_FREE_MS, c]
            sent_ms = max(now_ms, free_ms) if mode == BACKLOG else now_ms + free_ms
            if _counter_expired(own[OWN_RECORD_MS, c], sent_ms):
                tokens[c] = 0.0
                own[OWN_TOUCHED_MS, c] = 0
                own[OWN_CURRENT, c], own[OWN_SLOTS, c] = 0, 1
                if not bucket:  # a bucket has no rows of samples
                    begin_rate(starts[c], lasts[c], totals[c], sent_ms)
            admitted_ms, refusals = sent_ms, 0
            blocked = _is_blocked(limits[c], floor)
            if bucket:
                burst = _burst_tokens(width, length_ms, limits[c])
                admitted_ms, refusals, throttle_ms = _closed_bucket(
                    tokens, own, c, sent_ms, amount, limits[c], burst, check_first, blocked
                )
            else:
                throttle_ms = _closed_rate(
                    starts[c],
                    lasts[c],
                    totals[c],
                    own,
                    c,
                    sent_ms,
                    amount,
                    limits[c],
                    width,
                    length_ms,
                    blocked,
                )
            after_ms = sent_ms + throttle_ms if mode == BACKLOG else free_ms + throttle_ms
            own[OWN_FREE_MS, c] = min(after_ms, _FREE_MS_MAX)
            if counts:
                _note(sums, c, sent_ms, float(throttle_ms), amount)
                sums[REJECTED, c] += refusals
                sums[DELAY_MS, c] += admitted_ms - now_ms
                sums[DELAY_MS_MAX, c] = max(sums[DELAY_MS_MAX, c], float(admitted_ms - now_ms))


@kernel
def debt_closed_rows(
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
    mode: int,
    clock: Int64s,
    own: Int64s,
    debts: Doubles,  # a place per candidate
    sums: Doubles,
) -> None:
    """Replay debt buckets in a closed loop: a client sends later, and goes on when its turn comes."""
    limits = np.empty(len(quotas))
    for row in range(len(ts_us)):
        if row == 0 or (relative and limit[row] != limit[row - 1]):
            _set_limits(limits, quotas, limit[row], relative)
        now_ms = ts_us[row] // 1000
        window_ms, amount = samples[row] * sample_ms[row], value[row]
        burst_ms = float(window_ms)
        counts = _arrive(clock, now_ms, amount, window_ms, complete[row])
        if now_ms >= clock[JUDGED_MS]:
            sums[VALUE, 0] += amount
        clock[SAMPLES], clock[SAMPLE_MS] = samples[row], sample_ms[row]
        for c in range(len(quotas)):
            free_ms = own[OWN_FREE_MS, c]
            sent_ms = max(now_ms, free_ms) if mode == BACKLOG else now_ms + free_ms
            if own[OWN_RECORD_MS, c] == LONG_AGO_MS:
                debts[c] = -burst_ms
                own[OWN_TOUCHED_MS, c] = sent_ms
            blocked = _is_blocked(limits[c], floor)
            admitted_ms, waits, throttle_ms = _closed_debt(
                debts, own, c, sent_ms, amount, limits[c], burst_ms, debt_max_ms, blocked
            )
            after_ms = sent_ms + throttle_ms if mode == BACKLOG else free_ms + throttle_ms
            own[OWN_FREE_MS, c] = min(after_ms, _FREE_MS_MAX)
            if counts:
                _note(sums, c, sent_ms, float(throttle_ms), amount)
                sums[REJECTED, c] += waits
                sums[DELAY_MS, c] += admitted_ms - now_ms
                sums[DELAY_MS_MAX, c] = max(sums[DELAY_MS_MAX, c], float(admitted_ms - now_ms))
