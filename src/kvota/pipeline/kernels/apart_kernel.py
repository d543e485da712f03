"""Sampled rates in the closed loop, for candidates whose clients send at times of their own."""

# Columns and state go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: FBT001, PLR0913, PLR0917

import numpy as np

from kvota.pipeline.kernels.closed_kernels import FREE_MS_MAX, WAIT_MS_MAX
from kvota.pipeline.kernels.compiled_arithmetic import compiled, step
from kvota.pipeline.kernels.counter_steps import Doubles, Flags, Int64s
from kvota.pipeline.kernels.grid_sums import (
    BACKLOG,
    LONG_AGO_MS,
    OWN_CURRENT,
    OWN_FREE_MS,
    OWN_RECORD_MS,
    OWN_SLOTS,
    SUMS,
    VALUE,
    limit_of,
    note_each,
    note_each_delay,
    set_limits,
)

# Of a request that is measured by nobody, as it gives back.
NO_RATE = -1.0

# Of a sample that has not begun; later than every time.
_NOT_YET_MS = 2.0**61

# So many candidates go through side by side, each in a lane. The compiler knows the number, and so that no two rows
# of lanes overlap; it takes eight lanes at once, where the processor can.
LANES = 32
_LANES_AT_ONCE = 8

# Rows of ``lanes``.
(_FREE, _RECORD, _CURRENT, _SLOTS, _BEGUN, _NEWEST, _SENT, _OLDEST) = range(8)
(_TOTAL, _WINDOW, _THROTTLE, _LIMIT) = range(8, 12)
_LANE_ROWS = 12

# Rows of each slot of ``rings``.
_STARTS, _LASTS, _TOTALS = range(3)
_RING_ROWS = 3

# As doubles, as the times here are.
_LONG_AGO_MS = float(LONG_AGO_MS)
_WAIT_MS_MAX = float(WAIT_MS_MAX)
_FREE_MS_MAX = float(FREE_MS_MAX)
_EXPIRES_MS = float(compiled.COUNTER_EXPIRES_MS)
_INT32_MAX = float(compiled.INT32_MAX)
_HALF = 0.5
_BLOCKED_MS = float(compiled.BLOCKED_THROTTLE_MS)

_BLOCKED_THROTTLE_MS = compiled.BLOCKED_THROTTLE_MS
_is_blocked = compiled.is_blocked
_java_round = compiled.java_round
_rate_per_s = compiled.rate_per_s
_rate_window_ms = compiled.rate_window_ms


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
def _take_over(
    lanes: Doubles,
    rings: Doubles,
    place: int,
    own: Int64s,
    starts: Int64s,
    lasts: Int64s,
    totals: Doubles,
    c: int,
) -> None:
    """Put a candidate into a lane, with the samples that it has."""
    _empty(rings, place)
    for slot in range(own[OWN_SLOTS, c]):
        rings[slot, _STARTS, place] = starts[slot]
        rings[slot, _LASTS, place] = lasts[slot]
        rings[slot, _TOTALS, place] = totals[slot]
    current = own[OWN_CURRENT, c]
    lanes[_FREE, place], lanes[_RECORD, place] = own[OWN_FREE_MS, c], own[OWN_RECORD_MS, c]
    lanes[_CURRENT, place], lanes[_SLOTS, place] = current, own[OWN_SLOTS, c]
    lanes[_BEGUN, place], lanes[_NEWEST, place] = starts[current], totals[current]


@step
def _hand_back(
    lanes: Doubles,
    rings: Doubles,
    place: int,
    own: Int64s,
    starts: Int64s,
    lasts: Int64s,
    totals: Doubles,
    c: int,
) -> None:
    """Keep what a candidate in a lane has: the opposite of ``_take_over``."""
    own[OWN_FREE_MS, c], own[OWN_RECORD_MS, c] = (
        int(lanes[_FREE, place]),
        int(lanes[_RECORD, place]),
    )
    own[OWN_CURRENT, c], own[OWN_SLOTS, c] = int(lanes[_CURRENT, place]), int(lanes[_SLOTS, place])
    for slot in range(own[OWN_SLOTS, c]):
        starts[slot] = int(rings[slot, _STARTS, place])
        lasts[slot] = int(rings[slot, _LASTS, place])
        totals[slot] = rings[slot, _TOTALS, place]


@step
def _empty(rings: Doubles, place: int) -> None:
    """Leave a lane no sample that has begun."""
    for slot in range(rings.shape[0]):
        rings[slot, _STARTS, place] = rings[slot, _LASTS, place] = _NOT_YET_MS
        rings[slot, _TOTALS, place] = 0.0


@step
def _begin(lanes: Doubles, rings: Doubles, place: int) -> None:
    """Begin the counter of a lane with one empty sample, and no others."""
    sent_ms = lanes[_SENT, place]
    _empty(rings, place)
    rings[0, _STARTS, place] = rings[0, _LASTS, place] = lanes[_BEGUN, place] = sent_ms
    lanes[_CURRENT, place], lanes[_SLOTS, place], lanes[_NEWEST, place] = 0.0, 1.0, 0.0


@step
def _give_back(lanes: Doubles, rings: Doubles, place: int, amount: float, length_ms: float) -> None:
    """As of those together: only what is in a sample that is not over yet is taken out of it."""
    sent_ms, slot = lanes[_SENT, place], int(lanes[_CURRENT, place])
    taken = max(amount, -lanes[_NEWEST, place])
    if sent_ms - lanes[_BEGUN, place] < length_ms and taken < 0:
        lanes[_NEWEST, place] += taken
        rings[slot, _TOTALS, place] = lanes[_NEWEST, place]
        rings[slot, _LASTS, place] = lanes[_RECORD, place] = sent_ms


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
    limits: Doubles,  # scratch, a place per candidate
    sums: Doubles,
) -> None:
    """Replay rows for at most ``LANES`` candidates by themselves.

    Their requests come at times of their own, so that most begin a sample or see one expire: nothing is worth keeping
    from one to the next, and every request goes the same way. So the compiler can take many candidates at once: times
    are doubles, which hold them to the ms, and a loop over lanes loads before it chooses, as it would not take one
    that loads in a branch. Lanes behind the last candidate have no limit, and what comes out of them is not looked at.
    """
    first, active, used = leaves_at[apart[0]], 0, 0
    slots_used = 0  # others may have had far more samples
    for row in range(first, len(ts_us)):
        slots_used = max(slots_used, samples[row] + 1)
    for c in apart:
        slots_used = max(slots_used, own[OWN_SLOTS, c])
    rings = np.zeros((slots_used, _RING_ROWS, LANES))
    lanes, sums_here = np.zeros((_LANE_ROWS, LANES)), np.zeros((SUMS, LANES))
    free, record, current, slots = lanes[_FREE], lanes[_RECORD], lanes[_CURRENT], lanes[_SLOTS]
    begun, newest, sent, oldest = lanes[_BEGUN], lanes[_NEWEST], lanes[_SENT], lanes[_OLDEST]
    total, window = lanes[_TOTAL], lanes[_WINDOW]
    throttle, limit_here = lanes[_THROTTLE], lanes[_LIMIT]
    limit_here[:] = np.inf
    if first:
        width, length_ms = samples[first - 1], sample_ms[first - 1]
    for row in range(first, len(ts_us)):
        if row == first or (relative and limit[row] != limit[row - 1]):
            set_limits(limits, quotas, limit[row], relative)
            for place in range(active):
                limit_here[place] = limits[apart[place]]
        while active < len(apart) and leaves_at[apart[active]] <= row:
            c = apart[active]
            _take_over(
                lanes,
                rings,
                active,
                own,
                kept_starts[c + 1],
                kept_lasts[c + 1],
                kept_totals[c + 1],
                c,
            )
            limit_here[active] = limits[c]
            sums_here[:VALUE, active] = sums[:VALUE, c]
            active += 1
            used = -(-active // _LANES_AT_ONCE) * _LANES_AT_ONCE
        if samples[row] != width or sample_ms[row] != length_ms:
            width, length_ms = samples[row], sample_ms[row]
            record[:] = _LONG_AGO_MS
        now_ms, amount = float(ts_us[row] // 1000), value[row]
        each_ms, full_ms = float(length_ms), float(width * length_ms)
        if mode == BACKLOG:
            for place in range(used):
                sent[place] = max(now_ms, free[place])
        else:
            for place in range(used):
                sent[place] = now_ms + free[place]
        expired = 0
        for place in range(used):
            expired += 1 if sent[place] - record[place] > _EXPIRES_MS else 0
        if expired:
            for place in range(used):
                if sent[place] - record[place] > _EXPIRES_MS:
                    _begin(lanes, rings, place)
        if amount < 0:
            for place in range(active):
                _give_back(lanes, rings, place, amount, each_ms)
                free[place] = sent[place] if mode == BACKLOG else free[place]
            continue
        for place in range(used):
            is_over = sent[place] - begun[place] >= each_ms
            after = 0.0 if current[place] >= width else current[place] + 1.0
            current[place] = after if is_over else current[place]
            newest[place] = (0.0 if is_over else newest[place]) + amount
            begun[place] = sent[place] if is_over else begun[place]
        for place in range(used):
            slots[place] = max(slots[place], current[place] + 1.0)
            record[place] = sent[place]
            # Not the time that it is: where the clock went back, all may start later.
            oldest[place], total[place] = _NOT_YET_MS, 0.0
        for slot in range(width + 1):
            number = float(slot)
            starts, lasts, totals = rings[slot, _STARTS], rings[slot, _LASTS], rings[slot, _TOTALS]
            for place in range(used):
                is_current, now = current[place] == number, sent[place]
                start, last, held = starts[place], lasts[place], totals[place]
                start_now, held_now, before = begun[place], newest[place], total[place]
                start = start_now if is_current else start
                last = now if is_current else last
                held = held_now if is_current else held
                is_expired = now - last >= full_ms
                start = now if is_expired else start
                held = 0.0 if is_expired else held
                starts[place], totals[place] = start, held
                lasts[place] = now if is_expired else last
                oldest[place] = min(oldest[place], start)
                total[place] = before + held
        if full_ms <= 0:  # the current sample expired as well
            begun[:], newest[:] = sent, 0.0
        least_ms, unusual = float((width - 1) * length_ms), 0
        for place in range(used):
            elapsed_ms = sent[place] - oldest[place]
            unusual += 0 if 0 <= elapsed_ms < _INT32_MAX else 1
            rest_ms = elapsed_ms - np.floor(elapsed_ms / each_ms) * each_ms
            window[place] = least_ms + rest_ms if elapsed_ms < least_ms else max(elapsed_ms, 1.0)
        if unusual:
            for place in range(active):
                oldest_ms, sent_ms = int(oldest[place]), int(sent[place])
                window[place] = _rate_window_ms(oldest_ms, sent_ms, width, length_ms)
        longest_ms = min(each_ms, _WAIT_MS_MAX) if brief else _WAIT_MS_MAX
        for place in range(used):
            bound, window_ms = limit_here[place], window[place]
            rate = _rate_per_s(total[place], window_ms)
            over = max(0.0, rate - bound)
            exact_ms = min(over / bound * window_ms, longest_ms)
            below_ms = np.floor(exact_ms)
            wait_ms = below_ms + 1.0 if exact_ms - below_ms >= _HALF else below_ms
            wait_ms = wait_ms if exact_ms > 0 else 0.0  # NaN neither
            throttle[place] = _BLOCKED_MS if _is_blocked(bound, floor) else wait_ms
        for place in range(used):
            since_ms = sent[place] if mode == BACKLOG else free[place]
            free[place] = min(since_ms + throttle[place], _FREE_MS_MAX)
        if counts[row]:
            note_each(sums_here, sent[:used], throttle[:used], amount)
            note_each_delay(sums_here, sent[:used], now_ms)
    for place in range(active):
        c = apart[place]
        _hand_back(
            lanes, rings, place, own, kept_starts[c + 1], kept_lasts[c + 1], kept_totals[c + 1], c
        )
        sums[:VALUE, c] = sums_here[:VALUE, place]
