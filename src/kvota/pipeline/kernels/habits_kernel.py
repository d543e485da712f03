"""Tells from sums of seconds how each counter is usually used."""

import numpy as np

from kvota.pipeline.kernels.compiled_arithmetic import kernel
from kvota.pipeline.kernels.counter_steps import Doubles, Int64s

# Columns and results go in as arrays, one by one and by position: Numba knows no better way.

# Rows of ``habits``, a column per counter. ``HELD`` is the share of the time in which it sent, or waited to,
# in which it was held back, over the last day with its traffic.
TOTAL, MOST, USUAL, HOURS, HELD = range(5)
HABITS = 5

_DAY_S = 86_400


@kernel
def habits(
    owners: Int64s,  # sorted by owner, then second
    seconds: Int64s,
    used: Doubles,  # in each second
    held_ms: Int64s,  # the longest hold that began in it
    firsts: Int64s,  # out: where each counter's seconds begin
    found: Doubles,  # out: HABITS rows
) -> int:
    """Fill one column per counter and return how many there are."""
    count = 0
    row = 0
    while row < len(owners):
        end = row
        while end < len(owners) and owners[end] == owners[row]:
            end += 1
        total, most = 0.0, 0.0
        minutes = hours = 0
        recent_s = seconds[end - 1] - _DAY_S
        held_s, active_s, held_until, active_until = 0.0, 0.0, 0.0, 0.0
        for place in range(row, end):
            second = seconds[place]
            total += used[place]
            most = max(most, used[place])
            if place == row or second // 60 != seconds[place - 1] // 60:
                minutes += 1
            if place == row or second // 3600 != seconds[place - 1] // 3600:
                hours += 1
            if second > recent_s:
                until = second + held_ms[place] / 1000.0
                held_s += max(0.0, until - max(float(second), held_until))
                held_until = max(held_until, until)
                until = max(until, second + 1.0)
                active_s += max(0.0, until - max(float(second), active_until))
                active_until = max(active_until, until)
        # The median of all seconds of minutes in which it did something, nearest rank; quiet ones are zeros.
        quiet = minutes * 60 - (end - row)
        place = (minutes * 60 + 1) // 2 - 1 - quiet
        ordered = np.sort(used[row:end])
        firsts[count] = row
        found[TOTAL, count], found[MOST, count] = total, most
        found[USUAL, count] = max(0.0, ordered[place]) if place >= 0 else 0.0
        found[HOURS, count] = hours
        found[HELD, count] = held_s / active_s
        count += 1
        row = end
    return count
