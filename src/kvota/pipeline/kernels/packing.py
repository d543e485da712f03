"""Rows are grouped by counter, and the columns of a group become bytes and columns again.

A column of a payload is one code, then its content, little-endian:

| code | content |
|---|---|
| 0 | one number of eight bytes, the same in every row |
| 1, 2, 4 | the smallest number in eight bytes, then the distance from it in so many bytes a row |
| 8 | eight bytes a row |

A floating number goes as its bits; where all of a column are whole, as whole numbers (code + 16).
"""

# Columns and results go in as arrays, one by one and by position: Numba knows no better way.
# ruff: noqa: PLR0913, PLR0917

import numpy as np
import numpy.typing as npt

from kvota.pipeline.kernels.compiled_arithmetic import kernel, step
from kvota.pipeline.kernels.counter_steps import Doubles, Flags, Int64s

Bytes = npt.NDArray[np.uint8]

# The most bytes of a column beside its rows.
COLUMN_HEAD_BYTES = 9

_WHOLE = 16  # added to the code of floating numbers that are all whole
_WHOLE_MAX = 2.0**53

# So often a row may move up while a group is sorted row by row; rows of a record are nearly in order.
_MOVES_MAX = 64


@kernel
def group_rows(codes: Int64s, order: Int64s, starts: Int64s) -> None:
    """Put the rows of each code together, in the order they have.

    Args:
        codes: of each row, from 0 on.
        order: out: the rows, group by group.
        starts: out: where each code's group starts in ``order``; one place more than codes.
    """
    starts[:] = 0
    for row in range(len(codes)):
        starts[codes[row] + 1] += 1
    for code in range(1, len(starts)):
        starts[code] += starts[code - 1]
    place = starts[:-1].copy()
    for row in range(len(codes)):
        code = codes[row]
        order[place[code]] = row
        place[code] += 1


@step
def _comes_before(a: int, b: int, times: Int64s, runs: Int64s, seqs: Int64s) -> bool:
    if times[a] != times[b]:
        before: bool = times[a] < times[b]
    elif runs[a] != runs[b]:
        before = runs[a] < runs[b]
    else:
        before = seqs[a] < seqs[b]
    return before


@kernel
def sort_groups(
    order: Int64s, starts: Int64s, times: Int64s, runs: Int64s, seqs: Int64s, is_sorted: Flags
) -> None:
    """Sort the rows of each group by (time, run, seq), but for groups that are too far out of order.

    What was moved in these stays moved: ``order`` still has every row once, in its group.

    Args:
        order: in and out: the rows, group by group.
        starts: where each group starts, and the end.
        times: of each row; so are the next two.
        runs: who comes first at the same time.
        seqs: and then.
        is_sorted: out: of each group.
    """
    for group in range(len(starts) - 1):
        is_sorted[group] = _sort_group(order[starts[group] : starts[group + 1]], times, runs, seqs)


@step
def _sort_group(rows: Int64s, times: Int64s, runs: Int64s, seqs: Int64s) -> bool:
    for place in range(1, len(rows)):
        row = rows[place]
        to = place
        while to > 0 and _comes_before(row, rows[to - 1], times, runs, seqs):
            to -= 1
            if place - to > _MOVES_MAX:
                return False
        for back in range(place, to, -1):
            rows[back] = rows[back - 1]
        rows[to] = row
    return True


@step
def _put(out: Bytes, at: int, number: int, width: int) -> None:
    for byte in range(width):
        out[at + byte] = (number >> (8 * byte)) & 255


@step
def _put_column(out: Bytes, at: int, column: Int64s, flag: int) -> int:
    """Write one column from ``at`` on; return where it ends."""
    least = most = column[0]
    for number in column:
        least = min(least, number)
        most = max(most, number)
    span = most - least  # below 0: it does not fit
    base_at = at + 1
    rows_at = at + 9
    if span == 0:
        out[at] = flag
        _put(out, base_at, least, 8)
        return rows_at
    if span < 0 or span >= 2**32:
        out[at] = 8 + flag
        for row in range(len(column)):
            _put(out, base_at + 8 * row, column[row], 8)
        return base_at + 8 * len(column)
    _put(out, base_at, least, 8)
    if span < 2**8:
        out[at] = 1 + flag
        for row in range(len(column)):
            out[rows_at + row] = column[row] - least
        return rows_at + len(column)
    if span < 2**16:
        out[at] = 2 + flag
        for row in range(len(column)):
            _put(out, rows_at + 2 * row, column[row] - least, 2)
        return rows_at + 2 * len(column)
    out[at] = 4 + flag
    for row in range(len(column)):
        _put(out, rows_at + 4 * row, column[row] - least, 4)
    return rows_at + 4 * len(column)


@step
def _are_whole(column: Doubles, whole: Int64s) -> bool:
    """Write the column as whole numbers; False where that would lose something."""
    for row in range(len(column)):
        number = column[row]
        if not -_WHOLE_MAX < number < _WHOLE_MAX:  # nor is NaN
            return False
        whole[row] = int(number)
        if float(whole[row]) != number or (number == 0 and np.copysign(1.0, number) < 0):
            return False
    return True


@kernel
def put_columns(
    starts: Int64s,  # where each chunk's rows start, and the end
    places: Int64s,  # of each column in ``ints`` or, behind those, in ``doubles``; -1: all rows are the same
    constants: Int64s,  # the number of each column of which all rows are the same
    int_columns: int,  # so many of the columns are whole numbers
    ints: Int64s,  # a row per column
    doubles: Doubles,  # a row per column
    bits: Int64s,  # the same as whole numbers of their bits
    out: Bytes,  # COLUMN_HEAD_BYTES per chunk and column, and eight bytes per row and column
    ends: Int64s,  # out: where each chunk's bytes end, after a first 0
) -> None:
    """Write the columns of each chunk."""
    whole = np.empty(max(1, doubles.shape[1]), np.int64)
    at = 0
    ends[0] = 0
    for chunk in range(len(starts) - 1):
        start, end = starts[chunk], starts[chunk + 1]
        for column in range(len(places)):
            place = places[column]
            if place < 0:
                out[at] = 0
                _put(out, at + 1, constants[column], 8)
                at += COLUMN_HEAD_BYTES
            elif column < int_columns:
                at = _put_column(out, at, ints[place, start:end], 0)
            else:
                as_whole = whole[: end - start]
                if _are_whole(doubles[place, start:end], as_whole):
                    at = _put_column(out, at, as_whole, _WHOLE)
                else:
                    at = _put_column(out, at, bits[place, start:end], 0)
        ends[chunk + 1] = at


@step
def _get(data: Bytes, at: int) -> int:
    number = int(data[at])
    for byte in range(1, 8):
        number |= int(data[at + byte]) << (8 * byte)
    return number


@step
def _column_end(data: Bytes, at: int, rows: int) -> int:
    code = data[at] & 15
    return at + 1 + 8 * rows if code == 8 else at + 9 + code * rows


@step
def _get_column(data: Bytes, at: int, out: Int64s) -> None:
    code = data[at] & 15
    if code == 8:
        for row in range(len(out)):
            out[row] = _get(data, at + 1 + 8 * row)
        return
    base = _get(data, at + 1)
    at += 9
    if code == 0:
        out[:] = base
    elif code == 1:
        for row in range(len(out)):
            out[row] = base + data[at + row]
    elif code == 2:
        for row in range(len(out)):
            place = at + 2 * row
            out[row] = base + (int(data[place]) | int(data[place + 1]) << 8)
    else:
        for row in range(len(out)):
            place = at + 4 * row
            out[row] = base + (
                int(data[place])
                | int(data[place + 1]) << 8
                | int(data[place + 2]) << 16
                | int(data[place + 3]) << 24
            )


@kernel
def get_columns(
    data: Bytes,
    offsets: Int64s,  # where each chunk's bytes start
    starts: Int64s,  # where each chunk's rows start, and the end
    ints: Int64s,  # out: a row per column
    doubles: Doubles,  # out: a row per column
    bits: Int64s,  # the same memory as ``doubles``
) -> None:
    """Read the columns of each chunk."""
    for chunk in range(len(starts) - 1):
        start, end = starts[chunk], starts[chunk + 1]
        at = offsets[chunk]
        for column in range(len(ints)):
            _get_column(data, at, ints[column, start:end])
            at = _column_end(data, at, end - start)
        for column in range(len(doubles)):
            _get_column(data, at, bits[column, start:end])
            if data[at] & _WHOLE:
                for row in range(start, end):
                    doubles[column, row] = float(bits[column, row])
            at = _column_end(data, at, end - start)
