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
