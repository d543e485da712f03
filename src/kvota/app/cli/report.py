"""``kvota report`` writes one HTML file with plots that loads nothing from elsewhere."""

import argparse
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kvota.app.cli.exit_codes import DONE
from kvota.app.cli.forecast import horizon_h, volume_notes, volumes_ahead
from kvota.app.cli.places import a_path
from kvota.app.cli.plan_values import count
from kvota.app.cli.progress import working
from kvota.app.cli.spark_events import Record, add_event_options, on_record
from kvota.app.system_clock import SystemClock
from kvota.files.cache import cache_folder
from kvota.files.command_name import called
from kvota.model.client_quotas import ClientQuotas
from kvota.model.errors import NegativeError, UnreachableError, UsageError
from kvota.model.plain_text import on_one_line
from kvota.model.units import format_bytes, format_moment

if TYPE_CHECKING:
    from kvota.app.report.content import Content
    from kvota.app.report.reading import PlanFile, Used
    from kvota.record.found_events import FoundEvents
    from kvota.record.period import Period
    from kvota.volumes.limits_ahead import Ahead

EXAMPLE = "{kvota} report --sample -o report.html"

# Whoever looks at kvota for the first time waits until these are compiled.
_KERNELS = ("open loops", "grid", "packing", "usage")
_PLOTS = 10
_PLOTS_MAX = 200


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    place = add_event_options(parser, shows=False)
    place.add_argument(
        "--sample",
        action="store_true",
        help="the sample record that comes with kvota, for a first look",
    )
    parser.add_argument(
        "-o",
        "--out",
        type=a_path,
        default=Path("report.html"),
        metavar="FILE",
        help="the file to write (default: report.html)",
    )
    parser.add_argument(
        "--quotas",
        type=a_path,
        metavar="FILE",
        help="quotas in force, quotas.toml or quotas.yaml (default: as recorded)",
    )
    parser.add_argument(
        "--plan",
        type=a_path,
        metavar="FILE",
        help=f"a plan of {called()} recommend --plan-file: who would be held back by it",
    )
    parser.add_argument(
        "--by",
        choices=("user", "client", "user-client"),
        default="user",
        help="whose charges are counted together (default: user)",
    )
    parser.add_argument(
        "--plots",
        type=count,
        default=_PLOTS,
        metavar="N",
        help=f"of how many lines, and of how many disks, there are plots (default: {_PLOTS})",
    )
    parser.add_argument(
        "-c",
        "--config",
        type=a_path,
        metavar="FILE",
        help="gateway.toml whose [kafka] table has the soft and hard limits of volumes",
    )
    parser.add_argument(
        "--horizon",
        type=horizon_h,
        default=72,
        metavar="TIME",
        help="how far ahead disks are forecast, 1h to 90d (default: 72h)",
    )


def run(args: argparse.Namespace) -> int:
    """Read, draw and write."""
    _check_here(args)
    with ExitStack() as stack:
        if args.sample:
            from kvota.app.report.sample import sample_places

            places = stack.enter_context(sample_places())
            args.events = [str(places.record)]
            args.plan = args.plan or places.plan
            args.config = args.config or places.config
            print(f"kvota: the sample record is in {places.record}", file=sys.stderr)
        content = _content(args)
    # What matplotlib keeps of the machine's fonts lies with all else that kvota keeps.
    os.environ.setdefault("MPLCONFIGDIR", str(cache_folder() / "matplotlib"))
    with working("drawing"):
        from kvota.app.report.page import page

        html = page(content).encode()
    _write(args.out, html)
    print(
        f"{args.out}: {format_bytes(len(html))}, open it in a browser; it loads nothing from elsewhere"
    )
    return DONE


def _check_here(args: argparse.Namespace) -> None:
    """Refuse before the work what its end would show.

    Raises:
        UsageError: the file cannot be written, or there would be too many plots.
        ModuleNotFoundError: what draws is not installed.
    """
    from kvota.app.cli.recommend import check_writable

    for package in ("jinja2", "matplotlib"):
        if find_spec(package) is None:
            raise ModuleNotFoundError(name=package)
    if args.plots > _PLOTS_MAX:
        msg = f"--plots {args.plots}: more than {_PLOTS_MAX} plots make a file that no browser likes. The table has all lines"
        raise UsageError(msg)
    check_writable(args.out)


def _content(args: argparse.Namespace) -> "Content":
    from kvota.app.report.content import Content
    from kvota.app.report.volume_plots import volume_plots

    in_force, plan = _quotas(args)
    ahead = _ahead(args) if args.events else None
    notes = [] if ahead is None else list(volume_notes(ahead))
    gateways: list[str] = []
    bad: list[str] = []
    decisions = 0

    def read(record: Record) -> "Used":
        from kvota.app.report.reading import read_used
        from kvota.pipeline.usage_tables import USAGE_COLUMNS

        nonlocal decisions
        inside = record.found.within(record.period)
        _refuse_odd_times(inside, record.period)
        gateways[:] = sorted({run.gateway for run in inside.runs})
        bad[:] = [on_one_line(str(each)) for each in record.found.bad]
        decisions = inside.rows
        chunks = record.chunks(args.by, further=USAGE_COLUMNS, modes_apart=True)
        return read_used(chunks, plots=args.plots, in_force=in_force, plan=plan)

    used = on_record(args, "reading", read, _KERNELS)
    if not used.lines:
        msg = "the record has no decision that a report could show"
        raise NegativeError(msg)
    rows = [] if ahead is None else ahead.rows
    volumes, hidden = volume_plots(rows, horizon_h=args.horizon, most=args.plots)
    places = [str(place) for place in args.events or args.request_log or [args.table]]
    return Content(
        sources=["the sample record"] if args.sample else places,
        is_sample=args.sample,
        made_us=SystemClock().now_us(),
        version=version("kvota"),
        by=args.by,
        first_us=used.first_us,
        last_us=used.last_us,
        decisions=decisions,
        gateways=gateways,
        window_s=used.window_s,
        lines=used.lines,
        hidden_lines=used.hidden_lines,
        drawn=used.drawn,
        plan=used.plan
        if plan is None or used.plan is None
        else replace(used.plan, source=plan.source),
        horizon_h=args.horizon,
        volumes=volumes,
        hidden_volumes=hidden,
        notes=[*bad, *notes],
    )


def _ahead(args: argparse.Namespace) -> "Ahead | None":
    """What is ahead of the volumes; None where the record is elsewhere, and there are no looks to read."""
    from kvota.record.places import local_path

    here = [
        place for place in args.events if (path := local_path(place)) is not None and path.is_dir()
    ]
    return volumes_ahead(here, args) if here else None


def _refuse_odd_times(found: "FoundEvents", period: "Period") -> None:
    """Refuse what no axis of time has.

    Raises:
        UsageError: decisions are from before 1970, or from the end of all calendars.
    """
    from kvota.record.period import is_a_time

    first_us = max(period.since_us, min(run.first_us for run in found.runs))
    last_us = min(period.until_us - 1, max(run.last_us for run in found.runs))
    # An axis goes on a little beyond what it shows.
    if not (is_a_time(first_us) and is_a_time(last_us + (last_us - first_us))):
        msg = (
            f"the decisions are from {format_moment(first_us)} to {format_moment(last_us)} UTC, which no plot can show. "
            f"Name a part of them: --since 2026-11-01 --until 2026-12-01; {called()} record check names files with such times"
        )
        raise UsageError(msg)


def _quotas(args: argparse.Namespace) -> "tuple[ClientQuotas | None, PlanFile | None]":
    """Read the quotas in force and the plan."""
    from kvota.app.plan_file import load_quotas_in_force
    from kvota.app.report.reading import PlanFile
    from kvota.store.quotas_yaml import SUFFIXES, load_document

    in_force = None if args.quotas is None else load_quotas_in_force(args.quotas)
    if args.plan is None:
        return in_force, None
    if args.plan.suffix not in SUFFIXES:
        return in_force, PlanFile(args.plan.name, load_quotas_in_force(args.plan), None)
    document = load_document(args.plan)
    before = None if document.plan is None else document.plan.in_force
    return in_force, PlanFile(args.plan.name, document.wanted.quotas, before)


def _write(path: Path, html: bytes) -> None:
    from kvota.files.whole_file import write_whole

    try:
        write_whole(path, html)
    except OSError as error:
        msg = f"{path} could not be written: {error.strerror}"
        raise UnreachableError(msg) from error
