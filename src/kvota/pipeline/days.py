"""Cuts counters by days: each day of a counter is replayed by itself. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.direct import continued
from kvota.pipeline.unpack import Rows

DAY_US = 86_400_000_000
DAYS_MAX = 28  # the latest ones

# Makes one number of a counter's id and a day; odd, so that no two days of a counter are one.
_SPREAD = np.int64(0x61C8864680B583EB)


@dataclass(frozen=True, slots=True)
class Days:
    """Days of equal length, ``count`` of them from ``from_us`` (Unix microseconds) on."""

    from_us: int
    day_us: int
    count: int

    @classmethod
    def learnt(cls, first_us: int, split_us: int) -> "Days":
        """Return the whole days before ``split_us``; where it is less than two, all of the time as one."""
        count = (split_us - first_us) // DAY_US
        if count < 2:
            return cls(first_us, max(1, split_us - first_us), 1)
        count = min(count, DAYS_MAX)
        return cls(split_us - count * DAY_US, DAY_US, count)

    def key(self, counter_ids: Array, days: Array) -> Array:
        """Return one number for each counter's day."""
        with np.errstate(over="ignore"):
            found: Array = counter_ids + (days + 1) * _SPREAD
        return found

    def counter_id(self, keys: Array, days: Array) -> Array:
        """Return what ``key`` was made of."""
        with np.errstate(over="ignore"):
            found: Array = keys - (days + 1) * _SPREAD
        return found

    def cut(self, parts: Iterator[Rows]) -> "Iterator[tuple[Rows, Array]]":
        """Yield rows with a counter per day, its ``key`` as its id; and the day of each. Other rows are left out."""
        last: tuple[pa.RecordBatch, int, int] | None = None
        for every_row in parts:
            day = (every_row.columns["ts_us"] - self.from_us) // self.day_us
            rows = every_row.where((day >= 0) & (day < self.count))
            if not rows.starts[-1]:
                continue
            cut, days = self._cut(rows)
            keys = cut.names.column("counter_id").to_numpy()
            # What goes on stands first, and may be without further rows here.
            if last is not None and keys[0] == last[1]:
                cut = replace(cut, continues=True)
            elif last is not None:
                cut, days = continued(cut, last[0]), np.append(last[2], days)
            last = (cut.names.slice(len(cut.names) - 1), int(keys[-1]), int(days[-1]))
            yield cut, days

    def _cut(self, rows: Rows) -> tuple[Rows, Array]:
        """Return the rows with a counter per day, and the day of each."""
        day = (rows.columns["ts_us"] - self.from_us) // self.day_us
        owner = rows.spread(np.arange(len(rows.names)))
        is_new = np.ones(len(day), np.bool_)
        is_new[1:] = (day[1:] != day[:-1]) | (owner[1:] != owner[:-1])
        begins = np.flatnonzero(is_new)
        days = day[begins]
        names = rows.names.take(pa.array(owner[begins]))
        keys = self.key(names.column("counter_id").to_numpy(), days)
        place = names.schema.get_field_index("counter_id")
        names = names.set_column(place, names.schema.field(place), pa.array(keys))
        starts = np.append(begins, rows.starts[-1])
        return Rows(names, starts, continues=False, columns=rows.columns), days
