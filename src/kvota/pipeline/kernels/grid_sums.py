"""What all replay kernels share: the places in their arrays, and what is noted of each request."""

# Columns and state go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: FBT001

import numpy as np

from kvota.pipeline.kernels.compiled_arithmetic import compiled, step
from kvota.pipeline.kernels.counter_steps import Doubles, Int64s

# Places in ``clock``, which all candidates share.
CURRENT, SLOTS, SAMPLES, SAMPLE_MS, TOUCHED_MS, RECORD_MS, FIRST_MS, JUDGED_MS, EVENTS = range(9)
# When those clients can send that no candidate has throttled.
FREE_MS = 9
CLOCK_SIZE = 10

# Rows of ``sums``, a column per candidate. Throttled time is counted up to COVERED_MS. VALUE is the
# sum of all recorded values; it is the same for all candidates, so only its first column is used.
(OVER, THROTTLE_MS, THROTTLED_MS, WORST_MS, WITHIN, REJECTED, DELAY_MS, DELAY_MS_MAX) = range(8)
END_MS, COVERED_MS, VALUE = 8, 9, 10
SUMS = 11

# Rows of ``own``, a column per candidate: in a closed loop each candidate has its own clock.
OWN_FREE_MS, OWN_TOUCHED_MS, OWN_RECORD_MS, OWN_CURRENT, OWN_SLOTS, OWN_PATH = range(6)
OWN_ROWS = 6

OPEN, BACKLOG, THINK = 0, 1, 2

# Long before every recorded time, so that a counter that never recorded is an expired one.
LONG_AGO_MS = -(2**61)

_UNLIMITED = compiled.UNLIMITED


@step
def arrive(
    clock: Int64s,
    sums: Doubles,
    now_ms: int,
    value: float,
    window_ms: int,
    is_complete: bool,
) -> bool:
    """Sum up a request that came; return whether it counts: neither warm-up nor a give-back."""
    if clock[FIRST_MS] == LONG_AGO_MS:
        clock[FIRST_MS] = now_ms
        clock[JUDGED_MS] = now_ms if is_complete else now_ms + window_ms
    if now_ms >= clock[JUDGED_MS]:
        sums[VALUE, 0] += value
    if value < 0 or now_ms < clock[JUDGED_MS]:
        return False
    clock[EVENTS] += 1
    return True


@step
def limit_of(quota: float, bound: float, relative: bool) -> float:
    """Return a candidate's limit for rows whose recorded limit is ``bound`` (NaN: none)."""
    factor = 1.0
    if relative:
        factor = _UNLIMITED if np.isnan(bound) else bound
    return quota * factor


@step
def set_limits(limits: Doubles, quotas: Doubles, bound: float, relative: bool) -> None:
    """Set all candidates' limits."""
    for c in range(len(quotas)):
        limits[c] = limit_of(quotas[c], bound, relative)


@step
def note(sums: Doubles, c: int, now_ms: int, throttle_ms: float, value: float) -> None:
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


@step
def note_all(sums: Doubles, throttles_ms: Doubles, now_ms: int, value: float) -> None:
    """Add one judged request for every candidate, as ``note`` does for one.

    Loop by loop over few rows at a time: with more the compiler cannot tell that they do not overlap,
    and takes the candidates one by one.
    """
    now = float(now_ms)
    for c in range(len(throttles_ms)):
        is_over = throttles_ms[c] > 0
        sums[OVER, c] += 1.0 if is_over else 0.0
        sums[WITHIN, c] += 0.0 if is_over else value
    for c in range(len(throttles_ms)):
        sums[THROTTLE_MS, c] += throttles_ms[c]
        sums[WORST_MS, c] = max(sums[WORST_MS, c], throttles_ms[c])
    for c in range(len(throttles_ms)):
        end_ms = now + throttles_ms[c]
        sums[THROTTLED_MS, c] += max(0.0, end_ms - max(now, sums[COVERED_MS, c]))
        sums[COVERED_MS, c] = max(sums[COVERED_MS, c], end_ms)
        sums[END_MS, c] = now


@step
def note_each(sums: Doubles, sent_ms: Doubles, throttles_ms: Doubles, value: float) -> None:
    """Add one judged request, which every candidate's client sent at a time of its own, as ``note`` does for one.

    Its first loops are those of ``note_all``: a step for both would take a sixth more time of an open replay.
    """
    for c in range(len(throttles_ms)):
        is_over = throttles_ms[c] > 0
        sums[OVER, c] += 1.0 if is_over else 0.0
        sums[WITHIN, c] += 0.0 if is_over else value
    for c in range(len(throttles_ms)):
        sums[THROTTLE_MS, c] += throttles_ms[c]
        sums[WORST_MS, c] = max(sums[WORST_MS, c], throttles_ms[c])
    for c in range(len(throttles_ms)):
        end_ms = sent_ms[c] + throttles_ms[c]
        sums[THROTTLED_MS, c] += max(0.0, end_ms - max(sent_ms[c], sums[COVERED_MS, c]))
        sums[COVERED_MS, c] = max(sums[COVERED_MS, c], end_ms)
        sums[END_MS, c] = sent_ms[c]


@step
def note_each_wait(sums: Doubles, waits_ms: Doubles) -> None:
    """Add for every candidate whether its client had to wait for its turn."""
    for c in range(len(waits_ms)):
        sums[REJECTED, c] += 1.0 if waits_ms[c] > 0 else 0.0


@step
def note_each_delay(sums: Doubles, admitted_ms: Doubles, now_ms: float) -> None:
    """Add for every candidate how much later than at ``now_ms`` the request was admitted."""
    for c in range(len(admitted_ms)):
        delay_ms = admitted_ms[c] - now_ms
        sums[DELAY_MS, c] += delay_ms
        sums[DELAY_MS_MAX, c] = max(sums[DELAY_MS_MAX, c], delay_ms)


@step
def note_refused(sums: Doubles, rejected: Doubles) -> None:
    """Add, for every candidate, 1 where the request was refused, and 0 where it was not."""
    for c in range(len(rejected)):
        sums[REJECTED, c] += rejected[c]


@step
def note_none_over(sums: Doubles, now_ms: int, value: float) -> None:
    """Add one judged request that is within every candidate: ``note_all`` with throttles of 0."""
    now = float(now_ms)
    for c in range(sums.shape[1]):
        sums[WITHIN, c] += value
        sums[COVERED_MS, c] = max(sums[COVERED_MS, c], now)
        sums[END_MS, c] = now
