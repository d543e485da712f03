"""``kvota usage`` shows from the record how much each tenant uses."""

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kvota.app.cli.exit_codes import DONE, NEGATIVE
from kvota.app.cli.spark_events import (
    Record,
    add_event_options,
    add_top_option,
    first_of,
    on_record,
    say_hidden,
)
from kvota.app.text_table import sparkline, text_table
from kvota.model.quota_type import FACTS, QuotaType, Unit
from kvota.model.units import format_duration_ms
from kvota.planning.plan import format_quota

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXAMPLE = "{kvota} usage --events kvota-demo/shadow/record --by user --top 10"

# How many bars a picture of the whole record has.
_BARS = 24
_RAW_UNITS = {Unit.BYTES_PER_S: " B/s", Unit.PERCENT: " %"}

Row = Mapping[str, Any]
_Key = int  # a counter_id


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_event_options(parser)
    parser.add_argument(
        "--by",
        choices=("user", "client", "user-client"),
        default="user",
        help="whose charges are counted together (default: user)",
    )
    add_top_option(parser, "lines")


def run(args: argparse.Namespace) -> int:
    """Print tenants by their share of the quota in force; return 1 if the record is empty."""
    totals, windows, found = on_record(args, "counting", lambda record: _read(record, args))
    if args.output == "json":
        print(json.dumps([_json(row) for row in totals], indent=2))
    elif totals:
        print(_table(totals, windows, args))
    else:
        print("the record has no decision yet")
    say_hidden(len(totals), found, "lines")
    return DONE if totals else NEGATIVE


def _read(
    record: Record, args: argparse.Namespace
) -> tuple[list[Row], dict[_Key, list[float]], int]:
    """Return the first lines, their pictures, and how many lines there are in all."""
    from kvota.pipeline.usage import USAGE_COLUMNS, usage, usage_total

    chunks = record.chunks(args.by, further=USAGE_COLUMNS).persist()
    try:
        rows, found = first_of(usage_total(chunks), _ranked, args.top)
        totals: list[Row] = [row.asDict() for row in rows]
        if args.output == "json" or not totals:
            return totals, {}, found
        from_s = int(totals[0]["window_start"].timestamp())
        window_s = -(-totals[0]["window_s"] // _BARS)
        bars: dict[_Key, list[float]] = {
            row["counter_id"]: [0.0] * (-(-row["window_s"] // window_s) + 1) for row in totals
        }
        for window in usage(chunks.of_counters(bars), window_s=window_s).collect():
            place = int(window["window_start"].timestamp()) // window_s - from_s // window_s
            bars[window["counter_id"]][place] = window["rate_mean"]
        return totals, bars, found
    finally:
        chunks.unpersist()


def _ranked(totals: "DataFrame") -> "DataFrame":
    """Rank by the share of the quota first; without a quota by the amount used."""
    from pyspark.sql import functions as F  # noqa: N812

    has_limit = F.coalesce(F.col("limit_last") != 0, F.lit(col=False))
    share = F.try_divide("rate_10s_max", "limit_last")
    return totals.orderBy(
        F.when(has_limit, share).desc_nulls_last(),
        F.col("value_sum").desc(),
        "quota_type",
        "user",
        "client_id",
        "node_id",
    )


def _share_of_quota(row: Row) -> float | None:
    return row["rate_10s_max"] / row["limit_last"] if row["limit_last"] else None


def _table(
    totals: Sequence[Row], windows: Mapping[_Key, Sequence[float]], args: argparse.Namespace
) -> str:
    names = {"user": ["user"], "client": ["client_id"], "user-client": ["user", "client_id"]}[
        args.by
    ]
    header = [
        *names,
        "quota",
        "broker",
        "requests",
        "mean",
        "p95",
        "most in 10 s",
        "limit",
        "of limit",
        "throttled",
        "over time",
    ]
    rows = [
        [
            *(str(row[name]) if row[name] is not None else "(none)" for name in names),
            row["quota_type"],
            "all" if row["node_id"] == -1 else str(row["node_id"]),
            f"{row['events']:,}",
            *(_rate(row, name, raw=args.raw) for name in ("rate_mean", "rate_p95", "rate_10s_max")),
            "none" if row["limit_last"] is None else _rate(row, "limit_last", raw=args.raw),
            "" if (share := _share_of_quota(row)) is None else f"{share:.0%}",
            _throttled(row),
            sparkline(windows[row["counter_id"]]),
        ]
        for row in totals
    ]
    span = format_duration_ms(totals[0]["window_s"] * 1000)
    start = totals[0]["window_start"].strftime("%Y-%m-%d %H:%M:%S")
    table = text_table(
        header, rows, left=len(names) + 1, last_left=True, keys=header.index("broker") + 1
    )
    return f"{span} from {start} UTC; rates per broker\n\n{table}"


def _throttled(row: Row) -> str:
    share = f"{row['share_throttled']:.1%}"
    not_admitted = row["throttled"] + row["rejected"]
    return share if row["enforced"] or not not_admitted else f"would be {share}"


def _rate(row: Row, name: str, *, raw: bool) -> str:
    return amount(row["quota_type"], row[name], raw=raw)


def amount(quota_type: str, rate: float, *, raw: bool) -> str:
    """Write a rate with its unit; ``raw``: all its figures instead of three."""
    if raw:
        return f"{rate!r}{_RAW_UNITS.get(FACTS[QuotaType(quota_type)].unit, '/s')}"
    return format_quota(QuotaType(quota_type), rate)


def _json(row: Row) -> dict[str, object]:
    rates = {
        f"{name}_per_s": row[name]
        for name in ("rate_mean", "rate_p50", "rate_p95", "rate_p99", "rate_max", "rate_10s_max")
    }
    return {
        "quota_type": row["quota_type"],
        "level": row["level"],
        "user": row["user"],
        "client_id": row["client_id"],
        "node_id": row["node_id"],
        "unit": unit_of(row["quota_type"]),
        "start_us": int(row["window_start"].timestamp()) * 1_000_000,
        "span_s": row["window_s"],
        "events": row["events"],
        "value_sum": row["value_sum"],
        **rates,
        "busy_s": row["busy_s"],
        "limit_per_s": row["limit_last"],
        "throttled_events": row["throttled"],
        "rejected_events": row["rejected"],
        "throttled_ratio": row["share_throttled"],
        "throttle_ms_sum": row["throttle_ms_sum"],
        "enforced": row["enforced"],
    }


def unit_of(quota_type: str) -> str:
    """Return what a value of this quota type counts."""
    return FACTS[QuotaType(quota_type)].value_unit if quota_type in FACTS else ""
