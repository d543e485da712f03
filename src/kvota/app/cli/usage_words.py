"""How commands over a record write what was used."""

from collections.abc import Mapping, Sequence
from typing import Any

from kvota.app.text_table import text_table
from kvota.model.plain_text import on_one_line
from kvota.model.quota_type import FACTS, QuotaType, Unit
from kvota.planning.plan_line import format_quota

# How many bars a picture has.
BARS = 24
# What stands for the limit of somebody else.
SHARED = "*"

_RAW_UNITS = {Unit.BYTES_PER_S: " B/s", Unit.PERCENT: " %"}


def amount(quota_type: str, rate: float, *, raw: bool) -> str:
    """Write a rate with its unit; ``raw``: all its figures instead of three."""
    if quota_type not in FACTS:  # of a newer gateway
        return f"{rate!r}/s" if raw else f"{rate:.6g}/s"
    if raw:
        return f"{rate!r}{_RAW_UNITS.get(FACTS[QuotaType(quota_type)].unit, '/s')}"
    return format_quota(QuotaType(quota_type), rate)


def unit_of(quota_type: str) -> str:
    """Return what a value of this quota type counts."""
    return FACTS[QuotaType(quota_type)].value_unit if quota_type in FACTS else ""


def limit_cell(row: Mapping[str, Any], *, raw: bool) -> str:
    """Write the limit that was in force at last, where it is this line's own."""
    if row["limit_last"] is None:
        return "none"
    return amount(row["quota_type"], row["limit_last"], raw=raw) if row["limit_binds"] else SHARED


def who_cells(row: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Write whose line it is, of which quota and broker, and how many requests it counts."""
    return [
        *(on_one_line(row[name]) if row[name] else "(none)" for name in names),
        row["quota_type"],
        "all" if row["node_id"] == -1 else str(row["node_id"]),
        f"{row['events']:,}",
    ]


def lines_table(names: Sequence[str], further: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write lines that begin with ``who_cells``.

    Args:
        names: of the columns that say who.
        further: heads of the columns behind the number of requests.
        rows: the cells.
    """
    return text_table(
        [*names, "quota", "broker", "requests", *further],
        rows,
        left=len(names) + 1,
        last_left=True,
        keys=len(names) + 2,
        names=range(len(names)),
    )


def would_be(row: Mapping[str, Any], count: int) -> str:
    """Write a share of decisions; in shadow mode nobody was held back."""
    share = f"{count / max(row['decisions'], 1):.1%}"
    return share if row["enforced"] or not count else f"would be {share}"
