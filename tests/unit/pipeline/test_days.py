"""Days of counters, however their rows are cut into parts."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from kvota.pipeline.days import DAY_US, DAYS_MAX, Days
from kvota.pipeline.unpack import Rows

NAMES = ("gateway", "run_id", "node_id", "quota_type", "tags", "enforcing")


def named(*counter_ids: int) -> pa.RecordBatch:
    columns = [pa.array(list(counter_ids), pa.int64())]
    columns += [pa.array(["x"] * len(counter_ids)) for _ in NAMES]
    return pa.RecordBatch.from_arrays(columns, names=["counter_id", *NAMES])


def rows_of(*parts: dict[int, list[int]]) -> Iterator[Rows]:
    """Parts of counters, each with the times of its rows; the first of a part is the last of the one before."""
    for number, part in enumerate(parts):
        times = [ts_us for of_counter in part.values() for ts_us in of_counter]
        starts = np.cumsum([0, *(len(of_counter) for of_counter in part.values())])
        columns = {"ts_us": np.array(times, np.int64)}
        yield Rows(named(*part), starts, continues=number > 0, columns=columns)


def found(days: Days, *parts: dict[int, list[int]]) -> dict[tuple[int, int], list[int]]:
    """The times of each counter's days."""
    times: dict[tuple[int, int], list[int]] = {}
    last = None
    for rows, of_day in days.cut(rows_of(*parts)):
        keys = rows.names.column("counter_id").to_numpy()
        ids = days.counter_id(keys, of_day).tolist()
        assert not rows.continues or (ids[0], int(of_day[0])) == last
        assert rows.continues == (last is not None)
        for place, key in enumerate(zip(ids, of_day.tolist(), strict=True)):
            start, end = rows.starts[place], rows.starts[place + 1]
            times.setdefault(key, []).extend(rows.columns["ts_us"][start:end].tolist())
            last = key
    return times


def test_each_day_of_a_counter_is_a_counter_of_its_own() -> None:
    days = Days(from_us=100, day_us=10, count=3)

    assert found(days, {7: [99, 100, 105, 110, 129, 130], -8: [125]}) == {
        (7, 0): [100, 105],
        (7, 1): [110],
        (7, 2): [129],
        (-8, 2): [125],
    }


@pytest.mark.parametrize("cut", range(7))
def test_it_is_the_same_however_rows_are_cut(cut: int) -> None:
    days = Days(from_us=0, day_us=10, count=3)
    times = [1, 5, 11, 12, 25, 29]
    whole = {(1, 0): [1, 5], (1, 1): [11, 12], (1, 2): [25, 29], (2, 0): [3]}

    assert found(days, {1: times[:cut]}, {1: times[cut:], 2: [3]}) == whole


def test_whole_days_are_learnt_from_and_the_latest_ones() -> None:
    assert Days.learnt(0, DAY_US // 2) == Days(0, DAY_US // 2, 1)
    assert Days.learnt(0, 5 * DAY_US + 7) == Days(7, DAY_US, 5)
    assert Days.learnt(0, 90 * DAY_US) == Days(62 * DAY_US, DAY_US, DAYS_MAX)


def test_no_two_days_of_a_counter_are_one_counter() -> None:
    days, ids = Days(0, 1, 28), np.array([-(2**63), -1, 0, 2**63 - 1])
    keys = [key for day in range(28) for key in days.key(ids, np.full(4, day)).tolist()]

    assert len(set(keys)) == len(keys)
