"""Shows a plan, to people and to programs."""

from typing import TYPE_CHECKING

from kvota.app.text_table import text_table
from kvota.model.plain_text import name_on_screen, on_one_line
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import CLUSTER_NODE_ID, QuotaType
from kvota.planning.plan_line import PlanLine, Reason, format_quota

if TYPE_CHECKING:
    from kvota.pipeline.recommendation import Recommendation
    from kvota.planning.diff import Change
    from kvota.planning.plan import Lacking
    from kvota.planning.promised import Promised

# The most affected clients that are listed; JSON has the first 10,000.
_EFFECTS_SHOWN = 20


def plan_text(found: "Recommendation", *, raw: bool) -> str:
    """Return the plan for people."""
    header = ["tenant", "quota", "now", "", "planned", "held out: over (open / backlog)"]
    lines = [_line(found, line, raw=raw) for line in found.plan.lines]
    reasons = [f"{line.reason.value}: {line.evidence}" for line in found.plan.lines]
    parts = [f"plan {found.plan_id}, nothing is changed by making it", ""]
    parts.append(
        text_table(header, lines, left=2, names=(0,), below=reasons)
        if lines
        else "no tenant in the record"
    )
    parts += ["", *_capacities(found)]
    parts.append(f"\n{len(found.changes)} changes:" if found.changes else "\nno change")
    now = _in_force(found)
    parts += [
        f"  {change_text(change, now.get((change.entity, change.quota_type)))}"
        for change in found.changes
    ]
    if found.effects:
        parts.append(f"\n{found.affected:,} clients in the record are affected:")
        parts += [f"  {effect}" for effect in found.effects[:_EFFECTS_SHOWN]]
        if found.affected > _EFFECTS_SHOWN:
            parts.append(
                f"  … and {found.affected - _EFFECTS_SHOWN:,} more (--output json names {len(found.effects):,})"
            )
    return "\n".join(parts)


def change_text(change: "Change", now: float | None) -> str:
    """Say what is set, and what holds now: a quota may come from a default that the plan leaves alone."""
    if change.old is None and now is not None:
        in_force = format_quota(change.quota_type, now)
        return str(change).replace(" none -> ", f" {in_force} (of a default) -> ")
    return str(change)


def _capacities(found: "Recommendation") -> list[str]:
    """Return a line for each capacity: what is left of it, and what was let in of it."""
    lines = []
    of_gateways = f" over {found.gateways} gateways" if found.gateways > 1 else ""
    more = f" and {found.overcommit:.0%} more" if found.overcommit else ""
    for quota_type, most in found.plan.capacities.items():
        spare = found.plan.spare[quota_type]
        word = "spare" if spare >= 0 else "lacking"
        text = (
            f"{quota_type}: capacity {format_quota(quota_type, most)}{more}{of_gateways}, "
            f"{format_quota(quota_type, abs(spare))} {word}"
        )
        whole = [each for each in found.together if each.quota_type is quota_type]
        if whole:
            fullest = max(whole, key=lambda each: each.usual_most)
            text += (
                f"; held out, the plan lets in {format_quota(quota_type, fullest.usual_most)} "
                "at most in 99.9 % of the seconds"
            )
        lines.append(text)
        if quota_type in found.promised:
            lines.append(f"  {_promised(quota_type, found.promised[quota_type], most)}")
    return lines


def _promised(quota_type: QuotaType, promised: "Promised", capacity: float) -> str:
    """Say what the quotas add up to; what is spare counts what tenants take, which is mostly less."""
    where = "" if promised.node_id == CLUSTER_NODE_ID else f" of broker {promised.node_id}"
    besides = f", besides {promised.unlimited:,} without a quota" if promised.unlimited else ""
    return (
        f"promised are {format_quota(quota_type, promised.rate)}{where} if all used their quotas at once{besides}: "
        f"{promised.rate / capacity:.0%} of the capacity"
    )


def _line(found: "Recommendation", line: PlanLine, *, raw: bool) -> list[str]:
    proof = found.verified.get((line.quota_type, line.entity))

    def text(quota: float | None) -> str:
        if quota is None:
            return "none"
        return f"{quota!r}/s" if raw else format_quota(line.quota_type, quota)

    open_and_closed = "" if proof is None else f"{proof.share_open:.1%} / {proof.share_closed:.1%}"
    return [
        on_one_line(str(line.entity)),
        line.quota_type.value,
        text(line.current),
        "→" if line.is_change else "=",
        text(line.proposed),
        open_and_closed,
    ]


def _held_out(found: "Recommendation", line: PlanLine) -> int:
    """Return how many of its requests judged its quota."""
    proof = found.verified.get((line.quota_type, line.entity))
    return 0 if proof is None else proof.events


def notes(found: "Recommendation") -> list[str]:
    """Return what a plan's reader has to know beside it."""
    said = [*found.notes]
    for quota_type, spare in found.plan.spare.items():
        if spare < 0:
            said.append(
                f"the guardrails keep {format_quota(quota_type, -spare)} more {quota_type} in force "
                "than the capacity stated; repeat the plan later, or relax them (--step-down, --allow-below-median, --floor)"
            )
    said += [
        _one_broker_fewer(quota_type, lacking, found.plan.capacities[quota_type])
        for quota_type, lacking in found.plan.lacking.items()
    ]
    said += [
        f"not confirmed, so not lowered: the {line.quota_type} quota of {name_on_screen(str(line.entity))}"
        for line in found.plan.lines
        if line.reason is Reason.NOT_CONFIRMED
    ]
    unseen = [line for line in found.plan.lines if line.is_change and not _held_out(found, line)]
    if unseen:
        said.append(
            f"{len(unseen):,} of these quotas are of tenants that sent nothing in what was held out, so nothing "
            f"confirms them: {name_on_screen(str(unseen[0].entity))} {unseen[0].quota_type}"
            f"{', …' if len(unseen) > 1 else ''}"
        )
    for whole in found.together:
        if not whole.is_kept:
            where = "" if whole.node_id < 0 else f" of broker {whole.node_id}"
            said.append(
                f"not confirmed: held out, all tenants together would be let in more {whole.quota_type}{where} than "
                f"its capacity in {whole.seconds_over:,} of {whole.seconds:,} seconds, "
                f"{format_quota(whole.quota_type, whole.most)} at most; --overcommit says that this is meant"
            )
    if not found.changes:
        said.append("nothing would change; the reasons are in the table")
    return said


def _one_broker_fewer(quota_type: QuotaType, lacking: "Lacking", capacity: float) -> str:
    lacks = (
        f"with broker {lacking.away} away, {format_quota(quota_type, lacking.rate)} of {quota_type} would lack on broker "
        f"{lacking.node_id} (the others share its load evenly)"
    )
    if lacking.enough is None:
        return (
            f"{lacks}; a smaller --capacity leaves no room for that while guardrails keep quotas in force "
            "(--step-down, --allow-below-median, --floor)"
        )
    enough = format_quota(quota_type, lacking.enough).replace(" ", "")
    return (
        f"{lacks}; planned with --capacity {quota_type}={enough}, all fits into "
        f"{format_quota(quota_type, capacity)} whichever broker is away"
    )


def plan_json(found: "Recommendation") -> dict[str, object]:
    """Return the plan for programs."""
    now = _in_force(found)
    return {
        "plan_id": found.plan_id,
        "level": found.level,
        "confirmed": found.is_confirmed,
        "gateways": found.gateways,
        "overcommit_ratio": found.overcommit,
        "capacity_per_s": {key.value: rate for key, rate in found.plan.capacities.items()},
        "spare_per_s": {key.value: rate for key, rate in found.plan.spare.items()},
        "promised": [
            {
                "quota_type": key.value,
                "node_id": promised.node_id,
                "per_s": promised.rate,
                "without_quota": promised.unlimited,
            }
            for key, promised in found.promised.items()
        ],
        "one_broker_fewer": [
            {
                "quota_type": key.value,
                "away_node_id": lacking.away,
                "lacking_node_id": lacking.node_id,
                "lacking_per_s": lacking.rate,
                "enough_capacity_per_s": lacking.enough,
            }
            for key, lacking in found.plan.lacking.items()
        ],
        "together": [
            {
                "quota_type": whole.quota_type.value,
                "node_id": whole.node_id,
                "span_s": whole.seconds,
                "over_s": whole.seconds_over,
                "most_per_s": whole.most,
                "usual_most_per_s": whole.usual_most,
            }
            for whole in found.together
        ],
        "lines": [_json_line(row) for row in found.rows()],
        "changes": [
            {
                "user": _name(change.entity.user),
                "client_id": _name(change.entity.client_id),
                "quota_type": change.quota_type.value,
                "old_per_s": change.old,
                "in_force_per_s": now.get((change.entity, change.quota_type), change.old),
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


def _in_force(found: "Recommendation") -> dict[tuple[QuotaEntity, QuotaType], float | None]:
    """Return the quota that holds now of each tenant of the plan."""
    return {(line.entity, line.quota_type): line.current for line in found.plan.lines}


def _json_line(row: dict[str, object]) -> dict[str, object]:
    units = {
        "need": "need_per_s",
        "need_low": "need_low_per_s",
        "need_high": "need_high_per_s",
        "fair_share": "fair_share_per_s",
        "current": "current_per_s",
        "proposed": "proposed_per_s",
        "share_open": "open_over_ratio",
        "share_closed": "backlog_over_ratio",
        "events_holdout": "holdout_events",
    }
    return {units.get(name, name): value for name, value in row.items() if name != "plan_id"}


def _name(name: object) -> str | None:
    return None if name is None else str(name)
