"""``kvota forecast`` says when a volume reaches its limits, and when a tenant outgrows its quota."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvota.app.cli.any_table import TABLE_OPTIONS
from kvota.app.cli.converting import BAD_OPTIONS, CONVERTING_OPTIONS, given_options
from kvota.app.cli.durations import duration_ms
from kvota.app.cli.event_options import period
from kvota.app.cli.exit_codes import DONE, NEGATIVE
from kvota.app.cli.json_output import print_json
from kvota.app.cli.places import a_path
from kvota.app.cli.progress import working
from kvota.app.cli.request_log import LOG_OPTIONS
from kvota.app.cli.spark_events import (
    add_event_options,
    add_save_option,
    add_top_option,
    check_save,
    given_spark_options,
    save,
    say_hidden,
    spark_beside,
)
from kvota.app.forecast_words import (
    bytes_text,
    growth_text,
    in_hours,
    interval_text,
    likely_text,
    reached_text,
    volume_name,
)
from kvota.app.text_table import text_table
from kvota.files.command_name import called
from kvota.model.errors import UsageError
from kvota.model.plain_text import name_on_screen, on_one_line
from kvota.model.units import format_moment

if TYPE_CHECKING:
    from kvota.volumes.limits_ahead import Ahead, LimitAhead

EXAMPLE = "{kvota} forecast --events record -c gateway.toml --horizon 72h"

HOUR_MS = 3_600_000
_HORIZON_H_MAX = 90 * 24
_HEADER = ("broker", "log dir", "limit", "at", "used", "grows a day", "reached in", "or", "likely")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_event_options(parser)
    parser.add_argument(
        "-c",
        "--config",
        type=a_path,
        metavar="FILE",
        help="gateway.toml whose [kafka] table has the soft and hard limits of volumes (default: only when they are full)",
    )
    parser.add_argument(
        "--horizon",
        type=horizon_h,
        default=72,
        metavar="TIME",
        help="how far ahead, 1h to 90d (default: 72h)",
    )
    parser.add_argument(
        "--tenants",
        action="store_true",
        help="when tenants outgrow their quotas, with Spark, in place of volumes",
    )
    parser.add_argument(
        "--by",
        choices=("user", "client", "user-client"),
        help="whose charges are counted together, with --tenants (default: user)",
    )
    add_top_option(parser, "limits or tenants")
    add_save_option(parser, "the forecast")


def horizon_h(text: str) -> int:
    """Read how far ahead to look, in whole hours.

    Raises:
        ArgumentTypeError: it is none, or too far.
    """
    hours = -(-duration_ms(text) // HOUR_MS)
    if not 1 <= hours <= _HORIZON_H_MAX:
        msg = f'"{text}" is not between 1h and 90d'
        raise argparse.ArgumentTypeError(msg)
    return hours


def run(args: argparse.Namespace) -> int:
    """Print what is ahead; return 1 where a limit is more likely reached than not, or nothing is known."""
    check_save(args)
    if args.tenants:
        if args.config is not None:
            msg = f"--config {args.config}: it has limits of volumes, and --tenants is about quotas. Leave one of the two away"
            raise UsageError(msg)
        from kvota.app.cli.forecast_tenants import run_tenants

        args.by = args.by or "user"
        return run_tenants(args)
    _refuse_for_volumes(args)
    ahead = volumes_ahead(args.events, args)
    if args.save is not None:
        _save(ahead, args)
    shown = ahead.rows[: args.top]
    if args.output == "json":
        print_json(_json(ahead, args))
    elif shown:
        print(_table(shown, args))
    else:
        print("the record has no two looks at a volume")
    if args.output == "table":
        say_hidden(len(shown), len(ahead.rows), "limits")
    for note in volume_notes(ahead):
        print(f"kvota: {note}", file=sys.stderr)
    is_likely = any(row.reached.hours_p50 is not None for row in ahead.rows)
    return NEGATIVE if is_likely or not ahead.rows else DONE


def _refuse_for_volumes(args: argparse.Namespace) -> None:
    """Refuse what is for tenants only.

    Raises:
        UsageError: something is.
    """
    if args.request_log:
        msg = f"--request-log: brokers' logs tell nothing of volumes. Write {called()} forecast --tenants --request-log …"
        raise UsageError(msg)
    of_tenants = (("--by", args.by is not None), ("--table", args.table is not None))
    if given := [option for option, is_there in of_tenants if is_there]:
        msg = f"{', '.join(given)}: only with --tenants; volumes have no tenants"
        raise UsageError(msg)
    of_decisions = (*LOG_OPTIONS, *TABLE_OPTIONS, *CONVERTING_OPTIONS, *BAD_OPTIONS)
    if given := given_options(args, of_decisions):
        msg = f"{', '.join(given)}: only with --tenants; damaged files of volumes are named and left out"
        raise UsageError(msg)
    if args.save is None and (given := given_spark_options(args)):
        msg = (
            f"{', '.join(given)}: only with --tenants or --save; to forecast volumes needs no Spark"
        )
        raise UsageError(msg)


def _save(ahead: "Ahead", args: argparse.Namespace) -> None:
    """Keep all of it; this needs Spark."""
    with spark_beside(args) as spark:
        from kvota.pipeline.volume_tables import forecast_table

        save(forecast_table(spark, ahead), "forecast", args)


def volumes_ahead(places: Sequence[str], args: argparse.Namespace) -> "Ahead":
    """Read the looks of a record and forecast each volume, without Spark; say which files were left out."""
    from kvota.record.volume_looks import find_looks
    from kvota.volumes.limits_ahead import limits_ahead

    limit = None
    if args.config is not None:
        from kvota.app.config import load_files

        limit = load_files(args.config)[0].kafka.volumes.limit
    with working("reading the looks at volumes"):
        found = find_looks(places, period(args))
        for line in found.bad:
            print(f"kvota: {on_one_line(line)}", file=sys.stderr)
        return limits_ahead(found.histories, limit, horizon_h=args.horizon)


def volume_notes(ahead: "Ahead") -> Iterator[str]:
    """What whoever reads the forecast has to know."""
    short = {id(row.history) for row in ahead.rows if row.forecast.method == "short"}
    if short:
        yield (
            f"short: of {len(short)} volumes there are less than 72 h of looks, so the times are by the mean, the "
            "largest and the least growth that was seen"
        )
    resets = {id(row.history): row.forecast.resets for row in ahead.rows}
    if sum(resets.values()):
        yield (
            f"{sum(resets.values())} hours in which much was deleted or moved away are no part of the growth: this is what "
            "comes if nothing is deleted"
        )
    for histories, why in (
        (ahead.gone, "not seen in the last day of the record"),
        (ahead.seen_once, "looked at only once"),
    ):
        if histories:
            names = ", ".join(volume_name(history) for history in histories[:3])
            more = f" and {len(histories) - 3} more" if len(histories) > 3 else ""
            yield f"{why}, so left out: {names}{more}"


def _table(rows: Sequence["LimitAhead"], args: argparse.Namespace) -> str:
    as_of = max(row.forecast.as_of_us for row in rows)
    first = (
        f"the next {in_hours(args.horizon)} from {format_moment(as_of)} UTC; in brackets 80 % intervals; "
        "at: so much is used then"
    )
    cells = [
        [
            "here" if row.history.broker_id is None else str(row.history.broker_id),
            ", ".join(map(name_on_screen, row.history.log_dirs)),
            row.kind,
            bytes_text(row.limit_bytes, raw=args.raw),
            bytes_text(row.forecast.used_bytes, raw=args.raw),
            growth_text(row, raw=args.raw),
            reached_text(row, args.horizon),
            interval_text(row, args.horizon),
            likely_text(row),
        ]
        for row in rows
    ]
    return f"{first}\n\n{text_table(_HEADER, cells, left=3, names=())}"


def _json(ahead: "Ahead", args: argparse.Namespace) -> dict[str, object]:
    return {
        "horizon_h": args.horizon,
        "limits": [limit_json(row) for row in ahead.rows],
        "left_out": [
            {"broker_id": each.broker_id, "log_dirs": list(each.log_dirs)}
            for each in (*ahead.gone, *ahead.seen_once)
        ],
    }


def limit_json(row: "LimitAhead") -> dict[str, object]:
    """Return a row for programs."""
    history, forecast, reached = row.history, row.forecast, row.reached
    return {
        "as_of_us": forecast.as_of_us,
        "observer": history.observer or None,
        "broker_id": history.broker_id,
        "log_dirs": list(history.log_dirs),
        "device": history.device,
        "limit_kind": row.kind,
        "limit_bytes": round(row.limit_bytes),
        "used_bytes": round(forecast.used_bytes),
        "total_bytes": int(history.total_bytes[-1]),
        **{
            f"growth_p{share}_bytes_per_day": forecast.growth_per_day(share / 100)
            for share in (10, 50, 90)
        },
        "reached_p10_h": reached.hours_p10,
        "reached_p50_h": reached.hours_p50,
        "reached_p90_h": reached.hours_p90,
        "reached_ratio": reached.probability,
        "history_h": forecast.history_h,
        "resets": forecast.resets,
        "method": forecast.method,
        "skill_ratio": forecast.skill,
    }
