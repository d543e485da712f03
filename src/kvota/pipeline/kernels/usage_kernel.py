"""Turns sums of seconds into windows with exact quantiles."""

import numpy as np

from kvota.pipeline.kernels.compiled_arithmetic import kernel, step
from kvota.pipeline.kernels.counter_steps import Doubles, Int64s

# Columns and results go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: PLR0913, PLR0917

# Rows of ``rates``, a column per window.
MEAN, P50, P95, P99, MOST, MOST_10S, VALUE, LIMIT_SHARE = range(8)
RATES = 8

_SPAN_10_S = 10


@step
def _quantile(ordered: Doubles, quiet: int, share: float) -> float:
    """Return the nearest rank among the sorted busy seconds and ``quiet`` zeros."""
    below = 0
    while below < len(ordered) and ordered[below] < 0:
        below += 1
    rank = int(np.ceil(share * (len(ordered) + quiet)))
    place = max(rank, 1) - 1
    found: float = 0.0
    if place < below:
        found = ordered[place]
    elif place >= below + quiet:
        found = ordered[place - quiet]
    return found


@step
def _most_of_10_s(
    seconds: Int64s, values: Doubles, limits: Doubles, key_row: int, row: int, end: int
) -> tuple[float, float]:
    """Return the largest mean of ten seconds that end in these rows, and the largest share of the limit in so many.

    They may begin before these rows. Each second is measured by its own limit: who kept a limit that was lowered
    within these seconds is not beyond it. Without any limit the share is NaN.
    """
    most, most_share, has_limit = 0.0, 0.0, False
    changes = False
    for place in range(max(key_row, row - _SPAN_10_S), end):
        changes = changes or limits[place] != limits[row]
    if not changes:
        for place in range(row, end):
            running = 0.0
            back = place
            while back >= key_row and seconds[back] > seconds[place] - _SPAN_10_S:
                running += values[back]
                back -= 1
            most = max(most, running / _SPAN_10_S)
        return most, most / limits[row] if limits[row] < np.inf else np.nan
    for place in range(row, end):
        has_limit = has_limit or limits[place] < np.inf
        running = 0.0
        share = under_limit = 0.0  # of seconds with the same limit, which are divided by it at once
        limit = limits[place]
        back = place
        while back >= key_row and seconds[back] > seconds[place] - _SPAN_10_S:
            if limits[back] != limit:
                share += under_limit / _SPAN_10_S / limit
                under_limit, limit = 0.0, limits[back]
            running += values[back]
            under_limit += values[back]
            back -= 1
        most = max(most, running / _SPAN_10_S)
        most_share = max(most_share, share + under_limit / _SPAN_10_S / limit)
    return most, most_share if has_limit else np.nan


@kernel
def usage_windows(
    ids: Int64s,  # sorted by id, then second
    seconds: Int64s,
    values: Doubles,  # what was used in that second
    limits: Doubles,  # the largest one in that second; infinite: none
    ordered: Doubles,  # the values, sorted within id and window
    from_s: Int64s,  # where windows begin to be counted
    window_s: Int64s,
    first_rows: Int64s,  # out: where each window's rows begin; one place more than rows
    starts_s: Int64s,  # out
    rates: Doubles,  # out
) -> int:
    """Fill one column per window and return how many there are; quiet seconds are zeros."""
    count = 0
    row = 0
    key_row = 0
    while row < len(ids):
        if ids[row] != ids[key_row]:
            key_row = row
        length_s = window_s[row]
        start_s = from_s[row] + (seconds[row] - from_s[row]) // length_s * length_s
        end = row
        while end < len(ids) and ids[end] == ids[row] and seconds[end] < start_s + length_s:
            end += 1
        busy = ordered[row:end]
        quiet = max(length_s - (end - row), 0)
        total = 0.0
        for place in range(row, end):
            total += values[place]
        rates[VALUE, count] = total
        rates[MEAN, count] = total / length_s
        rates[P50, count] = _quantile(busy, quiet, 0.5)
        rates[P95, count] = _quantile(busy, quiet, 0.95)
        rates[P99, count] = _quantile(busy, quiet, 0.99)
        rates[MOST, count] = _quantile(busy, quiet, 1.0)
        most, share = _most_of_10_s(seconds, values, limits, key_row, row, end)
        rates[MOST_10S, count] = most
        rates[LIMIT_SHARE, count] = share
        first_rows[count] = row
        starts_s[count] = start_s
        count += 1
        row = end
    first_rows[count] = len(ids)
    return count


@kernel
def order_windows(
    ids: Int64s,  # sorted by id, then second
    seconds: Int64s,
    values: Doubles,
    from_s: int,
    window_s: int,
    ordered: Doubles,  # out: the values, sorted within each id and window
) -> None:
    """Sort the values of each window."""
    row = 0
    while row < len(ids):
        end_s = from_s + ((seconds[row] - from_s) // window_s + 1) * window_s
        end = row
        while end < len(ids) and ids[end] == ids[row] and seconds[end] < end_s:
            end += 1
        ordered[row:end] = np.sort(values[row:end])
        row = end
