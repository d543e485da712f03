"""The closed loops of a replay: a client that must wait sends later, so each candidate has its own clock.

*Backlog*: the demand stays, a request is sent when it was recorded or when the last throttle is over.
*Think*: every throttle shifts all later requests. A refused request is sent again after its wait; under a
token bucket for bandwidth a Produce goes on when its turn comes.
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
    BACKLOG,
    DELAY_MS,
    DELAY_MS_MAX,
    LONG_AGO_MS,
    OWN_CURRENT,
    OWN_FREE_MS,
    OWN_RECORD_MS,
    OWN_SLOTS,
    OWN_TOUCHED_MS,
    REJECTED,
    SAMPLE_MS,
    SAMPLES,
    arrive,
    limit_of,
    note,
    set_limits,
)

# A refused request is admitted after its wait; rounding to whole ms can make one more try necessary.
_TRIES_MAX = 4

# Waits end here (34 years), so that sums of times stay within 64 bits.
_WAIT_MS_MAX = 2**40
_FREE_MS_MAX = 2**60

# Places in ``steady``: what ``steady_rate`` returns of the candidate that runs.
_STEADY_MS, _OLDEST_MS = range(2)
_STEADY_SIZE = 2

_BLOCKED_THROTTLE_MS = compiled.BLOCKED_THROTTLE_MS
_is_blocked = compiled.is_blocked
_java_round = compiled.java_round
_sample_complete = compiled.sample_complete
_burst_tokens = compiled.burst_tokens
_refill = compiled.refill
_spend = compiled.spend
_rate_per_s = compiled.rate_per_s
_rate_window_ms = compiled.rate_window_ms
_bucket_throttle_long = compiled.bucket_throttle_long
_counter_expired = compiled.counter_expired
_unit_ms = compiled.unit_ms
_debt_at = compiled.debt_at
_debt_with = compiled.debt_with
_debt_throttle = compiled.debt_throttle


@step
def _sent_ms(free_ms: int, now_ms: int, mode: int) -> int:
    """Return when a request that was recorded at ``now_ms`` is sent in this loop."""
    return max(now_ms, free_ms) if mode == BACKLOG else now_ms + free_ms


@step
def _free_again_ms(free_ms: int, sent_ms: int, throttle_ms: int, mode: int) -> int:
    """Return when the client is free again: a time (backlog), or how much later it all is (think)."""
    after_ms = sent_ms + throttle_ms if mode == BACKLOG else free_ms + throttle_ms
    return min(after_ms, _FREE_MS_MAX)


@step
def _note_delay(sums: Doubles, c: int, refusals: int, delay_ms: int) -> None:
    """Add how often a request was refused or had to wait, and how much later it was admitted."""
    sums[REJECTED, c] += refusals
    sums[DELAY_MS, c] += delay_ms
    sums[DELAY_MS_MAX, c] = max(sums[DELAY_MS_MAX, c], float(delay_ms))


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
    steady: Int64s,  # _STEADY_SIZE
    befores: Doubles,  # the one number more
    c: int,
    sent_ms: int,
    amount: float,
    limit: float,
    samples: int,
    sample_ms: int,
    blocked: bool,
    brief: bool,
) -> int:
    """Return the throttle from ``sent_ms``; ``brief``: it is no longer than a sample."""
    current, slots = own[OWN_CURRENT, c], own[OWN_SLOTS, c]
    is_over = _sample_complete(starts[current], sent_ms, sample_ms)
    if amount < 0:
        # Both rows come later here. What is given back must not outlive its charge: only what is in a
        # sample that is not over yet is taken out of it.
        if is_over:
            return 0
        amount = max(amount, -totals[current])
        if amount >= 0:
            return 0
    own[OWN_RECORD_MS, c] = sent_ms
    is_steady = sent_ms < steady[_STEADY_MS] and not is_over
    if is_steady:
        totals[current] += amount
        lasts[current] = sent_ms
    else:
        steady[_STEADY_MS] = UNSTEADY_MS
        current, slots = record_rate(
            starts, lasts, totals, current, slots, amount, sent_ms, samples, sample_ms
        )
        own[OWN_CURRENT, c], own[OWN_SLOTS, c] = current, slots
    if amount < 0:
        return 0
    if is_steady:
        total = sum_from(totals, befores[0], current, slots)
        window_ms = _rate_window_ms(steady[_OLDEST_MS], sent_ms, samples, sample_ms)
    else:
        total, window_ms = measure_rate(starts, lasts, totals, slots, sent_ms, samples, sample_ms)
        steady[_STEADY_MS], steady[_OLDEST_MS], befores[0] = steady_rate(
            starts, lasts, totals, current, slots, samples, sample_ms
        )
    rate = _rate_per_s(total, window_ms)
    if rate <= limit and not blocked:
        return 0
    over = max(0.0, rate - limit)
    wait_ms: int = _BLOCKED_THROTTLE_MS if blocked else _java_round(over / limit * window_ms)
    if brief and not blocked:
        wait_ms = min(wait_ms, sample_ms)
    return min(wait_ms, _WAIT_MS_MAX)


@step
def _arrived(
    clock: Int64s,
    sums: Doubles,
    ts_us: Int64s,
    value: Doubles,
    samples: Int64s,
    sample_ms: Int64s,
    complete: Flags,
) -> Flags:
    """Sum up the requests that came, for all candidates; return which of them count."""
    counts = np.empty(len(ts_us), np.bool_)
    for row in range(len(ts_us)):
        window_ms = samples[row] * sample_ms[row]
        counts[row] = arrive(clock, sums, ts_us[row] // 1000, value[row], window_ms, complete[row])
        clock[SAMPLES], clock[SAMPLE_MS] = samples[row], sample_ms[row]
    return counts


@kernel
def closed_rows(  # noqa: PLR0915  (one pass over columns, in the order of the steps)
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
    brief: bool,  # no throttle of a sampled rate is longer than a sample
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
    before_width, before_ms = clock[SAMPLES], clock[SAMPLE_MS]
    counts = _arrived(clock, sums, ts_us, value, samples, sample_ms, complete)
    steady, befores = np.empty(_STEADY_SIZE, np.int64), np.empty(1)
    for c in range(len(quotas)):
        own_starts, own_lasts, own_totals = starts[0], lasts[0], totals[0]
        if not bucket:  # a bucket has no rows of samples
            own_starts, own_lasts, own_totals = starts[c], lasts[c], totals[c]
        steady[_STEADY_MS] = UNSTEADY_MS
        width, length_ms = before_width, before_ms
        bound, blocked = 0.0, False
        for row in range(len(ts_us)):
            if row == 0 or (relative and limit[row] != limit[row - 1]):
                bound = limit_of(quotas[c], limit[row], relative)
                blocked = _is_blocked(bound, floor)
            if samples[row] != width or sample_ms[row] != length_ms:
                width, length_ms = samples[row], sample_ms[row]
                own[OWN_RECORD_MS, c] = LONG_AGO_MS
            now_ms, amount = ts_us[row] // 1000, value[row]
            sent_ms = _sent_ms(own[OWN_FREE_MS, c], now_ms, mode)
            if _counter_expired(own[OWN_RECORD_MS, c], sent_ms):
                tokens[c] = 0.0
                own[OWN_TOUCHED_MS, c] = 0
                own[OWN_CURRENT, c], own[OWN_SLOTS, c] = 0, 1
                if not bucket:
                    begin_rate(own_starts, own_lasts, own_totals, sent_ms)
                    steady[_STEADY_MS] = UNSTEADY_MS
            admitted_ms, refusals = sent_ms, 0
            if bucket:
                burst = _burst_tokens(width, length_ms, bound)
                check_first = strict[row] and amount >= 0
                admitted_ms, refusals, throttle_ms = _closed_bucket(
                    tokens, own, c, sent_ms, amount, bound, burst, check_first, blocked
                )
            else:
                throttle_ms = _closed_rate(
                    own_starts,
                    own_lasts,
                    own_totals,
                    own,
                    steady,
                    befores,
                    c,
                    sent_ms,
                    amount,
                    bound,
                    width,
                    length_ms,
                    blocked,
                    brief,
                )
            own[OWN_FREE_MS, c] = _free_again_ms(own[OWN_FREE_MS, c], sent_ms, throttle_ms, mode)
            if counts[row]:
                note(sums, c, sent_ms, float(throttle_ms), amount)
                _note_delay(sums, c, refusals, admitted_ms - now_ms)


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
            set_limits(limits, quotas, limit[row], relative)
        now_ms = ts_us[row] // 1000
        window_ms, amount = samples[row] * sample_ms[row], value[row]
        burst_ms = float(window_ms)
        counts = arrive(clock, sums, now_ms, amount, window_ms, complete[row])
        clock[SAMPLES], clock[SAMPLE_MS] = samples[row], sample_ms[row]
        for c in range(len(quotas)):
            sent_ms = _sent_ms(own[OWN_FREE_MS, c], now_ms, mode)
            if own[OWN_RECORD_MS, c] == LONG_AGO_MS:
                debts[c] = -burst_ms
                own[OWN_TOUCHED_MS, c] = sent_ms
            blocked = _is_blocked(limits[c], floor)
            admitted_ms, waits, throttle_ms = _closed_debt(
                debts, own, c, sent_ms, amount, limits[c], burst_ms, debt_max_ms, blocked
            )
            own[OWN_FREE_MS, c] = _free_again_ms(own[OWN_FREE_MS, c], sent_ms, throttle_ms, mode)
            if counts:
                note(sums, c, sent_ms, float(throttle_ms), amount)
                _note_delay(sums, c, waits, admitted_ms - now_ms)
