"""The closed loops of a replay: a client that must wait sends later, so each candidate has its own clock.

*Backlog*: the demand stays, a request is sent when it was recorded or when the last throttle is over.
*Think*: every throttle shifts all later requests. A refused request is sent again after its wait; under a
token bucket for bandwidth a Produce goes on when its turn comes. Sampled rates: ``closed_rate_kernel``.
"""

# Columns and state go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: FBT001, PLR0913, PLR0917

import numpy as np

from kvota.pipeline.kernels.compiled_arithmetic import compiled, kernel, step
from kvota.pipeline.kernels.counter_steps import (
    Doubles,
    Flags,
    Int64s,
)
from kvota.pipeline.kernels.grid_sums import (
    BACKLOG,
    DELAY_MS,
    DELAY_MS_MAX,
    LONG_AGO_MS,
    OWN_FREE_MS,
    OWN_RECORD_MS,
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
WAIT_MS_MAX = 2**40
_FREE_MS_MAX = 2**60

_BLOCKED_THROTTLE_MS = compiled.BLOCKED_THROTTLE_MS
_is_blocked = compiled.is_blocked
_burst_tokens = compiled.burst_tokens
_refill = compiled.refill
_spend = compiled.spend
_bucket_throttle_long = compiled.bucket_throttle_long
_counter_expired = compiled.counter_expired
_unit_ms = compiled.unit_ms
_debt_at = compiled.debt_at
_debt_with = compiled.debt_with
_debt_throttle = compiled.debt_throttle
_debt_under = compiled.debt_under
_worth_with = compiled.worth_with


@step
def sent_ms_of(free_ms: int, now_ms: int, mode: int) -> int:
    """Return when a request that was recorded at ``now_ms`` is sent in this loop."""
    return max(now_ms, free_ms) if mode == BACKLOG else now_ms + free_ms


@step
def free_again_ms(free_ms: int, sent_ms: int, throttle_ms: int, mode: int) -> int:
    """Return when the client is free again: a time (backlog), or how much later it all is (think)."""
    after_ms = sent_ms + throttle_ms if mode == BACKLOG else free_ms + throttle_ms
    return min(after_ms, _FREE_MS_MAX)


@step
def note_delay(sums: Doubles, c: int, refusals: int, delay_ms: int) -> None:
    """Add how often a request was refused or had to wait, and how much later it was admitted."""
    sums[REJECTED, c] += refusals
    sums[DELAY_MS, c] += delay_ms
    sums[DELAY_MS_MAX, c] = max(sums[DELAY_MS_MAX, c], float(delay_ms))


@step
def closed_bucket(
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
        wait_ms = min(max(1, _bucket_throttle_long(have, limit)), WAIT_MS_MAX)
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
        throttle_ms = min(_bucket_throttle_long(left, limit), WAIT_MS_MAX)
    return admitted_ms, refusals, throttle_ms


@step
def closed_debt(
    debts: Doubles,
    worths: Doubles,
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
    in_force = 0.0 if blocked else limit
    owed_ms = _debt_at(debts[c], own[OWN_TOUCHED_MS, c], sent_ms, burst_ms)
    owed_ms = _debt_under(owed_ms, worths[c], in_force)
    admitted_ms, waits = sent_ms, 0
    can_wait = debt_max_ms < np.inf and amount >= 0
    if can_wait and (blocked or owed_ms > debt_max_ms):
        admitted_ms += _BLOCKED_THROTTLE_MS if blocked else _debt_throttle(owed_ms - debt_max_ms)
        owed_ms = _debt_at(owed_ms, sent_ms, admitted_ms, burst_ms)
        waits = 1
    before_ms = owed_ms
    if not blocked:
        owed_ms = _debt_with(before_ms, amount, _unit_ms(limit), burst_ms)
    worths[c] = _worth_with(before_ms, worths[c], amount, in_force, owed_ms)
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
def arrived(
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
def bucket_closed_rows(
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
    mode: int,
    clock: Int64s,
    own: Int64s,
    tokens: Doubles,  # a place per candidate
    sums: Doubles,
) -> None:
    """Replay a token bucket of mutations in a closed loop: a client that must wait sends later."""
    before_width, before_ms = clock[SAMPLES], clock[SAMPLE_MS]
    counts = arrived(clock, sums, ts_us, value, samples, sample_ms, complete)
    for c in range(len(quotas)):
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
            sent_ms = sent_ms_of(own[OWN_FREE_MS, c], now_ms, mode)
            if _counter_expired(own[OWN_RECORD_MS, c], sent_ms):
                tokens[c] = 0.0
                own[OWN_TOUCHED_MS, c] = 0
            burst = _burst_tokens(width, length_ms, bound)
            check_first = strict[row] and amount >= 0
            admitted_ms, refusals, throttle_ms = closed_bucket(
                tokens, own, c, sent_ms, amount, bound, burst, check_first, blocked
            )
            own[OWN_FREE_MS, c] = free_again_ms(own[OWN_FREE_MS, c], sent_ms, throttle_ms, mode)
            if counts[row]:
                note(sums, c, sent_ms, float(throttle_ms), amount)
                note_delay(sums, c, refusals, admitted_ms - now_ms)


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
    worths: Doubles,  # the same
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
            sent_ms = sent_ms_of(own[OWN_FREE_MS, c], now_ms, mode)
            if own[OWN_RECORD_MS, c] == LONG_AGO_MS:
                debts[c] = -burst_ms
                own[OWN_TOUCHED_MS, c] = sent_ms
            blocked = _is_blocked(limits[c], floor)
            admitted_ms, waits, throttle_ms = closed_debt(
                debts, worths, own, c, sent_ms, amount, limits[c], burst_ms, debt_max_ms, blocked
            )
            own[OWN_FREE_MS, c] = free_again_ms(own[OWN_FREE_MS, c], sent_ms, throttle_ms, mode)
            if counts:
                note(sums, c, sent_ms, float(throttle_ms), amount)
                note_delay(sums, c, waits, admitted_ms - now_ms)
