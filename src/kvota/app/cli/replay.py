"""``kvota replay`` tries other quotas on the record, and checks the law."""

import argparse
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from kvota.app.cli.any_table import refuse_law
from kvota.app.cli.counting_options import add_counting_options, counted
from kvota.app.cli.exit_codes import DONE, NEGATIVE
from kvota.app.cli.json_output import print_json
from kvota.app.cli.spark_events import (
    TOP,
    Record,
    add_event_options,
    add_save_option,
    add_top_option,
    check_save,
    first_of,
    on_record,
    save,
    say_hidden,
)
from kvota.app.cli.usage_words import amount, unit_of
from kvota.app.text_table import grouped_table, text_table, wrapped
from kvota.app.text_width import cut_between
from kvota.model.errors import UsageError
from kvota.model.plain_text import name_on_screen, on_one_line
from kvota.model.quota_type import (
    BYTE_RATE_TYPES,
    CONFIGURABLE_TYPES,
    FACTS,
    Algorithm,
    QuotaType,
    Unit,
)
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, tags_text
from kvota.model.units import format_duration_ms, format_moment, parse_byte_rate, parse_percent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kvota.pipeline.law_check import LawResult

EXAMPLE = "{kvota} replay --events kvota-demo/shadow/record --candidates 2MB/s,4MB/s,8MB/s"

# The type of candidates like 100ids, and what is read of them.
# So that it stands in a line of its own.
_NAME_COLUMNS = 72
_ID_TYPES = (QuotaType.PRODUCER_ID.value,)
_NAMES_IDS = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?)\s*ids\s*")
_NAMES_BYTES = re.compile(r"[0-9]\s*[kmgt]?i?b", re.IGNORECASE)
# By what a candidate's unit says: byte rates, percentages, or all others.
_BYTE_TYPES = tuple(quota_type.value for quota_type in BYTE_RATE_TYPES)
_PERCENT_TYPES = tuple(
    kind.value for kind in CONFIGURABLE_TYPES if FACTS[kind].unit is Unit.PERCENT
)
_OTHER_TYPES = tuple(
    kind.value for kind in CONFIGURABLE_TYPES if kind not in {*_BYTE_TYPES, *_PERCENT_TYPES}
)

# What columns of a replay are called for programs, where the name alone does not say the unit.
_JSON_NAMES = {
    "quota": "quota_per_s",
    "over": "over_events",
    "rejected": "rejected_events",
    "throttled_ms": "throttled_span_ms",
    "worst_ms": "throttle_ms_max",
    "share_over": "over_ratio",
    "share_throttled": "throttled_span_ratio",
}

# What tags a counter has that all clients share.
_NOBODYS = ("", tags_text({USER_TAG: "", CLIENT_ID_TAG: ""}))

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
        help="quotas to try, e.g. 2MB/s,4MB/s (bandwidth), 5/s,10/s (mutations), 10%%,20%% (request time) or "
        "50ids,100ids (new producer ids in their window)",
    )
    question.add_argument(
        "--factors",
        type=_factors,
        metavar="A,B,..",
        help="multiples of the quotas in force to try, e.g. 0.5,1,2; but of producer ids",
    )
    parser.add_argument(
        "--by",
        choices=("counter", "user", "client", "user-client"),
        help="counters as recorded, or one per user, client id or both (default: counter)",
    )
    parser.add_argument(
        "--mode",
        choices=("open", "backlog", "think"),
        help="open: requests come when they came; backlog: throttled ones wait; think: every throttle "
        "shifts all that follows (default: open)",
    )
    add_counting_options(parser)
    add_top_option(parser, "counters or rows")
    parser.set_defaults(top=None)  # to tell whether it is given
    add_save_option(parser, "the table that is shown")


def run(args: argparse.Namespace) -> int:
    """Print the answer; return 1 if the law does not hold.

    Raises:
        UsageError: an option of candidates is given where rows are replayed as recorded, or one that would do nothing.
    """
    check_save(args)
    if args.law or args.rows:
        _check_as_recorded(args)
        _check_shown(args)
        refuse_law(args, "--law" if args.law else "--rows")
    args.top = args.top or TOP
    if args.law or args.rows:
        return _law(args) if args.law else _rows(args)
    args.by, args.mode = args.by or "counter", args.mode or "open"
    return _candidates(args)


def _check_as_recorded(args: argparse.Namespace) -> None:
    given = [
        f"--{name.replace('_', '-')}"
        for name in ("by", "mode", "algorithm", "window", "burst", "debt_max")
        if getattr(args, name) is not None
    ]
    if given:
        msg = (
            f"{', '.join(given)}: {'--law' if args.law else '--rows'} replays every row by the counter, quota and "
            f"algorithm that it was recorded with, so nothing can be chosen. Leave {'it' if len(given) == 1 else 'them'} "
            "away, or try quotas with --candidates or --factors"
        )
        raise UsageError(msg)


def _check_shown(args: argparse.Namespace) -> None:
    """Refuse options of a table where there is none, or where they change nothing."""
    if args.law and (args.top is not None or args.raw):
        given = [name for name, value in (("--top", args.top), ("--raw", args.raw)) if value]
        msg = (
            f"{', '.join(given)}: --law says one line per quota type and the first differences, whole and exact. "
            f"Leave {'it' if len(given) == 1 else 'them'} away, or look at rows with --rows"
        )
        raise UsageError(msg)
    if args.rows and args.raw:
        msg = "--raw: the numbers of --rows are exact. Leave it away"
        raise UsageError(msg)


def _law(args: argparse.Namespace) -> int:
    if args.save is not None:
        msg = "--save: --law makes no table; --rows makes one of all rows, recorded beside replayed"
        raise UsageError(msg)
    result = on_record(args, "replaying", _law_of)
    if args.output == "json":
        print_json(_law_json(result))
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


def _law_json(result: "LawResult") -> dict[str, object]:
    return {
        "holds": result.holds,
        "rows": result.rows,
        "throttled_rows": result.throttled,
        "differing_rows": result.differing,
        "unjudged_rows": result.unjudged,
        "missing_rows": result.missing,
        "repeated_rows": result.repeated,
        "not_replayed_rows": result.not_replayed,
        "quota_types": [
            {
                "quota_type": of_type.quota_type,
                "rows": of_type.rows,
                "throttled_rows": of_type.throttled,
                "differing_rows": of_type.differing,
                "unjudged_rows": of_type.unjudged,
            }
            for of_type in result.of_types
        ],
        "differences": [_row_json(asdict(difference)) for difference in result.differences],
    }


def _row_json(row: Mapping[str, Any]) -> dict[str, object]:
    """Give the limit its unit; the other columns have theirs."""
    return {"limit_per_s" if name == "limit" else name: value for name, value in row.items()}


def _law_of(record: Record) -> "LawResult":
    from kvota.pipeline.law_check import LAW_COLUMNS, law

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
            f"{result.unjudged:,} rows are not judged: what they began with is not in the record"
        )
    if result.not_replayed:
        notes.append(f"{result.not_replayed:,} rows are of quota types that cannot be replayed yet")
    return notes


def _rows(args: argparse.Namespace) -> int:
    shown, found = on_record(args, "replaying", lambda record: _first_rows(record, args))
    if args.output == "json":
        print_json({"hidden_rows": found - len(shown), "rows": [_row_json(row) for row in shown]})
    elif shown:
        header = list(shown[0])
        lines = [[_cell(row[name]) for name in header] for row in shown]
        names = [header.index(name) for name in ("gateway", "run_id", "tags")]
        print(text_table(header, lines, left=3, names=names))
    say_hidden(len(shown), found, "rows")
    return NEGATIVE if any(row["equal"] is False for row in shown) else DONE


def _first_rows(record: Record, args: argparse.Namespace) -> tuple[list[dict[str, Any]], int]:
    """Return the first rows, those that differ before all others, and how many there are in all."""
    from pyspark.sql import functions as F  # noqa: N812

    from kvota.pipeline.law_check import LAW_COLUMNS, replay_rows

    rows = replay_rows(record.chunks(further=LAW_COLUMNS))
    save(rows, "replay_rows", args)
    order = (F.col("equal").asc_nulls_last(), "gateway", "run_id", "seq")
    first, found = first_of(rows, lambda table: table.orderBy(*order), args.top)
    return [row.asDict() for row in first], found


def _candidates(args: argparse.Namespace) -> int:
    if args.mode != "open" and any(types == _ID_TYPES for types, _ in args.candidates or ()):
        msg = (
            f"--mode {args.mode}: new producer ids are replayed in the open loop only, as no row says when one "
            "that a candidate refuses would come again. Leave --mode away"
        )
        raise UsageError(msg)
    tried = on_record(args, "replaying", lambda record: _replayed(record, args))
    rows = tried.rows
    shown = len({row["counter_id"] for row in rows})
    if args.factors and rows and not tried.has_quotas:
        msg = (
            "--factors: no quota was in force in the record, and a multiple of none is none. Name the "
            "quotas to try with --candidates"
        )
        raise UsageError(msg)
    if args.output == "json":
        hidden = tried.counters - shown
        print_json({"hidden_counters": hidden, "rows": [_json(row) for row in rows]})
    elif rows:
        print(_table(tried, args))
    else:
        print("the record has no decision these candidates are for")
    say_hidden(shown, tried.counters, "counters")
    if tried.has_ids_left_out:
        note = (
            "--factors leaves new producer ids out; try quotas for them: --candidates 50ids,100ids"
        )
        print(f"kvota: {note}", file=sys.stderr)
    return DONE if rows else NEGATIVE


@dataclass(frozen=True, slots=True)
class _Tried:
    """What was replayed under candidates.

    Attributes:
        rows: of the largest counters, each with a row per candidate.
        counters: how many there are.
        has_quotas: any of them has, or had, a quota.
        has_both_modes: some were enforced, and some in shadow mode.
        has_ids_left_out: there are new producer ids, which are not tried.
        runs: what to call a run, by its id.
    """

    rows: list[dict[str, Any]]
    counters: int
    has_quotas: bool
    has_both_modes: bool
    has_ids_left_out: bool
    runs: Mapping[str, str]


def _replayed(record: Record, args: argparse.Namespace) -> _Tried:
    from kvota.pipeline.counters import ID_TYPES, REPLAYED_TYPES
    from kvota.pipeline.producer_ids import ID_COLUMNS, replay_ids
    from kvota.pipeline.replay_tables import Factors, replay

    groups: list[_Group] = args.candidates or [(None, args.factors)]
    types = (*REPLAYED_TYPES, *ID_TYPES) if args.factors else REPLAYED_TYPES
    apart = args.by != "counter"  # as they were recorded, counters are whole
    chunks = record.chunks(args.by, quota_types=types, modes_apart=apart)
    kept = chunks.persist() if len(groups) > 1 or args.factors else chunks
    tables = [
        replay(
            kept if quota_types is None else kept.of_types(quota_types),
            Factors(quotas) if args.factors else quotas,
            counted=counted(args),
            mode=args.mode,
        )
        for quota_types, quotas in groups
        if quota_types != _ID_TYPES
    ]
    tables += [
        replay_ids(
            record.chunks(args.by, further=ID_COLUMNS, quota_types=ID_TYPES, modes_apart=apart),
            quotas,
        )
        for quota_types, quotas in groups
        if quota_types == _ID_TYPES
    ]
    if args.save is not None:
        save(reduce(_with, tables), "replay", args)
    found = [_largest(table, args.top) for table in tables]
    has_ids = bool(args.factors) and kept.of_types(ID_TYPES).has_rows()
    if kept is not chunks:
        kept.unpersist()
    largest = [rows for part in found for rows in part.largest]
    largest.sort(key=lambda rows: rows[0]["value_sum"], reverse=True)
    return _Tried(
        rows=[row for rows in largest[: args.top] for row in rows],
        counters=sum(part.counters for part in found),
        has_quotas=any(part.quotas for part in found),
        has_both_modes=any(part.enforced for part in found) and any(part.shadow for part in found),
        has_ids_left_out=has_ids,
        runs=_names_of_runs(record),
    )


def _with(table: "DataFrame", other: "DataFrame") -> "DataFrame":
    return table.unionByName(other)


def _names_of_runs(record: Record) -> dict[str, str]:
    """What to call a run, by its id; nothing where there is but one."""
    runs = record.found.runs
    if len(runs) < 2:
        return {}
    several = len({run.gateway for run in runs}) > 1
    return {
        run.run_id: f"{f'gateway {name_on_screen(run.gateway)}, ' if several else ''}run {name_on_screen(run.run_id)} of "
        f"{format_moment(run.first_us)} UTC"
        for run in runs
    }


@dataclass(frozen=True, slots=True)
class _Largest:
    """Of one table of results: the largest counters, how many there are, and how many rows say what."""

    largest: list[list[dict[str, Any]]]
    counters: int
    quotas: int
    enforced: int
    shadow: int


def _largest(table: "DataFrame", count: int) -> _Largest:
    """Return the counters with the largest sums; one job."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    of_all = Observation()
    mode = F.col("enforced").cast("int")
    every = table.observe(
        of_all,
        F.count("quota").alias("quotas"),
        F.coalesce(F.sum(mode), F.lit(0)).alias("enforced"),
        F.coalesce(F.sum(1 - mode), F.lit(0)).alias("shadow"),
    )
    of_counters = every.groupBy("counter_id").agg(
        F.max("value_sum").alias("total"), F.collect_list(F.struct(*table.columns)).alias("rows")
    )
    order = (F.col("total").desc(), "counter_id")
    first, found = first_of(of_counters, lambda counters: counters.orderBy(*order), count)
    largest = [
        sorted((row.asDict() for row in counter["rows"]), key=lambda row: row["candidate"])
        for counter in first
    ]
    seen = of_all.get
    return _Largest(largest, found, seen["quotas"], seen["enforced"], seen["shadow"])


def _table(tried: _Tried, args: argparse.Namespace) -> str:
    closed = args.mode != "open"
    header = ["limit", "requests over", "time throttled", "worst", "rejected"]
    header += ["longest delay"] if closed else []
    groups: dict[int, tuple[str, list[list[str]]]] = {}
    for row in tried.rows:
        group = groups.setdefault(row["counter_id"], (_whose(row, tried), []))
        group[1].append(_cells(row, args))
    ways = dict.fromkeys(_how_counted(row, args) for row in tried.rows)
    first = wrapped(f"{args.mode} loop, {'; '.join(ways)}")
    return "\n".join([*first, grouped_table(header, groups.values())])


def _whose(row: Mapping[str, Any], tried: _Tried) -> str:
    """Say what the counter counts; where the record has several runs, also in which one, for each has its own."""
    names = [
        f"{word} {cut_between(on_one_line(row[name]), _NAME_COLUMNS)}"
        for word, name in (("user", "user"), ("client id", "client_id"))
        if row[name]
    ]
    broker = "all brokers" if row["node_id"] == -1 else f"broker {row['node_id']}"
    if not names and row["tags"] not in _NOBODYS:  # those of a quota callback
        names = [f"tags {name_on_screen(row['tags'])}"]
    parts = [f"{', '.join(names) or 'all clients'}: {row['quota_type']}", broker]
    if tried.has_both_modes:
        parts.append("enforced" if row["enforced"] else "in shadow mode")
    if row["run_id"] in tried.runs:
        parts.append(tried.runs[row["run_id"]])
    return ", ".join(parts)


def _cells(row: Mapping[str, Any], args: argparse.Namespace) -> list[str]:
    delay = [format_duration_ms(row["delay_ms_max"])] if args.mode != "open" else []
    return [
        _limit(row, raw=args.raw),
        f"{row['share_over']:.2%}",
        f"{row['share_throttled']:.2%}",
        format_duration_ms(row["worst_ms"]),
        f"{row['rejected']:,}",
        *delay,
    ]


def _how_counted(row: Mapping[str, Any], args: argparse.Namespace) -> str:
    length = format_duration_ms(row["sample_ms"])
    if row["quota_type"] in _ID_TYPES:
        return f"new producer ids in windows of {length}"
    if row["quota_type"] in _BYTE_TYPES and row["algorithm"] == Algorithm.TOKEN_BUCKET:
        most = format_duration_ms(counted(args).debt_max_ms)
        return f"token_bucket with a burst of {length} and {most} of debt"
    return f"{row['samples']} samples of {length}"


def _limit(row: Mapping[str, Any], *, raw: bool) -> str:
    if row["quota"] is None:
        return "none"
    if row["quota_type"] in _ID_TYPES:  # as it was asked for
        return f"{round(row['quota'] * row['sample_ms'] / 1000.0, 9):g} ids"
    return amount(row["quota_type"], row["quota"], raw=raw)


def _json(row: Mapping[str, Any]) -> dict[str, object]:
    named = dict(row) | {"unit": unit_of(row["quota_type"])}
    named["counter_id"] = str(
        row["counter_id"]
    )  # beyond what a JSON reader's numbers can tell apart
    return {_JSON_NAMES.get(name, name): value for name, value in named.items()}


def _cell(value: object) -> str:
    return "" if value is None else on_one_line(str(value))


def _quotas(text: str) -> list[_Group]:
    """Read quotas, put together by the quota types that they are for."""
    groups: dict[tuple[str, ...], list[float]] = {
        types: [] for types in (_BYTE_TYPES, _PERCENT_TYPES, _OTHER_TYPES, _ID_TYPES)
    }
    for part in text.split(","):
        if not part.strip():
            msg = f'"{text}" has a quota missing; write them without blanks, e.g. 2MB/s,4MB/s'
            raise argparse.ArgumentTypeError(msg)
        try:
            types, quota = _quota(part)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        if quota <= 0:
            msg = f'"{part}" is not above 0'
            raise argparse.ArgumentTypeError(msg)
        groups[types].append(quota)
    return [(types, quotas) for types, quotas in groups.items() if quotas]


def _quota(part: str) -> tuple[tuple[str, ...], float]:
    """Bytes are for bandwidth, ``%`` for request time, ``ids`` for producer ids, others (``5/s``) for mutations."""
    of_ids = _NAMES_IDS.fullmatch(part)
    if of_ids:
        return _ID_TYPES, float(of_ids[1])
    if part.rstrip().endswith("%"):
        return _PERCENT_TYPES, parse_percent(part)
    quota = parse_byte_rate(part)
    if quota > 0 and "/" not in part:
        number = part.strip()
        msg = (
            f'"{part}" has no unit; write e.g. {number}MB/s (bandwidth), {number}/s (mutations) or '
            f"{number}ids (new producer ids in their window)"
        )
        raise argparse.ArgumentTypeError(msg)
    return (_BYTE_TYPES if _NAMES_BYTES.search(part) else _OTHER_TYPES), quota


def _factors(text: str) -> list[float]:
    try:
        factors = [float(part) for part in text.split(",")]
    except ValueError:
        factors = [0.0]
    if not all(0 < factor < float("inf") for factor in factors):
        msg = f'"{text}" is not a list of factors above 0, e.g. 0.5,1,2'
        raise argparse.ArgumentTypeError(msg)
    return factors
