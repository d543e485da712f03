"""``kvota usage --minutes`` shows what ``kvota ingest`` keeps of usage, without Spark."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvota.app.cli.durations import duration_above_0_ms
from kvota.app.cli.event_options import period
from kvota.app.cli.exit_codes import DONE, NEGATIVE
from kvota.app.cli.json_output import print_json
from kvota.app.cli.spark_events import say_hidden
from kvota.app.cli.usage_words import amount, unit_of
from kvota.app.text_table import sparkline, text_table
from kvota.files.command_name import called
from kvota.model.errors import UsageError
from kvota.model.plain_text import on_one_line
from kvota.model.units import format_duration_ms, format_moment

if TYPE_CHECKING:
    from kvota.record.kept_usage import KeptUsage

# How many bars a picture has.
_BARS = 24
_MINUTE_S = 60

# What stands for the limit of somebody else.
_SHARED = "*"

Row = Mapping[str, Any]


def add_minutes_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--minutes",
        action="store_true",
        help=f"what {called()} ingest has kept of each minute, at once and without Spark; the last batch is in it",
    )
    parser.add_argument(
        "--last",
        type=duration_above_0_ms,
        metavar="TIME",
        help="with --minutes: so much before the newest decision, in whole minutes, e.g. 15m",
    )


def run_minutes(args: argparse.Namespace) -> int:
    """Print tenants by their share of the quota in force; return 1 where there is nothing of that time."""
    _check(args)
    from kvota.record.kept_usage import kept_usage

    last_s = None if args.last is None else -(-args.last // 1000)
    kept = kept_usage(args.events[0], args.by, period=period(args), last_s=last_s)
    used = _used(kept, args.top)
    if args.output == "json":
        print_json(_json(used, kept, args))
    elif used.rows:
        print(_table(used, args))
    elif kept.latest_us is None:
        print("no usage has been kept yet")
    else:
        print(
            f"nothing was used in that time; the newest decision is of {format_moment(kept.latest_us)} UTC"
        )
    say_hidden(len(used.rows), used.tenants, "lines")
    for note in _notes(used, kept):
        print(f"kvota: {note}", file=sys.stderr)
    return DONE if used.rows else NEGATIVE


def _check(args: argparse.Namespace) -> None:
    """See that the options go together.

    Raises:
        UsageError: they do not.
    """
    if not args.minutes:
        msg = "--last means nothing without --minutes; use --since"
        raise UsageError(msg)
    if args.events is None or len(args.events) != 1:
        msg = f"--minutes needs --events with one folder: that of {called()} ingest --into"
        raise UsageError(msg)
    if args.save is not None:
        msg = "--save keeps what Spark counts; what --minutes shows is a table already: the files of _usage in the record"
        raise UsageError(msg)
    if args.last is not None and (args.since is not None or args.until is not None):
        msg = "--last and --since or --until name two times; take one away"
        raise UsageError(msg)


@dataclass(frozen=True, slots=True)
class _Used:
    """What tenants used.

    Attributes:
        rows: the first ones of the ranking, with their ``minutes``.
        tenants: how many there are in all.
        events: of all of them.
        start_s: when the first minute begins.
        span_s: from then up to the newest decision.
    """

    rows: Sequence[Row]
    tenants: int
    events: int
    start_s: int
    span_s: int


def _used(kept: "KeptUsage", top: int) -> _Used:
    import numpy as np

    from kvota.record.usage_sums import by_tenant, minute_of, numbers_in, truths

    lines = kept.lines
    if not lines.num_rows:
        return _Used([], 0, 0, 0, 1)
    minute = minute_of(lines)
    start_s, end_s = int(minute.min()), int(minute.max()) + _MINUTE_S
    latest_s = (kept.latest_us or 0) // 1_000_000 + 1
    span_s = (min(end_s, latest_s) if latest_s > start_s else end_s) - start_s
    tenants = by_tenant(lines)
    totals = tenants.totals
    most_per_s = tenants.minute_max / _MINUTE_S
    limits = numbers_in(totals["limit_last"])
    binds = (numbers_in(totals["limit_binds"]) > 0) & (limits > 0)
    share = np.divide(most_per_s, limits, out=np.full(len(limits), -1.0), where=binds)
    values = numbers_in(totals["value_sum"])
    chosen = np.lexsort((-values, -share))[:top]
    every: list[dict[str, Any]] = []
    for place in chosen.tolist():
        row = _plain(totals.slice(place, 1))[0]
        of_tenant = _plain(lines.filter(truths(tenants.of_line == place)))
        every.append(
            row
            | {
                "rate_mean": row["value_sum"] / span_s,
                "rate_60s_max": float(most_per_s[place]),
                "limit_share": float(share[place]) if binds[place] else None,
                "minutes": sorted(of_tenant, key=lambda line: line["start_s"]),
            }
        )
    events = int(numbers_in(totals["events"]).sum())
    return _Used(every, totals.num_rows, events, start_s, span_s)


def _plain(lines: Any) -> list[dict[str, Any]]:
    """Return lines of a table as values: an empty name as none, as ``usage`` has it, and times as whole seconds."""
    from kvota.record.usage_sums import minute_of

    rows = lines.drop_columns(["window_start"]).to_pylist()
    return [
        row | {name: row[name] or None for name in ("user", "client_id")} | {"start_s": start_s}
        for row, start_s in zip(rows, minute_of(lines).tolist(), strict=True)
    ]


def _table(used: _Used, args: argparse.Namespace) -> str:
    from kvota.record.usage_sums import LEVELS

    names = LEVELS[args.by]
    header = [
        *names,
        "quota",
        "broker",
        "requests",
        "mean",
        "most in 1 min",
        "most in 1 s",
        "limit",
        "of limit",
        "throttled",
        "rejected",
        "by the minute",
    ]
    rows = [
        [
            *("(none)" if row[name] is None else on_one_line(row[name]) for name in names),
            row["quota_type"],
            "all" if row["node_id"] == -1 else str(row["node_id"]),
            f"{row['events']:,}",
            *(
                amount(row["quota_type"], row[name], raw=args.raw)
                for name in ("rate_mean", "rate_60s_max", "rate_max")
            ),
            _limit_cell(row, raw=args.raw),
            "" if row["limit_share"] is None else f"{row['limit_share']:.0%}",
            _would_be(row, row["throttled"]),
            _would_be(row, row["rejected"]),
            sparkline(_bars(row, used)),
        ]
        for row in used.rows
    ]
    table = text_table(
        header,
        rows,
        left=len(names) + 1,
        last_left=True,
        keys=header.index("broker") + 1,
        names=range(len(names)),
    )
    span = format_duration_ms(used.span_s * 1000)
    start = format_moment(used.start_s * 1_000_000)
    return f"{span} from {start} UTC; rates per broker\n\n{table}"


def _bars(row: Row, used: _Used) -> list[float]:
    """Return what is drawn: a bar for each minute, or for several where there are many."""
    minutes = -(-used.span_s // _MINUTE_S)
    each = -(-minutes // _BARS)
    bars = [0.0] * -(-minutes // each)
    for line in row["minutes"]:
        place = (line["start_s"] - used.start_s) // _MINUTE_S // each
        if place < len(bars):  # else of a clock that is ahead
            bars[place] += line["value_sum"]
    return bars


def _limit_cell(row: Row, *, raw: bool) -> str:
    if row["limit_last"] is None:
        return "none"
    return amount(row["quota_type"], row["limit_last"], raw=raw) if row["limit_binds"] else _SHARED


def _would_be(row: Row, count: int) -> str:
    """Return a share of decisions; in shadow mode nobody was held back."""
    share = f"{count / max(row['decisions'], 1):.1%}"
    return share if row["enforced"] or not count else f"would be {share}"


def _is_late(row: Row) -> bool:
    return int(row["parts"]) > len(row["minutes"])


def _notes(used: _Used, kept: "KeptUsage") -> list[str]:
    notes = []
    if any(_is_late(row) for row in used.rows):
        notes.append(
            'some decisions came after their minute had been closed: sums have them, but "most in 1 s" may not be exact'
        )
    if any(row["limit_last"] is not None and not row["limit_binds"] for row in used.rows):
        notes.append(
            f'"{_SHARED}": the limit is of a counter of other names: another --by shows it, or it is a group\'s'
        )
    if kept.uncounted:
        notes.append(
            f"{kept.uncounted:,} decisions had been in the record before usage was kept, and are not in it; without "
            "--minutes they are counted"
        )
    return notes


def _json(used: _Used, kept: "KeptUsage", args: argparse.Namespace) -> dict[str, object]:
    return {
        "by": args.by,
        "latest_us": kept.latest_us,
        "start_us": used.start_s * 1_000_000,
        "span_s": used.span_s,
        "uncounted_decisions": kept.uncounted,
        "hidden_rows": used.tenants - len(used.rows),
        "hidden_events": used.events - sum(row["events"] for row in used.rows),
        "rows": [_json_row(row) for row in used.rows],
    }


def _json_row(row: Row) -> dict[str, object]:
    return {
        "quota_type": row["quota_type"],
        "level": row["level"],
        "user": row["user"],
        "client_id": row["client_id"],
        "node_id": row["node_id"],
        "unit": unit_of(row["quota_type"]),
        "enforced": row["enforced"],
        **_json_counts(row),
        "rate_mean_per_s": row["rate_mean"],
        "rate_60s_max_per_s": row["rate_60s_max"],
        "limit_ratio": row["limit_share"],
        "has_late_events": _is_late(row),
        "minutes": [
            {"start_us": line["start_s"] * 1_000_000} | _json_counts(line)
            for line in row["minutes"]
        ],
    }


def _json_counts(row: Row) -> dict[str, object]:
    return {
        "events": row["events"],
        "decisions": row["decisions"],
        "value_sum": row["value_sum"],
        "rate_max_per_s": row["rate_max"],
        "limit_per_s": row["limit_last"] if row["limit_binds"] else None,
        "limit_is_shared": row["limit_last"] is not None and not row["limit_binds"],
        "throttled_events": row["throttled"],
        "rejected_events": row["rejected"],
        "throttled_ratio": (row["throttled"] + row["rejected"]) / max(row["decisions"], 1),
        "throttle_ms_sum": row["throttle_ms_sum"],
    }
