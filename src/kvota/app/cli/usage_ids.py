"""What ``kvota usage`` says of new producer ids: they have a window of their own, and are counted as different ones."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvota.app.cli.spark_events import Record, first_of
from kvota.app.cli.usage_words import SHARED
from kvota.app.text_table import text_table, wrapped
from kvota.model.plain_text import on_one_line
from kvota.model.units import format_duration_ms

if TYPE_CHECKING:
    from kvota.pipeline.chunks import Chunks

Row = Mapping[str, Any]

# Quotas on producer ids are of users: so they are nobody else's.
_OWN = ("user", "tags")


@dataclass(frozen=True, slots=True)
class IdsUsed:
    """Which new ids came.

    Attributes:
        rows: the first ones of the ranking, as ``ids_that_came`` has them.
        lines: how many there are in all.
    """

    rows: Sequence[Row] = ()
    lines: int = 0


def read_ids(record: Record, chunks: "Chunks", args: argparse.Namespace) -> IdsUsed:
    """Look at them once more where there are any in ``chunks``, which know no ids."""
    from pyspark.sql import functions as F  # noqa: N812

    from kvota.pipeline.counters import ID_TYPES
    from kvota.pipeline.producer_ids import ID_COLUMNS, ids_that_came

    if not chunks.of_types(ID_TYPES).has_rows():
        return IdsUsed()
    of_ids = record.chunks(args.by, further=ID_COLUMNS, quota_types=ID_TYPES, modes_apart=True)
    share = F.when(  # a division by 0 ends a job where Spark is as strict as the standard
        (F.col("window_ms") > 0) & (F.col("limit_last") > 0),
        F.col("most_in_window") / F.col("window_ms") / F.col("limit_last"),
    )
    names = ("user", "client_id", "tags", "enforced")
    order = (share.desc_nulls_last(), F.col("new_ids").desc(), *names)
    first, found = first_of(ids_that_came(of_ids), lambda table: table.orderBy(*order), args.top)
    return IdsUsed([row.asDict() for row in first], found)


def ids_table(used: IdsUsed, args: argparse.Namespace) -> str:
    """A table of them, beneath the one of all other quotas."""
    from kvota.pipeline.packing_choice import NAMES_OF

    keys = NAMES_OF[args.by]
    header = [*keys, "new ids", "most in a window", "limit", "of limit", "refused", "times"]
    lines = [
        [
            *("(none)" if row[key] is None else on_one_line(row[key]) for key in keys),
            f"{row['new_ids']:,}",
            f"{row['most_in_window']:,} in {format_duration_ms(row['window_ms'])}",
            _limit_cell(row, args),
            "" if (ratio := _ratio(row, args)) is None else f"{ratio:.0%}",
            _would_be(row, _refused(row)),
            f"{row['refusals']:,}",
        ]
        for row in used.rows
    ]
    table = text_table(header, lines, left=len(keys), keys=len(keys))
    title = wrapped(
        "new producer ids: let in, the most within a window, and the different ones that were refused"
    )
    return "\n".join([*title, "", table])


def ids_json(used: IdsUsed, args: argparse.Namespace) -> dict[str, object]:
    """The same for programs."""
    return {
        "hidden_producer_id_rows": used.lines - len(used.rows),
        "producer_ids": [_json_row(row, args) for row in used.rows],
    }


def _json_row(row: Row, args: argparse.Namespace) -> dict[str, object]:
    same = ("user", "client_id", "enforced", "new_ids", "distinct_ids", "unnamed_ids")
    return {
        "counter_id": str(row["counter_id"]),
        "tags": row["tags"] if args.by == "tags" else None,
        **{name: row[name] for name in same},
        "most_new_ids_in_window": row["most_in_window"],
        "refused_ids": row["refused_ids"],
        "refusals": row["refusals"],
        "window_ms": row["window_ms"],
        "limit_per_window": _limit(row) if args.by in _OWN else None,
        "limit_is_shared": args.by not in _OWN,
        "limit_ratio": _ratio(row, args),
        "start_us": row["start_us"],
        "end_us": row["end_us"],
    }


def _limit(row: Row) -> float | None:
    """New ids in a window, as configured: the record has them per second."""
    limit = row["limit_last"]
    return None if limit is None else round(limit * row["window_ms"] / 1000.0, 9)


def _limit_cell(row: Row, args: argparse.Namespace) -> str:
    limit = _limit(row)
    if limit is None:
        return "none"
    return f"{limit:g}" if args.by in _OWN else SHARED


def _ratio(row: Row, args: argparse.Namespace) -> float | None:
    limit = _limit(row)
    most: int = row["most_in_window"]
    return most / limit if limit and args.by in _OWN else None


def _refused(row: Row) -> str:
    more = row["refusals"] > 0 and row["unnamed_ids"] > 0
    return f"{row['refused_ids']:,}{' and more' if more else ''}"


def _would_be(row: Row, text: str) -> str:
    return text if row["enforced"] or not row["refusals"] else f"would be {text}"
