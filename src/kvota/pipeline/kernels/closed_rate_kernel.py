"""Sampled rates in the closed loop: a client that must wait sends later, so each candidate may have its own clock.

Candidates whose clients send at the same time have the same samples. So they go *together*, on one row of samples,
until the first throttle of one delays its client's next request; from there on this candidate goes *apart*, with
samples of its own. Those that never throttled anybody have even the same sums, kept once for all of them: a
request that no candidate throttles costs the same, however many there are.
"""

# Columns and state go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: FBT001, PLR0913, PLR0917

import numpy as np

from kvota.pipeline.kernels.apart_kernel import LANES, NO_RATE, replay_apart, set_bars, throttle_of
from kvota.pipeline.kernels.closed_kernels import (
    arrived,
    free_again_ms,
    note_delay,
    sent_ms_of,
)
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
    FREE_MS,
    LONG_AGO_MS,
    OWN_CURRENT,
    OWN_FREE_MS,
    OWN_PATH,
    OWN_RECORD_MS,
    OWN_SLOTS,
    RECORD_MS,
    SAMPLE_MS,
    SAMPLES,
    SLOTS,
    SUMS,
    VALUE,
    note,
)

# A candidate's way: on the samples and sums of all, on the samples of all, or for itself.
TOGETHER, OWN_SUMS, APART = range(3)

# Places in ``steady``: what ``steady_rate`` returns.
_STEADY_MS, _OLDEST_MS = range(2)
_STEADY_SIZE = 2

_sample_complete = compiled.sample_complete
_rate_per_s = compiled.rate_per_s
_rate_window_ms = compiled.rate_window_ms
_counter_expired = compiled.counter_expired


@step
def _measured(
    starts: Int64s,
    lasts: Int64s,
    totals: Doubles,
    places: Int64s,  # in and out: current and slots, at ``CURRENT`` and ``SLOTS``; when last recorded
    steady: Int64s,  # _STEADY_SIZE
    befores: Doubles,  # the one number more
    sent_ms: int,
    amount: float,
    samples: int,
    sample_ms: int,
) -> tuple[float, int]:
    """Record a request; return the rate (below 0: nobody measures) and the window."""
    current, slots = places[CURRENT], places[SLOTS]
    is_over = _sample_complete(starts[current], sent_ms, sample_ms)
    is_given_back = amount < 0
    if is_given_back:
        # Both rows come later here. What is given back must not outlive its charge: only what is in a
        # sample that is not over yet is taken out of it.
        if is_over:
            return NO_RATE, 0
        amount = max(amount, -totals[current])
        if amount >= 0:
            return NO_RATE, 0
    places[RECORD_MS] = sent_ms
    if not is_over:
        if steady[_STEADY_MS] == UNSTEADY_MS:
            steady[_STEADY_MS], steady[_OLDEST_MS], befores[0] = steady_rate(
                starts, lasts, totals, current, slots, samples, sample_ms
            )
        if sent_ms < steady[_STEADY_MS]:
            totals[current] += amount
            lasts[current] = sent_ms
            if is_given_back:
                return NO_RATE, 0
            total = sum_from(totals, befores[0], current, slots)
            window_ms = _rate_window_ms(steady[_OLDEST_MS], sent_ms, samples, sample_ms)
            return _rate_per_s(total, window_ms), window_ms
    steady[_STEADY_MS] = UNSTEADY_MS
    current, slots = record_rate(
        starts, lasts, totals, current, slots, amount, sent_ms, samples, sample_ms
    )
    places[CURRENT], places[SLOTS] = current, slots
    if is_given_back:
        return NO_RATE, 0
    total, window_ms = measure_rate(starts, lasts, totals, slots, sent_ms, samples, sample_ms)
    return _rate_per_s(total, window_ms), window_ms


@step
def _begin_samples(
    starts: Int64s, lasts: Int64s, totals: Doubles, places: Int64s, steady: Int64s, sent_ms: int
) -> None:
    places[CURRENT], places[SLOTS] = 0, 1
    begin_rate(starts, lasts, totals, sent_ms)
    steady[_STEADY_MS] = UNSTEADY_MS


@step
def _least_bar(bars: Doubles, own: Int64s) -> float:
    """Return the rate up to which no candidate of those together throttles."""
    least = np.inf
    for c in range(len(bars)):
        if own[OWN_PATH, c] == TOGETHER:
            least = min(least, bars[c])
    return least


@kernel
def closed_rate_rows(  # noqa: C901, PLR0912, PLR0915  (one pass over columns)
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
    mode: int,
    clock: Int64s,
    own: Int64s,
    starts: Int64s,  # a row of samples for those together, then one per candidate
    lasts: Int64s,
    totals: Doubles,
    sums: Doubles,
) -> None:
    """Replay a sampled rate in a closed loop."""
    rows, count = len(ts_us), len(quotas)
    before_width, before_ms = clock[SAMPLES], clock[SAMPLE_MS]
    counts = arrived(clock, sums, ts_us, value, samples, sample_ms, complete)
    steady, befores = np.empty(_STEADY_SIZE, np.int64), np.empty(1)
    limits, bars, blocked = np.empty(count), np.empty(count), np.empty(count, np.bool_)
    common = np.zeros((SUMS, 1))  # the sums of those together
    leaves_at = np.zeros(count, np.int64)  # the first row that a candidate takes for itself
    here = np.empty(count, np.int64)  # those with sums of their own on the samples of all
    apart = np.empty(count, np.int64)  # those for themselves, in the order in which they left
    here_count, apart_count, together = 0, 0, 0
    for c in range(count):
        if own[OWN_PATH, c] == TOGETHER:
            together += 1
            common[:VALUE, 0] = sums[:VALUE, c]
        elif own[OWN_PATH, c] == OWN_SUMS:
            here[here_count] = c
            here_count += 1
        else:
            apart[apart_count] = c
            apart_count += 1
    steady[_STEADY_MS] = UNSTEADY_MS
    width, length_ms = before_width, before_ms
    least = 0.0
    of_all, lasts_of_all, totals_of_all = starts[0], lasts[0], totals[0]
    for row in range(rows):
        if together + here_count == 0:
            break
        now_ms, amount = ts_us[row] // 1000, value[row]
        sent_ms = sent_ms_of(clock[FREE_MS], now_ms, mode)
        place = 0
        while place < here_count:
            c = here[place]
            if sent_ms_of(own[OWN_FREE_MS, c], now_ms, mode) == sent_ms:
                place += 1
                continue
            own[OWN_PATH, c] = APART
            own[OWN_CURRENT, c], own[OWN_SLOTS, c] = clock[CURRENT], clock[SLOTS]
            own[OWN_RECORD_MS, c] = clock[RECORD_MS]
            starts[c + 1], lasts[c + 1], totals[c + 1] = starts[0], lasts[0], totals[0]
            leaves_at[c] = row
            apart[apart_count] = c
            apart_count += 1
            here_count -= 1
            here[place] = here[here_count]
        if row == 0 or (relative and limit[row] != limit[row - 1]):
            set_bars(bars, limits, blocked, quotas, limit[row], relative, floor)
            least = _least_bar(bars, own)
        if samples[row] != width or sample_ms[row] != length_ms:
            width, length_ms = samples[row], sample_ms[row]
            clock[RECORD_MS] = LONG_AGO_MS
        if _counter_expired(clock[RECORD_MS], sent_ms):
            _begin_samples(of_all, lasts_of_all, totals_of_all, clock, steady, sent_ms)
        rate, window_ms = _measured(
            of_all,
            lasts_of_all,
            totals_of_all,
            clock,
            steady,
            befores,
            sent_ms,
            amount,
            width,
            length_ms,
        )
        for place in range(here_count):
            c = here[place]
            throttle_ms = throttle_of(rate, window_ms, limits[c], blocked[c], brief, length_ms)
            own[OWN_FREE_MS, c] = free_again_ms(own[OWN_FREE_MS, c], sent_ms, throttle_ms, mode)
            if counts[row]:
                note(sums, c, sent_ms, float(throttle_ms), amount)
                note_delay(sums, c, 0, sent_ms - now_ms)
        if together and not rate <= least:
            for c in range(count):
                if own[OWN_PATH, c] != TOGETHER:
                    continue
                throttle_ms = throttle_of(rate, window_ms, limits[c], blocked[c], brief, length_ms)
                if throttle_ms == 0:
                    continue
                own[OWN_PATH, c] = OWN_SUMS
                together -= 1
                here[here_count] = c
                here_count += 1
                own[OWN_FREE_MS, c] = free_again_ms(clock[FREE_MS], sent_ms, throttle_ms, mode)
                sums[:VALUE, c] = common[:VALUE, 0]
                if counts[row]:
                    note(sums, c, sent_ms, float(throttle_ms), amount)
                    note_delay(sums, c, 0, sent_ms - now_ms)
            least = _least_bar(bars, own)
        clock[FREE_MS] = free_again_ms(clock[FREE_MS], sent_ms, 0, mode)
        if together and counts[row]:
            note(common, 0, sent_ms, 0.0, amount)
            note_delay(common, 0, 0, sent_ms - now_ms)
    for c in range(count):
        if own[OWN_PATH, c] == TOGETHER:
            sums[:VALUE, c] = common[:VALUE, 0]
            own[OWN_FREE_MS, c] = clock[FREE_MS]
    for begin in range(0, apart_count, LANES):
        replay_apart(
            apart[begin : min(begin + LANES, apart_count)],
            leaves_at,
            before_width,
            before_ms,
            counts,
            ts_us,
            value,
            limit,
            samples,
            sample_ms,
            quotas,
            relative,
            floor,
            brief,
            mode,
            own,
            starts,
            lasts,
            totals,
            limits,
            sums,
        )
