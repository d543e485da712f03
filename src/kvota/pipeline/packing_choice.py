"""What of a record is packed, and how counters are made of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvota.model.event import EVENT_COLUMNS
from kvota.pipeline import chunk_schema as s
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
NAMES_OF: Mapping[s.By, tuple[str, ...]] = {
    "counter": ("tags",),
    "user": ("user",),
    "client": ("client_id",),
    "user-client": ("user", "client_id"),
}
TEXTS = frozenset(column.name for column in EVENT_COLUMNS if column.type == "string")


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """What is packed, and how.

    Attributes:
        by: the counters as recorded, or made anew per user, client id or both.
        runs: (gateway, run_id) → its place among the runs, and whether its first rows are in the record.
        further: columns that not every job needs: ``throttle_ms``, one of ``chunk_schema.SHARING``,
            ``tags`` (for ``LIMIT_BINDS``).
        quota_types: None: all.
        period: rows outside of it are left out.
        modes_apart: counters made anew are two, one for rows that were enforced, one for shadow mode.
    """

    by: s.By
    runs: Mapping[tuple[str, str], tuple[int, bool]]
    further: frozenset[str] = field(default=frozenset())
    quota_types: frozenset[str] | None = None
    period: Period = ALWAYS
    modes_apart: bool = False

    def columns(self) -> list[str]:
        """Return the columns of the events table that are looked at."""
        return [*_ALWAYS, *NAMES_OF[self.by], *sorted(self.further)]
