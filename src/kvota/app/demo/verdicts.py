"""Judges of every limit of a record whether it held."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from kvota.model.quota_type import QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.planning.held import Held, held

_COLUMNS = [
    "seq",
    "ts_us",
    "user",
    "quota_type",
    "node_id",
    "tags",
    "value",
    "limit",
    "samples",
    "sample_ms",
    "outcome",
]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one tenant and quota type, over all its counters."""

    holds: bool
    worst: Held | None


# By user, quota type, node, tags, limit, samples and sample_ms: (ts_us, value) as they were decided.
Charges = dict[tuple[object, ...], list[tuple[int, float]]]


def admitted_charges(record: Path) -> Charges:
    """Collect what each counter admitted, anew from where its limit changed."""
    charges: Charges = defaultdict(list)
    rows = pq.read_table(record, columns=_COLUMNS).sort_by("seq").to_pylist()
    for row in rows:
        if row["limit"] is None or row["outcome"] == "rejected":
            continue
        counter = (
            row["user"],
            row["quota_type"],
            row["node_id"],
            row["tags"],
            row["limit"],
            row["samples"],
            row["sample_ms"],
        )
        charges[counter].append((row["ts_us"], row["value"]))
    return charges


def verdicts(charges: Charges, *, late_ms: float) -> dict[tuple[str, str], Verdict]:
    """Judge, by (user, quota type), whether each counter's limit held in every interval.

    ``late_ms``: see ``planning.held``.
    """
    judged: dict[tuple[str, str], Verdict] = {}
    for (user, quota_type, _, _, limit, samples, sample_ms), values in charges.items():
        found = held(
            QuotaType(str(quota_type)),
            values,
            limit=float(str(limit)),
            window=QuotaWindow(int(str(samples)), int(str(sample_ms))),
            late_ms=late_ms,
        )
        key = (str(user), str(quota_type))
        before = judged.get(key)
        if before is None or (before.holds and not found.holds):
            judged[key] = Verdict(found.holds, found)
    return judged
