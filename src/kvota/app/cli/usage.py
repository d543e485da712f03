"""``kvota usage`` shows from the record how much each tenant uses."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvota.app.cli.exit_codes import DONE, NEGATIVE
from kvota.app.cli.json_output import print_json
from kvota.app.cli.spark_events import (
    Record,
    add_event_options,
    add_save_option,
    add_top_option,
    check_save,
    on_record,
    save,
    say_hidden,
)
from kvota.app.cli.usage_ids import IdsUsed, ids_json, ids_table, read_ids
from kvota.app.cli.usage_minutes import add_minutes_options, run_minutes
from kvota.app.cli.usage_words import (
    BARS,
    SHARED,
    amount,
    limit_cell,
    lines_table,
    unit_of,
    who_cells,
    would_be,
)
from kvota.app.text_table import sparkline
from kvota.model.units import format_duration_ms, format_moment
from kvota.session.principal import ANONYMOUS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXAMPLE = "{kvota} usage --events kvota-demo/shadow/record --by user --top 10"

# Names that clients have; and the tags of counters, which a quota callback may have chosen.
_WAYS = ("user", "client", "user-client")
_TAGS = "tags"

Row = Mapping[str, Any]
_Key = int  # a counter_id


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_event_options(parser)
    parser.add_argument(
        "--by",
        choices=(*_WAYS, _TAGS),
        default="user",
        help="whose charges are counted together; tags: those of a recorded counter, such as a group's (default: user)",
    )
    add_top_option(parser, "lines")
    add_save_option(parser, "the use of each tenant in each minute")
    add_minutes_options(parser)


def run(args: argparse.Namespace) -> int:
    """Print tenants by their share of the quota in force; return 1 if the record is empty."""
    if args.minutes or args.last is not None:
        return run_minutes(args)
    check_save(args)
    used = on_record(args, "counting", lambda record: _read(record, args))
    if args.output == "json":
        print_json(_json(used, args))
    elif used.totals or used.ids.rows:
        tables = [_table(used, args)] if used.totals else []
        tables += [ids_table(used.ids, args)] if used.ids.rows else []
        print("\n\n".join(tables))
    else:
        print("the record has no decision yet")
    say_hidden(len(used.totals), used.lines, "lines")
    say_hidden(len(used.ids.rows), used.ids.lines, "lines of producer ids")
    for note in _notes(used, args):
        print(f"kvota: {note}", file=sys.stderr)
    return DONE if used.totals or used.ids.rows else NEGATIVE


@dataclass(frozen=True, slots=True)
class _Used:
    """What tenants used.

    Attributes:
        totals: the first ones of the ranking.
        lines: how many there are in all.
        events: of all of them.
        is_anonymous: every user is ANONYMOUS, that is, nobody has to log in.
        bars: what is drawn of each counter.
        ids: the new producer ids.
    """

    totals: Sequence[Row]
    lines: int
    events: int
    is_anonymous: bool
    bars: Mapping[_Key, Sequence[float]]
    ids: IdsUsed


def _read(record: Record, args: argparse.Namespace) -> _Used:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    from kvota.pipeline.counters import ID_TYPES
    from kvota.pipeline.usage_tables import USAGE_COLUMNS, usage, usage_total

    of_charges = record.chunks(args.by, further=USAGE_COLUMNS, modes_apart=True)
    every_chunk = of_charges.summed().persist()
    chunks = every_chunk.but_types(ID_TYPES)
    try:
        save(usage(chunks), "usage", args)
        of_all = Observation()
        named = F.coalesce("user", F.lit(""))
        totals = usage_total(chunks).observe(
            of_all,
            F.count("*").alias("lines"),
            F.sum("events").alias("events"),
            F.min(named).alias("first_user"),
            F.max(named).alias("last_user"),
        )
        rows = [row.asDict() for row in _ranked(totals).limit(args.top).collect()]
        every = of_all.get
        users = {every["first_user"], every["last_user"]}
        bars: dict[_Key, list[float]] = {}
        if args.output == "table" and rows:
            window_s = -(-rows[0]["window_s"] // BARS)
            first = rows[0]["start_us"] // 1_000_000 // window_s
            count = -(-rows[0]["window_s"] // window_s) + 1
            bars = {row["counter_id"]: [0.0] * count for row in rows}
            drawn = usage(chunks.of_counters(bars), window_s=window_s)
            starts = drawn.withColumn("start_us", F.unix_micros("window_start"))
            for window in starts.select("counter_id", "start_us", "rate_mean").collect():
                place = window["start_us"] // 1_000_000 // window_s - first
                if 0 <= place < count:  # else the times that footers name are not those of the rows
                    bars[window["counter_id"]][place] = window["rate_mean"]
        ids = read_ids(record, every_chunk, args)
        is_anonymous = users == {ANONYMOUS}
        return _Used(rows, every["lines"], every["events"] or 0, is_anonymous, bars, ids)
    finally:
        every_chunk.unpersist()


def _ranked(totals: "DataFrame") -> "DataFrame":
    """Rank by the share of the quota first; without a quota by the amount used."""
    from pyspark.sql import functions as F  # noqa: N812

    # A timestamp becomes the local time of this process on its way to Python.
    in_utc = totals.withColumn("start_us", F.unix_micros("window_start")).drop("window_start")
    return in_utc.orderBy(
        F.col("limit_share").desc_nulls_last(),
        F.col("value_sum").desc(),
        "quota_type",
        "user",
        "client_id",
        "tags",
        "node_id",
        "enforced",
    )


def _limit(row: Row) -> float | None:
    """Return the limit in force at last, where it is this line's own."""
    limit: float | None = row["limit_last"] if row["limit_binds"] else None
    return limit


def _table(used: _Used, args: argparse.Namespace) -> str:
    from kvota.pipeline.packing_choice import NAMES_OF

    totals = used.totals
    names = NAMES_OF[args.by]
    further = [
        "mean",
        "p95",
        "most in 10 s",
        "limit",
        "of limit",
        "throttled",
        "rejected",
        "over time",
    ]
    rows = [
        [
            *who_cells(row, names),
            *(_rate(row, name, raw=args.raw) for name in ("rate_mean", "rate_p95", "rate_10s_max")),
            limit_cell(row, raw=args.raw),
            "" if row["limit_share"] is None else f"{row['limit_share']:.0%}",
            would_be(row, row["throttled"]),
            would_be(row, row["rejected"]),
            sparkline(used.bars[row["counter_id"]]),
        ]
        for row in totals
    ]
    span = format_duration_ms(totals[0]["window_s"] * 1000)
    table = lines_table(names, further, rows)
    start = format_moment(totals[0]["start_us"])
    return f"{span} from {start} UTC; rates per broker\n\n{table}"


def _notes(used: _Used, args: argparse.Namespace) -> list[str]:
    notes = []
    if args.save is not None and used.ids.rows:
        notes.append("the saved table has no lines of new producer ids")
    if used.is_anonymous and args.by == "user":
        notes.append("everyone is ANONYMOUS, because nobody logs in: try --by client")
    shared = [
        row for row in used.totals if row["limit_last"] is not None and not row["limit_binds"]
    ]
    if any(not row["has_other_tags"] for row in shared):
        others = " or ".join(f"--by {way}" for way in _WAYS if way != args.by)
        notes.append(
            f'"{SHARED}": the limit is of a counter that this line is not alone on, or has only a part '
            f"of: {others} shows it"
        )
    if any(row["has_other_tags"] for row in shared):
        notes.append(
            f'"{SHARED}": the limit is that of a group which a quota callback makes: --by {_TAGS} shows it'
        )
    return notes


def _rate(row: Row, name: str, *, raw: bool) -> str:
    return amount(row["quota_type"], row[name], raw=raw)


def _json(used: _Used, args: argparse.Namespace) -> dict[str, object]:
    return {
        "by": args.by,
        "hidden_rows": used.lines - len(used.totals),
        "hidden_events": used.events - sum(row["events"] for row in used.totals),
        "rows": [_json_row(row) for row in used.totals],
        **ids_json(used.ids, args),
    }


def _json_row(row: Row) -> dict[str, object]:
    rates = {
        f"{name}_per_s": row[name]
        for name in ("rate_mean", "rate_p50", "rate_p95", "rate_p99", "rate_max", "rate_10s_max")
    }
    return {
        "counter_id": str(row["counter_id"]),  # beyond what a JSON reader's numbers can tell apart
        "quota_type": row["quota_type"],
        "level": row["level"],
        "user": row["user"],
        "client_id": row["client_id"],
        "tags": row["tags"],
        "node_id": row["node_id"],
        "unit": unit_of(row["quota_type"]),
        "start_us": row["start_us"],
        "span_s": row["window_s"],
        "events": row["events"],
        "value_sum": row["value_sum"],
        **rates,
        "busy_s": row["busy_s"],
        "limit_per_s": _limit(row),
        "limit_is_shared": row["limit_last"] is not None and not row["limit_binds"],
        "limit_ratio": row["limit_share"],
        "decisions": row["decisions"],
        "throttled_events": row["throttled"],
        "rejected_events": row["rejected"],
        "throttled_ratio": row["share_throttled"],
        "throttle_ms_sum": row["throttle_ms_sum"],
        "enforced": row["enforced"],
    }
