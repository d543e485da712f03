"""Turns sums of seconds into windows with exact quantiles."""

import numpy as np

from kvota.model.decision_sink import REJECTED, THROTTLED
from kvota.pipeline.kernels.compiled_arithmetic import kernel, step
from kvota.pipeline.kernels.counter_steps import Doubles, Flags, Int64s

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


# What is summed of a second: rows of ``sums``.
OWNER, SECOND, EVENTS, THROTTLED_ROWS, REJECTED_ROWS, TOLD_MS, IS_ENFORCED, IS_CENSORED = range(8)
LIMIT_BINDS, HAS_OTHER_TAGS, FURTHER, HELD_MS = 8, 9, 10, 11
SUMS = 12
# … where ``FURTHER`` counts decisions that are no events, and ``HELD_MS`` is the longest time for which somebody was really held back; and of ``used``. ``LARGEST`` is the largest of the counter's own limits in that second, infinite where it had none.
USED, LIMIT, LARGEST = range(3)
USED_ROWS = 3


@kernel
def sum_seconds(  # noqa: C901, PLR0912, PLR0915  (one pass over columns)
    starts: Int64s,  # where each counter's rows start, and the end
    is_fetch: Flags,  # of each counter
    is_produce: Flags,
    ts_us: Int64s,  # never going back within a counter
    value: Doubles,
    limit: Doubles,
    outcome: Int64s,
    enforced: Flags,
    limit_binds: Flags,
    has_other_tags: Flags,
    throttle_ms: Int64s,
    upstream_ms: Int64s,
    before: int,  # so many columns are filled: what the first counter did so far
    sums: Int64s,  # in and out: a column per second
    used: Doubles,  # in and out: a column per second
) -> int:
    """Sum up what each counter did in each second, and return how many columns are filled.

    A request that waited is in the record twice: when its wait began, and where it went on. The second row of a
    Produce says that it was throttled; that of a Fetch may come when there is room, or be a wait once more. So what
    was decided counts beside what was answered: no share of decisions is above 1.
    """
    count = before
    for counter in range(len(starts) - 1):
        is_begun = counter == 0 and before > 0
        for row in range(starts[counter], starts[counter + 1]):
            second = ts_us[row] // 1_000_000
            if not is_begun or sums[SECOND, count - 1] != second:
                is_begun = True
                sums[:, count] = 0
                used[:, count] = 0.0
                sums[OWNER, count] = counter
                sums[SECOND, count] = second
                count += 1
            at = count - 1
            was_rejected = outcome[row] == REJECTED
            waits_for_room = was_rejected and is_fetch[counter]
            waits_for_turn = was_rejected and is_produce[counter] and enforced[row]
            throttled = waits_for_room or outcome[row] == THROTTLED
            if not (was_rejected and enforced[row]):
                used[USED, at] += value[row]
            is_event = value[row] >= 0 and not waits_for_room and not waits_for_turn
            is_refused = was_rejected and not waits_for_room and not waits_for_turn
            if is_event:
                sums[EVENTS, at] += 1
            elif throttled or is_refused:
                sums[FURTHER, at] += 1
            if throttled:
                sums[THROTTLED_ROWS, at] += 1
            if is_refused:
                sums[REJECTED_ROWS, at] += 1
            if not waits_for_turn:
                sums[TOLD_MS, at] += max(0, throttle_ms[row])
            if enforced[row]:
                sums[IS_ENFORCED, at] = 1
            if upstream_ms[row] > 0 or (enforced[row] and (was_rejected or throttled)):
                sums[IS_CENSORED, at] = 1
                held_ms = max(upstream_ms[row], throttle_ms[row] if enforced[row] else 0)
                sums[HELD_MS, at] = max(sums[HELD_MS, at], held_ms)
            used[LIMIT, at] = limit[row]
            own = limit[row] if limit_binds[row] and limit[row] > 0 else np.inf
            used[LARGEST, at] = max(used[LARGEST, at], own)
            sums[LIMIT_BINDS, at] = limit_binds[row]
            if has_other_tags[row]:
                sums[HAS_OTHER_TAGS, at] = 1
    return count
