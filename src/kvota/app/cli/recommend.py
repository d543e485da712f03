"""``kvota recommend`` plans a quota for every tenant, under a capacity the operator states."""

import argparse
import errno
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvota.app.cli.counting_options import add_counting_options, counted
from kvota.app.cli.exit_codes import DONE, NEGATIVE
from kvota.app.cli.json_output import print_json
from kvota.app.cli.places import a_path
from kvota.app.cli.plan_values import (
    capacity,
    count,
    floor,
    hours,
    number,
    part,
    percent,
    weight,
)
from kvota.app.cli.recommend_text import notes, plan_json, plan_text
from kvota.app.cli.spark_events import (
    Record,
    add_event_options,
    add_save_option,
    check_save,
    on_record,
    save,
)
from kvota.files.command_name import called
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import UnreachableError, UsageError
from kvota.model.quota_type import QuotaType
from kvota.planning.guardrails import FLOORS, Guardrails
from kvota.planning.plan import HEADROOM, LEARN
from kvota.planning.plan_line import format_quota

if TYPE_CHECKING:
    from kvota.pipeline.recommendation import Recommendation, Wishes

EXAMPLE = (
    "{kvota} recommend --events kvota-demo/shadow/record --capacity PRODUCE=20MB/s "
    "--capacity CONTROLLER_MUTATION=10/s --min-hours 0"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_event_options(parser)
    parser.add_argument(
        "--quotas",
        type=a_path,
        metavar="FILE",
        help="quotas in force, quotas.toml or quotas.yaml (default: none)",
    )
    parser.add_argument(
        "--capacity",
        type=capacity,
        action="append",
        required=True,
        metavar="TYPE=RATE",
        help="what is there to share: PRODUCE=20MB/s and FETCH=50MB/s per broker, "
        "CONTROLLER_MUTATION=10/s per cluster; types without a capacity are left alone",
    )
    parser.add_argument(
        "--weight",
        type=weight,
        action="append",
        default=[],
        metavar="NAME=N",
        help="a user (or client id) counts for so many; may be repeated",
    )
    parser.add_argument("--by", choices=("user", "client", "user-client"), default="user")
    parser.add_argument(
        "--gateways",
        type=number,
        metavar="N",
        help="that will hold tenants to the quotas, each by itself: a capacity is divided by them "
        "(default: as many as the record names)",
    )
    parser.add_argument(
        "--overcommit",
        type=percent,
        default=0.0,
        metavar="PERCENT",
        help="plan, and judge what was held out, as if each capacity were so much larger (default: 0%%); what all "
        "quotas together promise is said beside the plan either way",
    )
    parser.add_argument(
        "--learn",
        type=part,
        default=LEARN,
        metavar="PERCENT",
        help="of the record's time, from its beginning; the rest judges the plan (default: 70%%)",
    )
    add_counting_options(parser)
    _add_guardrails(parser)
    parser.add_argument(
        "--plan-file",
        type=a_path,
        metavar="FILE",
        help=f"write the quotas of the plan into this file; {called()} quotas apply takes a .yaml",
    )
    add_save_option(parser, "the plan as a table")
    parser.add_argument(
        "--yes", action="store_true", help="write them into the file given with --quotas"
    )


def _add_guardrails(parser: argparse.ArgumentParser) -> None:
    rules = Guardrails()
    parser.add_argument(
        "--headroom",
        type=percent,
        default=HEADROOM,
        metavar="PERCENT",
        help="above the need (default: 20%%)",
    )
    group = parser.add_argument_group("guardrails")
    group.add_argument(
        "--min-hours",
        type=hours,
        default=rules.hours_min,
        metavar="HOURS",
        help="with traffic of the tenant's own, e.g. 24 or 2d; 0 for a trial (default: 24)",
    )
    group.add_argument(
        "--min-events",
        type=count,
        default=rules.events_min,
        metavar="N",
        help="of a tenant (default: 1000)",
    )
    group.add_argument(
        "--step-up", type=float, default=rules.step_up_max, help="at most x this (default: 2)"
    )
    group.add_argument(
        "--step-down",
        type=float,
        default=rules.step_down_max,
        help="at least x this (default: 0.5)",
    )
    group.add_argument(
        "--max-changes",
        type=count,
        default=rules.changes_max,
        metavar="N",
        help="at a time (default: 100)",
    )
    group.add_argument(
        "--floor",
        type=floor,
        action="append",
        default=[],
        metavar="TYPE=RATE",
        help="no quota of this type is planned below; may be repeated (default: "
        f"{', '.join(f'{kind} {format_quota(kind, rate)}' for kind, rate in FLOORS.items())})".replace(
            "%", "%%"
        ),
    )
    group.add_argument(
        "--exempt",
        action="append",
        default=[],
        metavar="USER",
        help="never change; may be repeated",
    )
    group.add_argument(
        "--allow-below-median",
        action="store_true",
        help="a tenant above its share may get less than its usual rate, the median",
    )


def run(args: argparse.Namespace) -> int:
    """Show the plan and its proof, write if asked; return 1 if what was held out does not confirm it."""
    if args.yes and args.quotas is None:
        msg = "--yes writes into the file of --quotas, and none was given. Name it, or use --plan-file"
        raise UsageError(msg)
    _refuse_twice("--capacity", [quota_type for quota_type, _ in args.capacity])
    _refuse_twice("--floor", [quota_type for quota_type, _ in args.floor])
    _refuse_twice("--weight", [name for name, _ in args.weight])
    _guardrails(args)  # said before Spark starts
    check_save(args)
    for path in (args.plan_file, args.quotas if args.yes else None):
        if path is not None:
            check_writable(path)
    from kvota.app.plan_file import load_quotas_in_force

    written = load_quotas_in_force(args.quotas) if args.quotas else ClientQuotas()
    quotas = written.configured()
    capacities = dict(args.capacity)
    found = on_record(args, "planning from", lambda record: _plan(record, args, quotas, capacities))
    if args.output == "json":
        print_json(plan_json(found), schema=2)
    else:
        print(plan_text(found, raw=args.raw))
    for note in notes(found):
        print(f"kvota: {note}", file=sys.stderr)
    _write(found, args, written)
    return DONE if found.is_confirmed else NEGATIVE


def check_writable(path: Path) -> None:
    """Check before the work that its result could be written.

    Raises:
        UsageError: it could not.
    """
    from kvota.files.whole_file import DISK_IS_FULL, try_to_write

    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        try_to_write(path)
    except OSError as error:
        if error.errno in DISK_IS_FULL:  # there may be room by then
            return
        msg = f"{path} cannot be written: {error.strerror}. Name a file in a folder that is yours"
        raise UsageError(msg) from error


def _plan(
    record: Record,
    args: argparse.Namespace,
    quotas: ConfiguredQuotas,
    capacities: Mapping[QuotaType, float],
) -> "Recommendation":
    from kvota.pipeline.plan_table import recommendation_table
    from kvota.pipeline.recommendation import recommend
    from kvota.pipeline.usage_tables import USAGE_COLUMNS

    types = [quota_type.value for quota_type in capacities]
    events = record.table()
    found = recommend(
        record.chunks(args.by, further=USAGE_COLUMNS, quota_types=types, gateways_apart=True),
        events.where(events["quota_type"].isin(types)),
        quotas,
        capacities,
        _wishes(args),
    )
    if args.save is not None:
        save(recommendation_table(record.spark, found), "recommendation", args)
    return found


def understood(words: Sequence[str]) -> "tuple[Mapping[QuotaType, float], Wishes]":
    """Return the capacities and wishes that words behind ``kvota recommend`` mean."""
    parser = argparse.ArgumentParser()
    configure(parser)
    args = parser.parse_args(words)
    return dict(args.capacity), _wishes(args)


def _wishes(args: argparse.Namespace) -> "Wishes":
    """Return what the options say, beside capacities and quotas.

    Raises:
        UsageError: steps that go the wrong way.
    """
    from kvota.pipeline.recommendation import Wishes

    return Wishes(
        level=args.by,
        weights=dict(args.weight),
        guardrails=_guardrails(args),
        headroom=args.headroom,
        learn=args.learn,
        gateways=args.gateways,
        overcommit=args.overcommit,
        counted=counted(args),
    )


def _refuse_twice(option: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            msg = f"{option}: {name} is there twice; which one holds?"
            raise UsageError(msg)


def _guardrails(args: argparse.Namespace) -> Guardrails:
    try:
        return Guardrails(
            hours_min=args.min_hours,
            events_min=args.min_events,
            step_up_max=args.step_up,
            step_down_max=args.step_down,
            changes_max=args.max_changes,
            floors={**FLOORS, **dict(args.floor)},
            exempt_users=frozenset(args.exempt),
            keeps_median=not args.allow_below_median,
        )
    except ValueError as error:
        msg = f"--step-up, --step-down: {error}"
        raise UsageError(msg) from error


def _write(found: "Recommendation", args: argparse.Namespace, before: ClientQuotas) -> None:
    """Write what the plan makes of the quotas; what it says nothing of, such as an ip's, stays."""
    from kvota.app.plan_file import write_planned_quotas
    from kvota.store.quotas_yaml import SUFFIXES

    kept = before.changes_to(ClientQuotas.of(before.configured()))
    others = [KeyChange(entity, key, before.value(entity, key)) for entity, key, _ in kept]
    new = ClientQuotas.of(found.new).with_changes(others)
    if args.plan_file is not None:
        write_planned_quotas(
            args.plan_file, new, found.plan, plan_id=found.plan_id, computed_from=before
        )
        print(f"kvota: wrote {args.plan_file}{_applied_by(args.plan_file)}", file=sys.stderr)
    if args.yes and found.changes:
        copy = args.quotas.with_name(f"{args.quotas.name}.before-{found.plan_id}")
        try:
            copy.write_bytes(args.quotas.read_bytes())
        except OSError as error:
            msg = f"{copy} could not be written: {error.strerror}. Nothing was changed"
            raise UnreachableError(msg) from error
        write_planned_quotas(args.quotas, new, found.plan, plan_id=found.plan_id)
        follows = "quotas apply" if args.quotas.suffix in SUFFIXES else "gateway reload"
        print(f"kvota: wrote {args.quotas}; in force with: {called()} {follows}", file=sys.stderr)
        print(f"kvota: to undo: mv {copy} {args.quotas}", file=sys.stderr)


def _applied_by(path: Path) -> str:
    """Say how a plan comes into force, and how it goes."""
    from kvota.store.quotas_yaml import SUFFIXES

    if path.suffix not in SUFFIXES:
        return ""
    undo = path.with_suffix(f".undo{path.suffix}")
    return (
        f"; in force with: {called()} quotas apply {path}, which notes in {undo} what was before; "
        f"back with: {called()} quotas undo {undo}"
    )
