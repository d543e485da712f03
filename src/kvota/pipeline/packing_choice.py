"""What of a record is packed, and how counters are made of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from kvota.model.event import EVENT_COLUMNS
from kvota.pipeline import chunk_schema as s
from kvota.record.event_schema import ARROW_TYPES
from kvota.record.period import ALWAYS, Period

# The columns of events that are packed, beside those that only some jobs ask for.
_ALWAYS = (
    "ts_us",
    "seq",
    "gateway",
    "run_id",
    "node_id",
    "quota_type",
    "api_key",
    "api_version",
    "value",
    "limit",
    "samples",
    "sample_ms",
    "algorithm",
    "outcome",
    "enforced",
)
# Of these, what nobody asks for who asks for sums of seconds.
_NOT_SUMMED = frozenset({"api_key", "api_version", "samples", "sample_ms", "algorithm"})

NAMES_OF: Mapping[s.By, tuple[str, ...]] = {
    "counter": ("tags",),
    "user": ("user",),
    "client": ("client_id",),
    "user-client": ("user", "client_id"),
    "tags": ("tags",),
}
TEXTS = frozenset(column.name for column in EVENT_COLUMNS if column.type == "string")

# Files may differ in their types of text; here all are codes and a dictionary.
COLUMN_TYPES: Mapping[str, pa.DataType] = {
    column.name: pa.dictionary(pa.int32(), pa.string())
    if column.name in TEXTS
    else ARROW_TYPES[column.type]
    for column in EVENT_COLUMNS
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """What is packed, and how.

    Attributes:
        by: the counters as recorded, or made anew per user, client id or both, or per tags.
        runs: (gateway, run_id) → its place among the runs, and whether its first rows are in the record.
        further: columns that not every job needs: ``throttle_ms``, one of ``chunk_schema.SHARING``,
            ``tags`` (for ``LIMIT_BINDS``).
        quota_types: None: all.
        other_types: these are left out.
        period: rows outside of it are left out.
        modes_apart: counters made anew are two, one for rows that were enforced, one for shadow mode.
        gateways_apart: counters made anew are one per gateway, as quotas are.
        chunk_rows_max: a chunk has so many rows at most.
        is_summed: parts of seconds are packed in place of charges.
    """

    by: s.By
    runs: Mapping[tuple[str, str], tuple[int, bool]]
    further: frozenset[str] = field(default=frozenset())
    quota_types: frozenset[str] | None = None
    other_types: frozenset[str] = field(default=frozenset())
    period: Period = ALWAYS
    modes_apart: bool = False
    gateways_apart: bool = False
    chunk_rows_max: int = s.CHUNK_ROWS_MAX
    is_summed: bool = False

    @property
    def layout(self) -> s.Layout:
        """Return the columns in a payload."""
        return s.SUMS if self.is_summed else s.CHARGES

    def wants_type(self, quota_type: str) -> bool:
        """Return whether rows of a quota type are packed."""
        is_named = self.quota_types is None or quota_type in self.quota_types
        return is_named and quota_type not in self.other_types

    def wants_type_between(self, first: str, last: str) -> bool:
        """Return whether rows of a quota type from ``first`` to ``last`` may be packed."""
        if first == last or self.quota_types is None:
            return first != last or self.wants_type(first)
        return any(first <= name <= last and self.wants_type(name) for name in self.quota_types)

    def columns(self) -> list[str]:
        """Return the columns of the events table that are looked at."""
        every = dict.fromkeys([*_ALWAYS, *NAMES_OF[self.by], *sorted(self.further)])
        return [name for name in every if not (self.is_summed and name in _NOT_SUMMED)]
