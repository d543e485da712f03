"""``kvota replay`` tries other quotas on the record, and checks the law."""

import argparse
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kvota.app.cli.counting_options import add_counting_options, counted
from kvota.app.cli.exit_codes import DONE, NEGATIVE
from kvota.app.cli.spark_events import Record, add_event_options, add_top_option, on_record
from kvota.app.cli.usage import amount, unit_of
from kvota.app.text_table import text_table
from kvota.model.errors import UsageError
from kvota.model.quota_type import BYTE_RATE_TYPES, CONFIGURABLE_TYPES, Algorithm
from kvota.model.units import format_duration_ms, parse_byte_rate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kvota.pipeline.law import LawResult

EXAMPLE = "{kvota} replay --events kvota-demo/shadow/record --candidates 2MB/s,4MB/s,8MB/s"

_NAMES_BYTES = re.compile(r"[0-9]\s*[kmgt]?i?b", re.IGNORECASE)
# By what a candidate's unit says: byte rates, or all others.
_BYTE_TYPES = tuple(quota_type.value for quota_type in BYTE_RATE_TYPES)
_OTHER_TYPES = tuple(kind.value for kind in CONFIGURABLE_TYPES if kind not in BYTE_RATE_TYPES)

# The quota types that the candidates are for (None: all), and the candidates.
_Group = tuple[tuple[str, ...] | None, list[float]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_event_options(parser)
    question = parser.add_mutually_exclusive_group(required=True)
    question.add_argument(
        "--law",
        action="store_true",
        help="replay with the recorded quotas: every throttle time has to be as recorded (else exit 1)",
    )
    question.add_argument(
        "--rows", action="store_true", help="the same row by row, recorded beside replayed"
    )
    question.add_argument(
        "--candidates",
        type=_quotas,
        metavar="A,B,..",
        help="quotas to try, e.g. 2MB/s,4MB/s (bandwidth) or 5/s,10/s (mutations)",
    )
    question.add_argument(
        "--factors",
        type=_factors,
        metavar="A,B,..",
        help="multiples of the quotas in force to try, e.g. 0.5,1,2",
    )
    parser.add_argument(
        "--by",
        choices=("counter", "user", "client", "user-client"),
        default="counter",
        help="counters as recorded, or one per user, client id or both (default: counter)",
    )
    parser.add_argument(
        "--mode",
        choices=("open", "backlog", "think"),
        default="open",
        help="open: requests come when they came; backlog: throttled ones wait; think: every throttle "
        "shifts all that follows (default: open)",
    )
    add_counting_options(parser)
    add_top_option(parser, "counters or rows")


def run(args: argparse.Namespace) -> int:
    """Print the answer; return 1 if the law does not hold."""
    if args.law:
        return _law(args)
    return _rows(args) if args.rows else _candidates(args)


def _law(args: argparse.Namespace) -> int:
    result = on_record(args, "replaying", _law_of)
    if args.output == "json":
        print(json.dumps(asdict(result) | {"holds": result.holds}, indent=2))
    else:
        for of_type in result.of_types:
            print(of_type)
        print(result)
        if result.differences:
            print("\nfirst differences:")
            for difference in result.differences:
                print(f"  {difference}")
    for note in _law_notes(result):
        print(f"kvota: {note}", file=sys.stderr)
    return DONE if result.holds else NEGATIVE


def _law_of(record: Record) -> "LawResult":
    from kvota.pipeline.law import LAW_COLUMNS, law

    return law(record.chunks(further=LAW_COLUMNS))


def _law_notes(result: "LawResult") -> list[str]:
    notes = []
    if not result.rows:
        notes.append("no decision to replay, so nothing is shown")
    if result.missing:
        notes.append(
            f"{result.missing:,} rows are missing in the record (gaps in seq): "
            "what follows a gap on the same counter may differ"
        )
    if result.repeated:
        notes.append(f"{result.repeated:,} rows are there more than once; name each folder once")
    if result.unjudged:
        notes.append(
            f"{result.unjudged:,} rows are not judged: the start of their run is not in the record"
        )
    if result.not_replayed:
        notes.append(f"{result.not_replayed:,} rows are of quota types that cannot be replayed yet")
    return notes


def _rows(args: argparse.Namespace) -> int:
    shown = on_record(args, "replaying", lambda record: _first_rows(record, args.top))
    if args.output == "json":
        print(json.dumps(shown, indent=2))
    elif shown:
        header = list(shown[0])
        print(text_table(header, [[_cell(row[name]) for name in header] for row in shown], left=0))
    return NEGATIVE if any(row["equal"] is False for row in shown) else DONE


def _first_rows(record: Record, count: int) -> list[dict[str, Any]]:
    from pyspark.sql import functions as F  # noqa: N812

    from kvota.pipeline.law import LAW_COLUMNS, replay_rows

    rows = replay_rows(record.chunks(further=LAW_COLUMNS))
    ordered = rows.orderBy(F.col("equal").asc_nulls_last(), "run_id", "seq")
    return [row.asDict() for row in ordered.limit(count).collect()]


def _candidates(args: argparse.Namespace) -> int:
    rows = on_record(args, "replaying", lambda record: _replayed(record, args))
    if args.factors and rows and all(row["quota"] is None for row in rows):
        msg = (
            "--factors: no quota was in force in the record, and a multiple of none is none. Name the "
            "quotas to try with --candidates"
        )
        raise UsageError(msg)
    if args.output == "json":
        print(json.dumps([_json(row) for row in rows], indent=2))
    elif rows:
        print(_table(rows, args))
    else:
        print("the record has no decision these candidates are for")
    return DONE if rows else NEGATIVE


def _replayed(record: Record, args: argparse.Namespace) -> list[dict[str, Any]]:
    from kvota.pipeline.counters import REPLAYED_TYPES
    from kvota.pipeline.replay import Factors, replay

    groups: list[_Group] = args.candidates or [(None, args.factors)]
    chunks = record.chunks(args.by, quota_types=REPLAYED_TYPES)
    kept = chunks.persist() if len(groups) > 1 else chunks
    largest: list[list[dict[str, Any]]] = []  # counters, each with a row per candidate
    for quota_types, quotas in groups:
        table = replay(
            kept if quota_types is None else kept.of_types(quota_types),
            Factors(quotas) if args.factors else quotas,
            counted=counted(args),
            mode=args.mode,
        )
        largest += _largest(table, args.top)
    if kept is not chunks:
        kept.unpersist()
    largest.sort(key=lambda rows: rows[0]["value_sum"], reverse=True)
    return [row for rows in largest[: args.top] for row in rows]


def _largest(table: "DataFrame", count: int) -> list[list[dict[str, Any]]]:
    """Return the counters with the largest sums; only these come to the driver."""
    from pyspark.sql import functions as F  # noqa: N812

    of_counters = table.groupBy("counter_id").agg(
        F.max("value_sum").alias("total"), F.collect_list(F.struct(*table.columns)).alias("rows")
    )
    found = of_counters.orderBy(F.col("total").desc(), "counter_id").limit(count).collect()
    return [
        sorted((row.asDict() for row in counter["rows"]), key=lambda row: row["candidate"])
        for counter in found
    ]


def _table(rows: list[dict[str, Any]], args: argparse.Namespace) -> str:
    closed = args.mode != "open"
    header = [
        "user",
        "client id",
        "quota",
        "broker",
        "limit",
        "requests over",
        "time throttled",
        "worst",
    ]
    header += ["rejected", *(["longest delay"] if closed else [])]
    lines = [
        [
            row["user"] or "",
            row["client_id"] or "",
            row["quota_type"],
            "all" if row["node_id"] == -1 else str(row["node_id"]),
            _limit(row, raw=args.raw),
            f"{row['share_over']:.2%}",
            f"{row['share_throttled']:.2%}",
            format_duration_ms(row["worst_ms"]),
            f"{row['rejected']:,}",
            *([format_duration_ms(row["delay_ms_max"])] if closed else []),
        ]
        for row in rows
    ]
    ways = dict.fromkeys(_how_counted(row, args) for row in rows)
    return f"{args.mode} loop, {'; '.join(ways)}\n\n{text_table(header, lines, left=3)}"


def _how_counted(row: Mapping[str, Any], args: argparse.Namespace) -> str:
    length = format_duration_ms(row["sample_ms"])
    if row["quota_type"] in _BYTE_TYPES and row["algorithm"] == Algorithm.TOKEN_BUCKET:
        most = format_duration_ms(args.debt_max)
        return f"token_bucket with a burst of {length} and {most} of debt"
    return f"{row['samples']} samples of {length}"


def _limit(row: Mapping[str, Any], *, raw: bool) -> str:
    if row["quota"] is None:
        return "none"
    return amount(row["quota_type"], row["quota"], raw=raw)


def _json(row: Mapping[str, Any]) -> dict[str, object]:
    named = dict(row) | {"unit": unit_of(row["quota_type"]), "quota_per_s": row["quota"]}
    named["counter_id"] = str(
        row["counter_id"]
    )  # beyond what a JSON reader's numbers can tell apart
    named |= {"over_ratio": row["share_over"], "throttled_ratio": row["share_throttled"]}
    for old in ("quota", "share_over", "share_throttled"):
        del named[old]
    return named


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _quotas(text: str) -> list[_Group]:
    """Read quotas; those with a unit of bytes are for bandwidth, others (``5/s``) for mutations."""
    of_bytes: list[float] = []
    others: list[float] = []
    for part in text.split(","):
        try:
            quota = parse_byte_rate(part)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        if quota <= 0:
            msg = f'"{part}" is not above 0'
            raise argparse.ArgumentTypeError(msg)
        if "/" not in part:
            msg = f'"{part}" has no unit; write e.g. {part.strip()}MB/s (bandwidth) or {part.strip()}/s (mutations)'
            raise argparse.ArgumentTypeError(msg)
        (of_bytes if _NAMES_BYTES.search(part) else others).append(quota)
    groups: list[_Group] = []
    if of_bytes:
        groups.append((_BYTE_TYPES, of_bytes))
    if others:
        groups.append((_OTHER_TYPES, others))
    return groups


def _factors(text: str) -> list[float]:
    try:
        factors = [float(part) for part in text.split(",")]
    except ValueError:
        factors = [0.0]
    if not all(0 < factor < float("inf") for factor in factors):
        msg = f'"{text}" is not a list of factors above 0, e.g. 0.5,1,2'
        raise argparse.ArgumentTypeError(msg)
    return factors
