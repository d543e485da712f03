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
    note_each,
    note_each_delay,
    note_each_wait,
    set_limits,
)

# A refused request is admitted after its wait; rounding to whole ms can make one more try necessary.
_TRIES_MAX = 4

# Waits end here (34 years), so that sums of times stay within 64 bits.
WAIT_MS_MAX = 2**40

# Delays add up no further (142,000 years; as a time: the year 144,000), so that times are whole numbers as doubles, too.
FREE_MS_MAX = 2**52

_INT32_MAX = float(compiled.INT32_MAX)
_BLOCKED_MS = float(compiled.BLOCKED_THROTTLE_MS)
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
    return min(after_ms, FREE_MS_MAX)


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
def whole_ms(debt_ms: float) -> float:
    """Return ``debt_throttle`` of the engine as a double, without branches."""
    ms: float = np.ceil(min(max(0.0, debt_ms), _INT32_MAX))
    return ms


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


@step
def _each_under(debts: Doubles, worths: Doubles, limits: Doubles, floor: float) -> None:
    """Have each debt be what it is under the limit in force."""
    for c in range(len(debts)):
        in_force = 0.0 if _is_blocked(limits[c], floor) else limits[c]
        debts[c] = _debt_under(debts[c], worths[c], in_force)


@step
def _each_with(
    debts: Doubles,
    worths: Doubles,
    limits: Doubles,
    units_ms: Doubles,
    floor: float,
    amount: float,
    burst_ms: float,
) -> None:
    """Charge each debt, and say what it is worth from now on."""
    for c in range(len(debts)):
        before_ms = debts[c]
        in_force = 0.0 if _is_blocked(limits[c], floor) else limits[c]
        debts[c] = _debt_with(before_ms, amount, units_ms[c], burst_ms)
        worths[c] = _worth_with(before_ms, worths[c], amount, in_force, debts[c])


@step
def _each_waits(
    waits_ms: Doubles,
    admitted_ms: Doubles,  # in: when it was sent
    debts: Doubles,
    limits: Doubles,
    floor: float,
    debt_max_ms: float,
    burst_ms: float,
) -> None:
    """Have each request wait for its turn; under a blocked limit no turn comes, and who waits gives up."""
    for c in range(len(debts)):
        wait_ms = whole_ms(debts[c] - debt_max_ms)
        waits_ms[c] = _BLOCKED_MS if _is_blocked(limits[c], floor) else wait_ms
    for c in range(len(debts)):
        sent_ms = admitted_ms[c]
        admitted_ms[c] = sent_ms + waits_ms[c]
        debts[c] = _debt_at(debts[c], sent_ms, admitted_ms[c], burst_ms)


@kernel
def debt_closed_rows(  # noqa: C901, PLR0912, PLR0915  (one pass over columns)
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
    """Replay debt buckets in a closed loop: a client sends later, and goes on when its turn comes.

    Times are doubles, which hold them to the ms, and a loop does little: so the compiler takes many candidates at once.
    """
    count = len(quotas)
    limits, units_ms = np.empty(count), np.empty(count)
    free_ms, touched_ms = np.empty(count), np.empty(count)
    sent_ms, waits_ms, throttles_ms = np.empty(count), np.zeros(count), np.empty(count)
    has_begun = True
    for c in range(count):
        free_ms[c], touched_ms[c] = float(own[OWN_FREE_MS, c]), float(own[OWN_TOUCHED_MS, c])
        has_begun = own[OWN_RECORD_MS, c] != LONG_AGO_MS
    for row in range(len(ts_us)):
        if row == 0 or (relative and limit[row] != limit[row - 1]):
            set_limits(limits, quotas, limit[row], relative)
            for c in range(count):
                units_ms[c] = 0.0 if _is_blocked(limits[c], floor) else _unit_ms(limits[c])
        window_ms, amount = samples[row] * sample_ms[row], value[row]
        counts = arrive(clock, sums, ts_us[row] // 1000, amount, window_ms, complete[row])
        clock[SAMPLES], clock[SAMPLE_MS] = samples[row], sample_ms[row]
        now_ms, burst_ms = float(ts_us[row] // 1000), float(window_ms)
        for c in range(count):
            sent_ms[c] = max(now_ms, free_ms[c]) if mode == BACKLOG else now_ms + free_ms[c]
        if not has_begun:
            has_begun = True
            debts[:] = -burst_ms
            touched_ms[:] = sent_ms
        for c in range(count):
            debts[c] = _debt_at(debts[c], touched_ms[c], sent_ms[c], burst_ms)
            touched_ms[c] = sent_ms[c]
        if relative:
            _each_under(debts, worths, limits, floor)
        waits_ms[:] = 0.0
        if amount >= 0 and debt_max_ms < np.inf:
            _each_waits(waits_ms, touched_ms, debts, limits, floor, debt_max_ms, burst_ms)
        if relative:
            _each_with(debts, worths, limits, units_ms, floor, amount, burst_ms)
        else:
            for c in range(count):
                debts[c] = _debt_with(debts[c], amount, units_ms[c], burst_ms)
        for c in range(count):
            throttle_ms = waits_ms[c] + whole_ms(debts[c])
            throttle_ms = _BLOCKED_MS if _is_blocked(limits[c], floor) else throttle_ms
            throttles_ms[c] = throttle_ms if amount >= 0 else 0.0
        for c in range(count):
            since_ms = sent_ms[c] if mode == BACKLOG else free_ms[c]
            free_ms[c] = min(since_ms + throttles_ms[c], float(FREE_MS_MAX))
        if counts:
            note_each(sums, sent_ms, throttles_ms, amount)
            note_each_wait(sums, waits_ms)
            note_each_delay(sums, touched_ms, now_ms)
    for c in range(count):
        own[OWN_FREE_MS, c], own[OWN_TOUCHED_MS, c] = int(free_ms[c]), int(touched_ms[c])
        if has_begun:
            own[OWN_RECORD_MS, c] = own[OWN_TOUCHED_MS, c]
