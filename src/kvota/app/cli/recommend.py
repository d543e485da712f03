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
from kvota.app.cli.plan_values import capacity, count, hours, percent, weight
from kvota.app.cli.spark_events import Record, add_event_options, on_record
from kvota.app.text_table import text_table
from kvota.files.command_name import called
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import UnreachableError, UsageError
from kvota.model.plain_text import name_on_screen
from kvota.model.quota_type import QuotaType
from kvota.planning.guardrails import Guardrails
from kvota.planning.plan import HEADROOM, PlanLine, format_quota

if TYPE_CHECKING:
    from kvota.pipeline.recommend import Recommendation

EXAMPLE = (
    "{kvota} recommend --events kvota-demo/shadow/record --capacity PRODUCE=20MB/s "
    "--capacity CONTROLLER_MUTATION=10/s --min-hours 0"
)

# The most affected clients that are listed; JSON has the first 10,000.
_EFFECTS_SHOWN = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_event_options(parser)
    parser.add_argument(
        "--quotas",
        type=Path,
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
    add_counting_options(parser)
    _add_guardrails(parser)
    parser.add_argument(
        "--plan-file",
        type=Path,
        metavar="FILE",
        help=f"write the quotas of the plan into this file; {called()} quotas apply takes a .yaml",
    )
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
        help="of record, e.g. 24 or 2d (default: 24)",
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
        "--exempt",
        action="append",
        default=[],
        metavar="USER",
        help="never change; may be repeated",
    )
    group.add_argument(
        "--allow-below-median",
        action="store_true",
        help="a tenant above its share may get less than its median rate",
    )


def run(args: argparse.Namespace) -> int:
    """Show the plan and its proof, write if asked; return 1 if the replay does not confirm it."""
    if args.yes and args.quotas is None:
        msg = "--yes writes into the file of --quotas, and none was given. Name it, or use --plan-file"
        raise UsageError(msg)
    _refuse_twice("--capacity", [quota_type for quota_type, _ in args.capacity])
    _refuse_twice("--weight", [name for name, _ in args.weight])
    rules = _guardrails(args)
    for path in (args.plan_file, args.quotas if args.yes else None):
        if path is not None:
            _check_writable(path)
    from kvota.app.plan_file import load_quotas_in_force

    written = load_quotas_in_force(args.quotas) if args.quotas else ClientQuotas()
    quotas = written.configured()
    capacities = dict(args.capacity)
    found = on_record(
        args, "planning from", lambda record: _plan(record, args, quotas, capacities, rules)
    )
    if args.output == "json":
        print_json(_json(found))
    else:
        print(_text(found, raw=args.raw))
    for note in _notes(found):
        print(f"kvota: {note}", file=sys.stderr)
    _write(found, args, written)
    return DONE if all(proof.is_kept for proof in found.verified.values()) else NEGATIVE


def _check_writable(path: Path) -> None:
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
    rules: Guardrails,
) -> "Recommendation":
    from kvota.pipeline.recommend import Wishes, recommend
    from kvota.pipeline.usage import USAGE_COLUMNS

    types = [quota_type.value for quota_type in capacities]
    events = record.table()
    return recommend(
        record.chunks(args.by, further=USAGE_COLUMNS, quota_types=types),
        events.where(events["quota_type"].isin(types)),
        quotas,
        capacities,
        Wishes(
            level=args.by,
            weights=dict(args.weight),
            guardrails=rules,
            headroom=args.headroom,
            counted=counted(args),
        ),
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
            exempt_users=frozenset(args.exempt),
            keeps_median=not args.allow_below_median,
        )
    except ValueError as error:
        msg = f"--step-up, --step-down: {error}"
        raise UsageError(msg) from error


def _text(found: "Recommendation", *, raw: bool) -> str:
    header = ["tenant", "quota", "now", "", "planned", "over (open / backlog)"]
    lines = [_line(found, line, raw=raw) for line in found.plan.lines]
    reasons = [f"{line.reason.value}: {line.evidence}" for line in found.plan.lines]
    parts = [f"plan {found.plan_id}, nothing is changed by making it", ""]
    parts.append(
        text_table(header, lines, left=2, below=reasons) if lines else "no tenant in the record"
    )
    parts.append("")
    for quota_type, most in found.plan.capacities.items():
        spare = found.plan.spare[quota_type]
        word = "spare" if spare >= 0 else "lacking"
        parts.append(
            f"{quota_type}: capacity {format_quota(quota_type, most)}, "
            f"{format_quota(quota_type, abs(spare))} {word}"
        )
    parts.append(f"\n{len(found.changes)} changes:" if found.changes else "\nno change")
    parts += [f"  {change}" for change in found.changes]
    if found.effects:
        parts.append(f"\n{found.affected:,} clients in the record are affected:")
        parts += [f"  {effect}" for effect in found.effects[:_EFFECTS_SHOWN]]
        if found.affected > _EFFECTS_SHOWN:
            parts.append(
                f"  … and {found.affected - _EFFECTS_SHOWN:,} more (--output json names {len(found.effects):,})"
            )
    return "\n".join(parts)


def _line(found: "Recommendation", line: PlanLine, *, raw: bool) -> list[str]:
    proof = found.verified.get((line.quota_type, line.entity))

    def text(quota: float | None) -> str:
        if quota is None:
            return "none"
        return f"{quota!r}/s" if raw else format_quota(line.quota_type, quota)

    open_and_closed = "" if proof is None else f"{proof.share_open:.1%} / {proof.share_closed:.1%}"
    return [
        name_on_screen(str(line.entity)),
        line.quota_type.value,
        text(line.current),
        "→" if line.is_change else "=",
        text(line.proposed),
        open_and_closed,
    ]


def _notes(found: "Recommendation") -> list[str]:
    notes = [*found.notes]
    for quota_type, spare in found.plan.spare.items():
        if spare < 0:
            notes.append(
                f"the guardrails keep {format_quota(quota_type, -spare)} more {quota_type} in force "
                "than the capacity stated; repeat the plan later, or relax them"
            )
    unproven = [key for key, proof in found.verified.items() if not proof.is_kept]
    for quota_type, entity in unproven:
        notes.append(
            f"the replay does not confirm the {quota_type} quota of {name_on_screen(str(entity))}"
        )
    if not found.changes:
        notes.append("nothing would change; the reasons are in the table")
    return notes


def _json(found: "Recommendation") -> dict[str, object]:
    return {
        "plan_id": found.plan_id,
        "level": found.level,
        "capacity_per_s": {key.value: rate for key, rate in found.plan.capacities.items()},
        "spare_per_s": {key.value: rate for key, rate in found.plan.spare.items()},
        "lines": [_json_line(row) for row in found.rows()],
        "changes": [
            {
                "user": _name(change.entity.user),
                "client_id": _name(change.entity.client_id),
                "quota_type": change.quota_type.value,
                "old_per_s": change.old,
                "new_per_s": change.new,
            }
            for change in found.changes
        ],
        "hidden_affected": found.affected - len(found.effects),
        "affected": [
            {
                "user": effect.user,
                "client_id": effect.client_id,
                "quota_type": effect.quota_type.value,
                "old_per_s": effect.old_limit,
                "new_per_s": effect.new_limit,
                "on_another_counter": effect.moves,
            }
            for effect in found.effects
        ],
    }


def _json_line(row: dict[str, object]) -> dict[str, object]:
    units = {
        "need": "need_per_s",
        "fair_share": "fair_share_per_s",
        "current": "current_per_s",
        "proposed": "proposed_per_s",
        "share_open": "open_over_ratio",
        "share_closed": "backlog_over_ratio",
        "share_holdout": "holdout_over_ratio",
    }
    return {units.get(name, name): value for name, value in row.items() if name != "plan_id"}


def _name(name: object) -> str | None:
    return None if name is None else str(name)


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
        print(f"kvota: wrote {args.plan_file}", file=sys.stderr)
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
