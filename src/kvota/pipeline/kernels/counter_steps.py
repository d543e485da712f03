"""The steps that both kinds of kernel take for one counter, as in ``kvota.engine.arithmetic``.

They are small functions over the arrays of one counter; Numba compiles them into the kernels.
"""

# Columns and state go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: PLR0913, PLR0917

import numpy as np
import numpy.typing as npt

from kvota.pipeline.kernels.compiled_arithmetic import compiled, step

Int64s = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_sample_complete = compiled.sample_complete
_sample_expired = compiled.sample_expired
_next_slot = compiled.next_slot
_rate_window_ms = compiled.rate_window_ms


@step
def begin_rate(starts: Int64s, lasts: Int64s, totals: Doubles, now_ms: int) -> None:
    """Begin a new counter with one empty sample, which starts and was last used now."""
    starts[0] = now_ms
    lasts[0] = now_ms
    totals[0] = 0.0


@step
def record_rate(
    starts: Int64s,
    lasts: Int64s,
    totals: Doubles,
    current: int,
    slots: int,
    value: float,
    now_ms: int,
    samples: int,
    sample_ms: int,
) -> tuple[int, int]:
    """Steps 1 and 2: record in the current or the next sample; return current and slots in use."""
    if _sample_complete(starts[current], now_ms, sample_ms):
        current = _next_slot(current, samples)
        if current == slots:
            slots += 1
        starts[current] = now_ms
        totals[current] = 0.0
    totals[current] += value
    lasts[current] = now_ms
    return current, slots


@step
def measure_rate(
    starts: Int64s,
    lasts: Int64s,
    totals: Doubles,
    slots: int,
    now_ms: int,
    samples: int,
    sample_ms: int,
) -> tuple[float, int]:
    """Steps 3 to 5: expired samples start anew; return the sum in slot order and the window."""
    total = 0.0
    oldest_ms = now_ms
    for slot in range(slots):
        if _sample_expired(lasts[slot], now_ms, samples, sample_ms):
            starts[slot] = now_ms
            lasts[slot] = now_ms
            totals[slot] = 0.0
        total += totals[slot]
        if slot == 0 or starts[slot] < oldest_ms:
            oldest_ms = starts[slot]
    return total, _rate_window_ms(oldest_ms, now_ms, samples, sample_ms)


# Long before every recorded time.
UNSTEADY_MS = -(2**61)


@step
def steady_rate(
    starts: Int64s,
    lasts: Int64s,
    totals: Doubles,
    current: int,
    slots: int,
    samples: int,
    sample_ms: int,
) -> tuple[int, int, float]:
    """Return what stays the same after a measure while no sample begins or expires.

    Returns:
        steady_ms: before it no other sample expires; the current one cannot, being used.
        oldest_ms: when the oldest sample starts.
        before: the sum of the samples before the current one.
    """
    window_ms = samples * sample_ms
    steady_ms = 2**61 if window_ms > 0 else UNSTEADY_MS
    oldest_ms = starts[0]
    before = 0.0
    for slot in range(slots):
        oldest_ms = min(oldest_ms, starts[slot])
        if slot < current:
            before += totals[slot]
        if slot != current:
            steady_ms = min(steady_ms, lasts[slot] + window_ms)
    return steady_ms, oldest_ms, before


@step
def sum_from(totals: Doubles, before: float, current: int, slots: int) -> float:
    """Return the sum of all samples in slot order, given that of those before the current one."""
    total = before
    for slot in range(current, slots):
        total += totals[slot]
    return total
