"""``kvota usage --minutes`` shows what ``kvota ingest`` keeps of usage, without Spark.

Producer ids are left out: different ids are counted there, in windows of their own, and charges of minutes do not say
how many those are.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvota.app.cli.any_table import TABLE_OPTIONS
from kvota.app.cli.converting import BAD_OPTIONS, CONVERTING_OPTIONS, given_options
from kvota.app.cli.durations import duration_above_0_ms
from kvota.app.cli.event_options import period
from kvota.app.cli.exit_codes import DONE, NEGATIVE
from kvota.app.cli.json_output import print_json
from kvota.app.cli.request_log import LOG_OPTIONS
from kvota.app.cli.spark_events import given_spark_options, say_hidden
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
from kvota.files.command_name import called
from kvota.model.errors import UsageError
from kvota.model.quota_type import QuotaType
from kvota.model.units import format_duration_ms, format_moment

if TYPE_CHECKING:
    from kvota.record.kept_usage import KeptUsage

_MINUTE_S = 60
# Without a time that somebody names: of thousands of tenants all that is kept are hundreds of millions of minutes.
_LAST_MS = 3_600_000

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
        help="with --minutes: so much before the newest decision, in whole minutes, e.g. 15m (default: --last 1h, unless "
        "--since or --until names a time)",
    )


def run_minutes(args: argparse.Namespace) -> int:
    """Print tenants by their share of the quota in force; return 1 where there is nothing of that time."""
    _check(args)
    from kvota.record.kept_usage import kept_usage

    last_ms = args.last
    if last_ms is None and args.since is None and args.until is None:
        last_ms = _LAST_MS
    last_s = None if last_ms is None else -(-last_ms // 1000)
    kept = kept_usage(args.events[0], args.by, period=period(args), last_s=last_s)
    used = _used(kept, args.top)
    if args.output == "json":
        print_json(_json(used, kept, args))
    elif used.rows:
        print(_table(used, args, is_last_hour=last_ms is not None and args.last is None))
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
    given = given_options(
        args, (*LOG_OPTIONS, *TABLE_OPTIONS, *CONVERTING_OPTIONS, *BAD_OPTIONS)
    ) + given_spark_options(args)
    if given:
        msg = f"{', '.join(given)}: not with --minutes, which reads what has been counted already and needs no Spark"
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
        start_s: when the first minute begins; None: nobody used anything.
        span_s: from then up to the newest decision.
        ids: so many lines of producer ids are left out.
    """

    rows: Sequence[Row]
    tenants: int
    events: int
    start_s: int | None
    span_s: int | None
    ids: int


def _used(kept: "KeptUsage", top: int) -> _Used:
    import numpy as np

    from kvota.record.usage_sums import but_type, by_tenant, minute_of, numbers_in, truths

    lines = but_type(kept.lines, QuotaType.PRODUCER_ID)
    ids = kept.lines.num_rows - lines.num_rows
    if not lines.num_rows:
        return _Used([], 0, 0, None, None, ids)
    minute = minute_of(lines)
    start_s, end_s = int(minute.min()), int(minute.max()) + _MINUTE_S
    latest_s = (kept.latest_us or 0) // 1_000_000 + 1
    span_s = (min(end_s, latest_s) if latest_s > start_s else end_s) - start_s
    tenants = by_tenant(lines)
    totals = tenants.totals
    most_per_s = tenants.minute_max / _MINUTE_S
    share, was_blocked = tenants.limit_share, tenants.was_blocked
    has_share = ~np.isnan(share)
    # Who was blocked is beyond any share; who never had a limit comes last.
    rank = np.where(was_blocked, np.inf, np.where(has_share, share, -1.0))
    values = numbers_in(totals["value_sum"])
    chosen = np.lexsort((-values, -np.where(has_share, share, -1.0), -rank))[:top]
    every: list[dict[str, Any]] = []
    for place in chosen.tolist():
        row = _plain(totals.slice(place, 1))[0]
        of_tenant = _plain(lines.filter(truths(tenants.of_line == place)))
        every.append(
            row
            | {
                "rate_mean": row["value_sum"] / span_s,
                "rate_60s_max": float(most_per_s[place]),
                "limit_share": float(share[place]) if has_share[place] else None,
                "was_blocked": bool(was_blocked[place]),
                "minutes": sorted(of_tenant, key=lambda line: line["start_s"]),
            }
        )
    events = int(numbers_in(totals["events"]).sum())
    return _Used(every, totals.num_rows, events, start_s, span_s, ids)


def _plain(lines: Any) -> list[dict[str, Any]]:
    """Return lines of a table as values: an empty name as none, as ``usage`` has it, and times as whole seconds."""
    from kvota.record.usage_sums import minute_of

    rows = lines.drop_columns(["window_start"]).to_pylist()
    return [
        row | {name: row[name] or None for name in ("user", "client_id")} | {"start_s": start_s}
        for row, start_s in zip(rows, minute_of(lines).tolist(), strict=True)
    ]


def _table(used: _Used, args: argparse.Namespace, *, is_last_hour: bool) -> str:
    from kvota.record.usage_sums import LEVELS

    names = LEVELS[args.by]
    further = [
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
            *who_cells(row, names),
            *(
                amount(row["quota_type"], row[name], raw=args.raw)
                for name in ("rate_mean", "rate_60s_max", "rate_max")
            ),
            limit_cell(row, raw=args.raw),
            _share_cell(row),
            would_be(row, row["throttled"]),
            would_be(row, row["rejected"]),
            sparkline(_bars(row, used)),
        ]
        for row in used.rows
    ]
    table = lines_table(names, further, rows)
    start_s, span_s = _time_of(used)
    span, start = format_duration_ms(span_s * 1000), format_moment(start_s * 1_000_000)
    last = " (--last 1h)" if is_last_hour else ""
    return f"{span} from {start} UTC{last}; rates per broker\n\n{table}"


def _share_cell(row: Row) -> str:
    share = "" if row["limit_share"] is None else f"{row['limit_share']:.0%}"
    return "limit 0" if row["was_blocked"] else share


def _time_of(used: _Used) -> tuple[int, int]:
    """Return when it begins, and how long it is; with rows it has both."""
    return used.start_s or 0, used.span_s or 1


def _bars(row: Row, used: _Used) -> list[float]:
    """Return what is drawn: a bar for each minute, or for several where there are many."""
    start_s, span_s = _time_of(used)
    minutes = -(-span_s // _MINUTE_S)
    each = -(-minutes // BARS)
    bars = [0.0] * -(-minutes // each)
    for line in row["minutes"]:
        place = (line["start_s"] - start_s) // _MINUTE_S // each
        if place < len(bars):  # else of a clock that is ahead
            bars[place] += line["value_sum"]
    return bars


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
            f'"{SHARED}": the limit is of a counter of other names: another --by shows it, or it is a group\'s'
        )
    if any(row["was_blocked"] for row in used.rows):
        notes.append(
            '"limit 0": at the end of a minute its limit was 0, as at a full disk, and in that minute it used something or was '
            "held back"
        )
    if used.ids:
        notes.append(
            f"{used.ids:,} lines of new producer ids are left out; without --minutes they are shown"
        )
    if kept.uncounted:
        notes.append(
            f"{kept.uncounted:,} decisions had been in the record before usage was kept, or were older than --usage-age-max "
            "when they came, and are not in it; without --minutes they are counted"
        )
    return notes


def _json(used: _Used, kept: "KeptUsage", args: argparse.Namespace) -> dict[str, object]:
    return {
        "by": args.by,
        "latest_us": kept.latest_us,
        "start_us": None if used.start_s is None else used.start_s * 1_000_000,
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
        "limit_was_0": row["was_blocked"],
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
