"""Sampled rates in the closed loop, for candidates whose clients send at times of their own."""

# Columns and state go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: FBT001, PLR0913, PLR0917

import numpy as np

from kvota.pipeline.kernels.closed_kernels import (
    WAIT_MS_MAX,
    free_again_ms,
    note_delay,
    sent_ms_of,
)
from kvota.pipeline.kernels.compiled_arithmetic import compiled, inlined, step
from kvota.pipeline.kernels.counter_steps import Doubles, Flags, Int64s
from kvota.pipeline.kernels.grid_sums import (
    LONG_AGO_MS,
    OWN_CURRENT,
    OWN_FREE_MS,
    OWN_RECORD_MS,
    OWN_SLOTS,
    limit_of,
    note,
)

# Of a request that is measured by nobody, as it gives back.
NO_RATE = -1.0

# Of a sample that has not begun; later than every time.
_NOT_YET_MS = 2**61

# Samples of a candidate that goes apart have room for a multiple of so many: the compiler takes them all at once.
_SLOTS_AT_ONCE = 16

_BLOCKED_THROTTLE_MS = compiled.BLOCKED_THROTTLE_MS
_is_blocked = compiled.is_blocked
_java_round = compiled.java_round
_sample_complete = compiled.sample_complete
_sample_expired = compiled.sample_expired
_rate_per_s = compiled.rate_per_s
_rate_window_ms = compiled.rate_window_ms
_counter_expired = compiled.counter_expired


@step
def throttle_of(
    rate: float, window_ms: int, limit: float, blocked: bool, brief: bool, sample_ms: int
) -> int:
    """Return the throttle; ``brief``: it is no longer than a sample."""
    if rate == NO_RATE or (rate <= limit and not blocked):
        return 0
    over = max(0.0, rate - limit)
    wait_ms: int = _BLOCKED_THROTTLE_MS if blocked else _java_round(over / limit * window_ms)
    if brief and not blocked:
        wait_ms = min(wait_ms, sample_ms)
    return min(wait_ms, WAIT_MS_MAX)


@step
def set_bars(
    bars: Doubles,
    limits: Doubles,
    blocked: Flags,
    quotas: Doubles,
    bound: float,
    relative: bool,
    floor: float,
) -> None:
    """Set all candidates' limits, and the rate up to which nobody is throttled (below 0: never)."""
    for c in range(len(quotas)):
        limits[c] = limit_of(quotas[c], bound, relative)
        blocked[c] = _is_blocked(limits[c], floor)
        bars[c] = -1.0 if blocked[c] else limits[c]


@step
def _begin_all(
    starts: Int64s, lasts: Int64s, totals: Doubles, begin: int, end: int, sent_ms: int
) -> None:
    """Begin a counter with one empty sample, and no others."""
    for slot in range(begin, end):
        starts[slot], lasts[slot], totals[slot] = _NOT_YET_MS, _NOT_YET_MS, 0.0
    starts[begin] = lasts[begin] = sent_ms


@inlined
def _measure_all(
    starts: Int64s,
    lasts: Int64s,
    totals: Doubles,
    begin: int,
    end: int,
    slots: int,
    sent_ms: int,
    samples: int,
    sample_ms: int,
) -> tuple[float, int]:
    """Have expired samples start anew; return the sum in slot order, and when the oldest starts.

    The compiler takes the first loop many slots at a time, as nothing in it depends on a branch.
    """
    # Not the time that it is: where the clock went back, all may start later.
    oldest_ms = _NOT_YET_MS
    for slot in range(begin, end):
        is_expired = _sample_expired(lasts[slot], sent_ms, samples, sample_ms)
        start_ms = sent_ms if is_expired else starts[slot]
        starts[slot] = start_ms
        lasts[slot] = sent_ms if is_expired else lasts[slot]
        totals[slot] = 0.0 if is_expired else totals[slot]
        oldest_ms = min(oldest_ms, start_ms)
    total = 0.0
    for slot in range(begin, begin + slots):
        total += totals[slot]
    return total, oldest_ms


@step
def replay_apart(  # noqa: C901, PLR0912, PLR0915  (one pass over columns)
    apart: Int64s,  # who, in the order in which they left
    leaves_at: Int64s,  # of every candidate: the first row that it takes for itself
    width: int,
    length_ms: int,
    counts: Flags,
    ts_us: Int64s,
    value: Doubles,
    limit: Doubles,
    samples: Int64s,
    sample_ms: Int64s,
    quotas: Doubles,
    relative: bool,
    floor: float,
    brief: bool,
    mode: int,
    own: Int64s,
    kept_starts: Int64s,  # from the second row on one per candidate
    kept_lasts: Int64s,
    kept_totals: Doubles,
    limits: Doubles,  # scratch, a place per candidate; so are the next two
    bars: Doubles,
    blocked: Flags,
    sums: Doubles,
) -> None:
    """Replay rows for candidates by themselves.

    Their requests come at times of their own, so that most begin a sample or see one expire: nothing is worth keeping
    from one to the next, and every request goes the same way, which the processor need not guess. It goes through
    the candidates row by row, as what follows from a throttle is worked out while the next candidate's is.
    """
    room = -(-kept_starts.shape[1] // _SLOTS_AT_ONCE) * _SLOTS_AT_ONCE
    size = len(apart) * room
    starts, lasts = np.full(size, _NOT_YET_MS), np.full(size, _NOT_YET_MS)
    totals = np.zeros(size)
    for place in range(len(apart)):
        c = apart[place]
        slots, begin = own[OWN_SLOTS, c], place * room
        starts[begin : begin + slots] = kept_starts[c + 1, :slots]
        lasts[begin : begin + slots] = kept_lasts[c + 1, :slots]
        totals[begin : begin + slots] = kept_totals[c + 1, :slots]
    first, active = leaves_at[apart[0]], 0
    if first:
        width, length_ms = samples[first - 1], sample_ms[first - 1]
    for row in range(first, len(ts_us)):
        if row == first or (relative and limit[row] != limit[row - 1]):
            set_bars(bars, limits, blocked, quotas, limit[row], relative, floor)
        while active < len(apart) and leaves_at[apart[active]] <= row:
            active += 1
        if samples[row] != width or sample_ms[row] != length_ms:
            width, length_ms = samples[row], sample_ms[row]
            for place in range(active):
                own[OWN_RECORD_MS, apart[place]] = LONG_AGO_MS
        now_ms, amount, is_counted = ts_us[row] // 1000, value[row], counts[row]
        for place in range(active):
            c = apart[place]
            begin = place * room
            free_ms = own[OWN_FREE_MS, c]
            sent_ms = sent_ms_of(free_ms, now_ms, mode)
            if _counter_expired(own[OWN_RECORD_MS, c], sent_ms):
                own[OWN_CURRENT, c], own[OWN_SLOTS, c] = 0, 1
                _begin_all(starts, lasts, totals, begin, begin + room, sent_ms)
            current = own[OWN_CURRENT, c]
            is_over = _sample_complete(starts[begin + current], sent_ms, length_ms)
            throttle_ms = 0
            if amount < 0:
                # As of those together: only what is in a sample that is not over yet is taken out of it.
                taken = max(amount, -totals[begin + current])
                if not is_over and taken < 0:
                    totals[begin + current] += taken
                    lasts[begin + current] = own[OWN_RECORD_MS, c] = sent_ms
            else:
                after = 0 if current >= width else current + 1
                current = after if is_over else current
                slots = max(own[OWN_SLOTS, c], current + 1)
                starts[begin + current] = sent_ms if is_over else starts[begin + current]
                totals[begin + current] = (0.0 if is_over else totals[begin + current]) + amount
                lasts[begin + current] = own[OWN_RECORD_MS, c] = sent_ms
                own[OWN_CURRENT, c], own[OWN_SLOTS, c] = current, slots
                total, oldest_ms = _measure_all(
                    starts, lasts, totals, begin, begin + room, slots, sent_ms, width, length_ms
                )
                window_ms = _rate_window_ms(oldest_ms, sent_ms, width, length_ms)
                rate = _rate_per_s(total, window_ms)
                throttle_ms = throttle_of(rate, window_ms, limits[c], blocked[c], brief, length_ms)
            own[OWN_FREE_MS, c] = free_again_ms(free_ms, sent_ms, throttle_ms, mode)
            if is_counted:
                note(sums, c, sent_ms, float(throttle_ms), amount)
                note_delay(sums, c, 0, sent_ms - now_ms)
    for place in range(len(apart)):
        c = apart[place]
        slots, begin = own[OWN_SLOTS, c], place * room
        kept_starts[c + 1, :slots] = starts[begin : begin + slots]
        kept_lasts[c + 1, :slots] = lasts[begin : begin + slots]
        kept_totals[c + 1, :slots] = totals[begin : begin + slots]
