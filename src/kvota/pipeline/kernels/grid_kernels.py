"""Replays many counters in one call; each is replayed by the kernels for one counter.

State that outlives the call is in the arrays passed in: of the counter that runs when the call ends.
"""

# Columns and state go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: FBT001, PLR0913, PLR0917

import numpy as np

from kvota.pipeline.kernels.closed_kernels import bucket_closed_rows, debt_closed_rows
from kvota.pipeline.kernels.closed_rate_kernel import APART, closed_rate_rows
from kvota.pipeline.kernels.compiled_arithmetic import kernel, step
from kvota.pipeline.kernels.counter_steps import Doubles, Flags, Int64s
from kvota.pipeline.kernels.grid_sums import (
    COVERED_MS,
    FIRST_MS,
    LONG_AGO_MS,
    OPEN,
    OWN_PATH,
    OWN_RECORD_MS,
    OWN_ROWS,
    RECORD_MS,
    SUMS,
)
from kvota.pipeline.kernels.open_kernels import bucket_open_rows, debt_open_rows, rate_open_rows

# How a segment is counted.
RATE, BUCKET, DEBT = range(3)

# Places in ``running``: how the last segment was counted, and how many rows the counter has had.
KIND, ROWS = range(2)
RUNNING_SIZE = 2


@step
def _begin(running: Int64s, clock: Int64s, own: Int64s, tokens: Doubles, sums: Doubles) -> None:
    """Begin a counter."""
    running[KIND] = RATE
    running[ROWS] = 0
    clock[:] = 0
    clock[FIRST_MS] = LONG_AGO_MS
    clock[RECORD_MS] = LONG_AGO_MS
    own[:] = 0
    own[OWN_RECORD_MS] = LONG_AGO_MS
    tokens[:] = 0.0
    sums[:] = 0.0
    sums[COVERED_MS] = LONG_AGO_MS


@step
def _begin_otherwise(clock: Int64s, own: Int64s) -> None:
    """Begin a counter under another algorithm: nothing is left but who is free when, and what was noted."""
    clock[RECORD_MS] = LONG_AGO_MS
    own[OWN_RECORD_MS] = LONG_AGO_MS
    own[OWN_PATH] = APART


@step
def _last_limit(limit: Doubles, before: float) -> float:
    """Return the last limit that there was; ``before`` is that of the rows before."""
    place = len(limit) - 1
    while place >= 0 and np.isnan(limit[place]):
        place -= 1
    latest: float = limit[place] if place >= 0 else before
    return latest


@kernel
def replay_segments(  # noqa: C901, PLR0912  (a call for each way of counting)
    counters: Int64s,  # of each segment
    bounds: Int64s,  # where each segment starts, and the end
    kinds: Int64s,
    floors: Doubles,
    debts_max_ms: Doubles,  # infinite: nobody waits for a turn
    briefs: Flags,  # no throttle of a sampled rate is longer than a sample
    is_new: Flags,  # per counter: it begins here
    ts_us: Int64s,
    value: Doubles,
    limit: Doubles,
    samples: Int64s,
    sample_ms: Int64s,
    strict: Flags,
    complete: Flags,
    quotas: Doubles,  # of all counters, one after the other
    first_quotas: Int64s,  # where each counter's candidates start
    counts: Int64s,  # how many each counter has
    relative: bool,
    mode: int,
    running: Int64s,
    clock: Int64s,
    own_of_all: Int64s,  # OWN_ROWS times the most candidates
    tokens_of_all: Doubles,
    worths_of_all: Doubles,
    starts: Int64s,  # a row of samples; in a closed loop one more per candidate
    lasts: Int64s,
    totals: Doubles,
    sums_of_all: Doubles,  # SUMS times the most candidates
    out_first: Int64s,  # where each counter's results start in ``out_sums``
    out_sums: Doubles,  # out: SUMS rows
    out_clock: Int64s,  # out: a row per counter
    out_running: Int64s,  # out: a row per counter
    out_limit: Doubles,  # in and out: of each counter, the last one that there was
) -> None:
    """Replay segments: rows of one counter that are counted in one way; every counter has at least one."""
    for segment in range(len(counters)):
        counter = counters[segment]
        count = counts[counter]
        own = own_of_all[: OWN_ROWS * count].reshape((OWN_ROWS, count))
        sums = sums_of_all[: SUMS * count].reshape((SUMS, count))
        tokens, worths = tokens_of_all[:count], worths_of_all[:count]
        if is_new[counter] and (segment == 0 or counters[segment - 1] != counter):
            _begin(running, clock, own, tokens, sums)
        start, end = bounds[segment], bounds[segment + 1]
        if start < end and count > 0:
            kind = kinds[segment]
            if (kind == DEBT) != (running[KIND] == DEBT):
                _begin_otherwise(clock, own)
            running[KIND] = kind
            running[ROWS] += end - start
            out_limit[counter] = _last_limit(limit[start:end], out_limit[counter])
            own_quotas = quotas[first_quotas[counter] : first_quotas[counter] + count]
            floor, debt_max_ms = floors[segment], debts_max_ms[segment]
            if mode == OPEN and kind == DEBT:
                debt_open_rows(
                    ts_us[start:end],
                    value[start:end],
                    limit[start:end],
                    samples[start:end],
                    sample_ms[start:end],
                    complete[start:end],
                    own_quotas,
                    relative,
                    floor,
                    debt_max_ms,
                    clock,
                    tokens,
                    worths,
                    sums,
                )
            elif mode == OPEN and kind == BUCKET:
                bucket_open_rows(
                    ts_us[start:end],
                    value[start:end],
                    limit[start:end],
                    samples[start:end],
                    sample_ms[start:end],
                    strict[start:end],
                    complete[start:end],
                    own_quotas,
                    relative,
                    floor,
                    clock,
                    tokens,
                    sums,
                )
            elif mode == OPEN:
                rate_open_rows(
                    ts_us[start:end],
                    value[start:end],
                    limit[start:end],
                    samples[start:end],
                    sample_ms[start:end],
                    complete[start:end],
                    own_quotas,
                    relative,
                    floor,
                    briefs[segment],
                    clock,
                    starts[0],
                    lasts[0],
                    totals[0],
                    sums,
                )
            elif kind == DEBT:
                debt_closed_rows(
                    ts_us[start:end],
                    value[start:end],
                    limit[start:end],
                    samples[start:end],
                    sample_ms[start:end],
                    complete[start:end],
                    own_quotas,
                    relative,
                    floor,
                    debt_max_ms,
                    mode,
                    clock,
                    own,
                    tokens,
                    worths,
                    sums,
                )
            elif kind == BUCKET:
                bucket_closed_rows(
                    ts_us[start:end],
                    value[start:end],
                    limit[start:end],
                    samples[start:end],
                    sample_ms[start:end],
                    strict[start:end],
                    complete[start:end],
                    own_quotas,
                    relative,
                    floor,
                    mode,
                    clock,
                    own,
                    tokens,
                    sums,
                )
            else:
                closed_rate_rows(
                    ts_us[start:end],
                    value[start:end],
                    limit[start:end],
                    samples[start:end],
                    sample_ms[start:end],
                    complete[start:end],
                    own_quotas,
                    relative,
                    floor,
                    briefs[segment],
                    mode,
                    clock,
                    own,
                    starts,
                    lasts,
                    totals,
                    sums,
                )
        if segment + 1 == len(counters) or counters[segment + 1] != counter:
            place = out_first[counter]
            out_sums[:, place : place + count] = sums
            out_clock[counter] = clock
            out_running[counter] = running
