"""Sums up charges second by second: first what lies together of a record, then what was summed apart.

What some charges of a counter in one second come to is a *part* of that second. Values that are whole are summed as
whole numbers, and each other value is a part of its own: floating numbers are added in the order of their charges
only when all parts of a second are there. So no bit depends on how a record was cut.
"""

# Columns and results go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: PLR0913, PLR0917

import numpy as np
import numpy.typing as npt

from kvota.pipeline.kernels.compiled_arithmetic import kernel, step
from kvota.pipeline.kernels.counter_steps import Doubles, Int64s

Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int64]
DoubleRows = npt.NDArray[np.float64]

# What a charge does, as ``sum_rows`` is told for each combination of marks.
USES, IS_EVENT, IS_FURTHER, IS_THROTTLED, IS_REJECTED, TELLS, HOLDS = (1 << bit for bit in range(7))

# The columns of a part, numbered in the order of ``chunk_schema.SUMS``; each part is a row of two cache lines, as charges of many counters take turns. In the last one
# is its second.
TS_US, SEQ, RUN, MARKS, CHARGES, EVENTS, FURTHER, THROTTLED, REJECTED, TOLD_MS, HELD_MS, WHOLE = (
    range(12)
)
PART_INTS = 12
OTHER, LIMIT, LARGEST = range(12, 15)  # floating numbers
PART_DOUBLES = 3
_SECOND = 15
PART_WIDTH = 16

# Larger values are parts of their own even where they are whole: 2^27 of those below fit a sum.
_WHOLE_MAX = 2.0**36

# The rows of sums of whole seconds, a column per second.
(
    OF_OWNER,
    OF_SECOND,
    OF_MARKS,
    OF_EVENTS,
    OF_FURTHER,
    OF_THROTTLED,
    OF_REJECTED,
    OF_TOLD_MS,
    OF_HELD_MS,
    OF_WHOLE,
) = range(10)
SECOND_INTS = 10

# Those that are floating: the sum of all values that are not whole, and as of parts.
OF_OTHER, OF_LIMIT, OF_LARGEST = range(3)
SECOND_DOUBLES = 3


@step
def _comes_last(part: Int64s, at_us: int, rank: int, seq: int) -> bool:
    """Return whether a charge comes behind all those of a part so far."""
    if at_us != part[TS_US]:
        last: bool = at_us > part[TS_US]
    elif rank != part[RUN]:
        last = rank > part[RUN]
    else:
        last = seq >= part[SEQ]
    return last


@kernel
def sum_rows(  # noqa: PLR0912, PLR0915  (one pass over columns)
    owners: Int64s,  # the counter of each row
    kinds: Int64s,  # of each counter: where it begins in ``does``
    does: Bytes,  # of each mark, twice: of values below zero, or none, and of others
    ts_us: Int64s,  # in any order; the fewer parts the more rows of a second lie together
    seq: Int64s,
    value: Doubles,
    run: Int64s,  # of each row, or one for all; so are the next ones
    run_step: int,  # 1, or 0
    marks: Int64s,
    marks_step: int,
    throttle_ms: Int64s,
    throttle_step: int,
    upstream_ms: Int64s,
    upstream_step: int,
    limit: Doubles,
    limit_step: int,
    binds: int,  # the mark of a limit that is the counter's own
    enforced: int,  # the mark of a charge that was enforced
    censored: int,  # the mark for a part
    of_any: int,  # marks that a part has if any charge has them
    current: Int64s,  # of each counter, all -1: its part that may go on
    owner_of: Int64s,  # out: the counter of each part; at least as many places as there are charges
    ints: Rows,  # out: PART_WIDTH columns, as many rows
    doubles: DoubleRows,  # the same memory
) -> int:
    """Fill one row per part and return how many there are; those of a counter are nearly in order."""
    count = 0
    for row in range(len(owners)):
        owner = owners[row]
        at_us = ts_us[row]
        second = at_us // 1_000_000
        amount = value[row]
        mark = marks[row * marks_step]
        did = does[kinds[owner] + 2 * mark + (amount >= 0)]
        whole = 0
        is_whole = True
        if did & USES:
            if -_WHOLE_MAX <= amount <= _WHOLE_MAX:  # nor is NaN
                whole = int(amount)
                is_whole = float(whole) == amount
            else:
                is_whole = False
        part = current[owner]
        if not is_whole or part < 0 or ints[part, _SECOND] != second:
            part = count
            count += 1
            ints[part, :] = 0
            owner_of[part] = owner
            ints[part, _SECOND] = second
            ints[part, TS_US] = at_us
            ints[part, SEQ] = -(2**63)
            ints[part, RUN] = -1
            doubles[part, OTHER] = 0.0
            doubles[part, LARGEST] = 0.0
            if is_whole:
                current[owner] = part
            else:
                whole = 0
                doubles[part, OTHER] = amount
        ints[part, CHARGES] += 1
        ints[part, WHOLE] += whole
        ints[part, EVENTS] += (did & IS_EVENT) != 0
        ints[part, FURTHER] += (did & IS_FURTHER) != 0
        ints[part, THROTTLED] += (did & IS_THROTTLED) != 0
        ints[part, REJECTED] += (did & IS_REJECTED) != 0
        told_ms = throttle_ms[row * throttle_step]
        if did & TELLS:
            ints[part, TOLD_MS] += max(0, told_ms)
        held_ms = upstream_ms[row * upstream_step]
        if held_ms > 0 or did & HOLDS:
            if mark & enforced:
                held_ms = max(held_ms, told_ms)
            ints[part, HELD_MS] = max(ints[part, HELD_MS], held_ms)
            ints[part, MARKS] |= censored
        most = limit[row * limit_step]
        own = most if mark & binds and most > 0 else np.inf
        doubles[part, LARGEST] = max(doubles[part, LARGEST], own)
        rank = run[row * run_step]
        if _comes_last(ints[part], at_us, rank, seq[row]):
            ints[part, TS_US], ints[part, RUN], ints[part, SEQ] = at_us, rank, seq[row]
            ints[part, MARKS] = (ints[part, MARKS] & of_any) | mark
            doubles[part, LIMIT] = most
        else:
            ints[part, MARKS] |= mark & of_any
    return count


@kernel
def turn_parts(
    ints: Rows,  # a row per part
    doubles: DoubleRows,  # the same memory
    order: Int64s,
    turned_ints: Rows,  # out: a column per part, in this order
    turned_doubles: DoubleRows,
) -> None:
    """Turn rows into columns."""
    for place in range(len(order)):
        part = order[place]
        for column in range(PART_INTS):
            turned_ints[column, place] = ints[part, column]
        for column in range(PART_DOUBLES):
            turned_doubles[column, place] = doubles[part, OTHER + column]


@kernel
def add_parts(
    starts: Int64s,  # where each counter's parts start, and the end
    ts_us: Int64s,  # of each part, in the order of their last charges; the columns as of ``sum_rows``
    marks: Int64s,
    events: Int64s,
    further: Int64s,
    throttled: Int64s,
    rejected: Int64s,
    told_ms: Int64s,
    held_ms: Int64s,
    whole: Int64s,
    other: Doubles,
    limit: Doubles,
    largest: Doubles,
    of_any: int,  # marks that a second has if any part has them
    before: int,  # so many columns are filled: what the first counter did so far
    sums: Rows,  # in and out: a column per second
    used: DoubleRows,  # in and out: a column per second
) -> int:
    """Sum up what each counter did in each second, and return how many columns are filled."""
    count = before
    for counter in range(len(starts) - 1):
        is_begun = counter == 0 and before > 0
        for part in range(starts[counter], starts[counter + 1]):
            second = ts_us[part] // 1_000_000
            if not is_begun or sums[OF_SECOND, count - 1] != second:
                is_begun = True
                sums[:, count] = 0
                used[:, count] = 0.0
                sums[OF_OWNER, count] = counter
                sums[OF_SECOND, count] = second
                count += 1
            at = count - 1
            sums[OF_MARKS, at] = (sums[OF_MARKS, at] & of_any) | marks[part]
            sums[OF_EVENTS, at] += events[part]
            sums[OF_FURTHER, at] += further[part]
            sums[OF_THROTTLED, at] += throttled[part]
            sums[OF_REJECTED, at] += rejected[part]
            sums[OF_TOLD_MS, at] += told_ms[part]
            sums[OF_HELD_MS, at] = max(sums[OF_HELD_MS, at], held_ms[part])
            sums[OF_WHOLE, at] += whole[part]
            used[OF_OTHER, at] += other[part]
            used[OF_LIMIT, at] = limit[part]
            used[OF_LARGEST, at] = max(used[OF_LARGEST, at], largest[part])
    return count
