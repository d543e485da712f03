"""Makes a plan: a limit for each tenant, with the reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import floor, inf, isclose, log, log10

from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import BYTE_RATE_TYPES, FACTS, QuotaType, Unit
from kvota.model.units import format_byte_rate, format_percent, format_rate
from kvota.planning.fair_share import Claim, fair_shares
from kvota.planning.guardrails import Guardrails

# A tenant gets this much above its need, so that the first busier day does not throttle it.
HEADROOM = 0.2

_FIGURES = 3


class Reason(StrEnum):
    """The reason for a tenant's limit."""

    NEED = "need"  # its need and the headroom
    SHARE = "share"  # it wants more than its fair share
    FLOOR = "floor"  # not below its median rate or the floor of the type
    STEP = "step"  # not further from the quota in force at a time
    KEPT = "kept"  # no change worth making, or none could be found
    TOO_LITTLE_DATA = "too_little_data"
    CENSORED = "censored"  # throttled while it was observed, so never lowered
    EXEMPT = "exempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One tenant as the record and the replay show it."""

    quota_type: QuotaType
    entity: QuotaEntity
    need: float | None  # None: no candidate was good enough
    rate_p50: float
    events: int
    hours: float
    current: float | None  # the quota in force; None: unlimited
    weight: float = 1.0
    is_censored: bool = False  # it was throttled while it was observed, so it may want more


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """One tenant's line of the plan; no quota is set where ``proposed`` is None."""

    quota_type: QuotaType
    entity: QuotaEntity
    weight: float
    need: float | None
    fair_share: float
    current: float | None
    proposed: float | None
    reason: Reason
    behaves: bool  # gets at least its need
    guardrails: tuple[str, ...]  # those that decided
    events: int
    hours: float
    evidence: str

    @property
    def is_change(self) -> bool:
        """True when applying the plan would touch this quota."""
        return self.proposed != self.current


@dataclass(frozen=True, slots=True)
class Plan:
    """All lines in a stable order, with what is left of each capacity."""

    lines: tuple[PlanLine, ...]
    capacities: Mapping[QuotaType, float]
    spare: Mapping[QuotaType, float]  # below 0: the guardrails keep more in force than there is


def make_plan(
    observed: Sequence[Observed],
    capacities: Mapping[QuotaType, float],
    guardrails: Guardrails | None = None,
    *,
    headroom: float = HEADROOM,
    taken: Mapping[QuotaType, float] | None = None,
) -> Plan:
    """Share each stated capacity by weighted max-min fairness, within the guardrails.

    A capacity counts where its quotas do: per broker for bandwidth, per cluster for mutations.

    Args:
        observed: those who share it.
        capacities: per second, by quota type.
        guardrails: what may change, and by how much.
        headroom: above the need, as a share of it.
        taken: what others take of a capacity, per second; they keep it.
    """
    rules = guardrails or Guardrails()
    lines: list[PlanLine] = []
    spare: dict[QuotaType, float] = {}
    for quota_type, capacity in capacities.items():
        of_type = sorted(
            (tenant for tenant in observed if tenant.quota_type is quota_type),
            key=lambda tenant: str(tenant.entity),
        )
        unchanged: frozenset[QuotaEntity] = frozenset()
        room = capacity - (taken or {}).get(quota_type, 0.0)
        planned, left = _plan_type(of_type, room, rules, headroom, unchanged)
        # This repeats because what one tenant leaves unused can change another's limit.
        while beyond := _beyond_changes_max(planned, rules.changes_max):
            unchanged |= beyond
            planned, left = _plan_type(of_type, room, rules, headroom, unchanged)
        lines += planned
        spare[quota_type] = left
    return Plan(tuple(lines), dict(capacities), spare)


def _plan_type(
    observed: Sequence[Observed],
    capacity: float,
    rules: Guardrails,
    headroom: float,
    unchanged: frozenset[QuotaEntity],
) -> tuple[list[PlanLine], float]:
    fixed = {tenant.entity: _left_alone(tenant, rules, unchanged) for tenant in observed}
    taken = sum(_takes(tenant) for tenant in observed if fixed[tenant.entity] is not None)
    movable = [tenant for tenant in observed if fixed[tenant.entity] is None]
    claims = [_claim(tenant, rules, headroom) for tenant in movable]
    shares = fair_shares(claims, max(0.0, capacity - taken))
    level = shares.level
    if level == inf:  # nobody is capped, so the level is what all could have had
        weights = sum(tenant.weight for tenant in observed) or 1.0
        level = max(0.0, capacity) / weights
    granted = dict(zip([tenant.entity for tenant in movable], shares.shares, strict=True))
    claim_of = dict(zip([tenant.entity for tenant in movable], claims, strict=True))
    lines = []
    for tenant in observed:
        reason = fixed[tenant.entity]
        line = _blank(tenant, tenant.weight * level)
        if reason is not None:
            lines.append(_kept(line, reason, rules))
        else:
            lines.append(
                _decided(line, tenant, claim_of[tenant.entity], granted[tenant.entity], rules)
            )
    left = capacity - sum(
        line.proposed if line.is_change and line.proposed is not None else _takes(tenant)
        for line, tenant in zip(lines, observed, strict=True)
    )
    return lines, left


def _left_alone(
    tenant: Observed, rules: Guardrails, unchanged: frozenset[QuotaEntity]
) -> Reason | None:
    if tenant.entity.user in rules.exempt_users:
        return Reason.EXEMPT
    if tenant.events < rules.events_min or tenant.hours < rules.hours_min:
        return Reason.TOO_LITTLE_DATA
    if tenant.need is None or tenant.entity in unchanged:
        return Reason.KEPT
    return None


def _takes(tenant: Observed) -> float:
    """Return a tenant's part of the capacity if its quota stays: the quota, else its need."""
    if tenant.current is not None:
        return tenant.current
    return tenant.need or tenant.rate_p50


def _claim(tenant: Observed, rules: Guardrails, headroom: float) -> Claim:
    need = (tenant.need or 0.0) * (1 + headroom)
    median = tenant.rate_p50 if rules.keeps_median else 0.0
    at_least = max(median, rules.floors.get(tenant.quota_type, 0.0))
    at_most = inf
    if tenant.current is not None:
        down = tenant.current if tenant.is_censored else tenant.current * rules.step_down_max
        at_most = tenant.current * rules.step_up_max
        at_least = min(max(at_least, down), at_most)
    return Claim(claim=need, weight=tenant.weight, at_least=at_least, at_most=at_most)


def _blank(tenant: Observed, fair_share: float) -> PlanLine:
    return PlanLine(
        quota_type=tenant.quota_type,
        entity=tenant.entity,
        weight=tenant.weight,
        need=tenant.need,
        fair_share=fair_share,
        current=tenant.current,
        proposed=tenant.current,
        reason=Reason.KEPT,
        behaves=tenant.current is None
        or (tenant.need is not None and tenant.need <= tenant.current),
        guardrails=(),
        events=tenant.events,
        hours=tenant.hours,
        evidence="",
    )


def _kept(line: PlanLine, reason: Reason, rules: Guardrails) -> PlanLine:
    if reason is Reason.EXEMPT:
        return replace(line, reason=reason, guardrails=("exempt",), evidence="exempt from plans")
    if reason is Reason.TOO_LITTLE_DATA:
        evidence = (
            f"{line.events:,} requests in {line.hours:.1f} h; a change needs "
            f"{rules.events_min:,} requests and {rules.hours_min:g} h"
        )
        return replace(line, reason=reason, guardrails=("too_little_data",), evidence=evidence)
    if line.need is None:
        return replace(line, reason=reason, evidence="no quota tried was good enough for it")
    evidence = f"other changes are larger (at most {rules.changes_max} at a time)"
    return replace(line, reason=reason, guardrails=("changes_max",), evidence=evidence)


def _decided(
    line: PlanLine, tenant: Observed, claim: Claim, share: float, rules: Guardrails
) -> PlanLine:
    proposed = _rounded_down(share, claim.at_least, tenant.quota_type)
    reason, bound_by = _why(tenant, claim, share, rules)
    is_right = tenant.current is not None and isclose(
        proposed, tenant.current, rel_tol=10.0**-_FIGURES
    )
    if tenant.current is not None and is_right:
        proposed = tenant.current
    return replace(
        line,
        proposed=proposed,
        reason=Reason.KEPT if is_right and reason is not Reason.CENSORED else reason,
        behaves=(tenant.need or 0.0) <= proposed,
        guardrails=bound_by,
        evidence=_evidence(reason, line, proposed),
    )


def _why(
    tenant: Observed, claim: Claim, share: float, rules: Guardrails
) -> tuple[Reason, tuple[str, ...]]:
    if share == claim.at_most and claim.claim > claim.at_most:
        return Reason.STEP, ("step_up",)
    if share == claim.at_least and claim.at_least > 0:
        if tenant.is_censored and share == tenant.current:
            return Reason.CENSORED, ("censored",)
        if tenant.current is not None and share == tenant.current * rules.step_down_max:
            return Reason.STEP, ("step_down",)
        return Reason.FLOOR, ("floor",)
    return (Reason.NEED if share == claim.claim else Reason.SHARE), ()


def _evidence(reason: Reason, line: PlanLine, proposed: float) -> str:
    def text(rate: float) -> str:
        return format_quota(line.quota_type, rate)

    need = text(line.need or 0.0)
    current = "no quota" if line.current is None else text(line.current)
    sentences = {
        Reason.NEED: f"needs {need}; with headroom {text(proposed)}",
        Reason.SHARE: f"would need {need}; its fair share is {text(line.fair_share)}",
        Reason.FLOOR: f"needs {need}; not below its usual rate or the floor ({text(proposed)})",
        Reason.STEP: f"needs {need}; one step from {current} goes to {text(proposed)}",
        Reason.CENSORED: f"was throttled while observed, so {current} is not lowered",
    }
    return sentences[reason]


def _rounded_down(share: float, at_least: float, quota_type: QuotaType) -> float:
    """Round to three figures and whole bytes, which people can read, if ``at_least`` allows it."""
    if share <= 0:
        return share
    unit = 10.0 ** (floor(log10(share)) - _FIGURES + 1)
    if quota_type in BYTE_RATE_TYPES:
        unit = max(unit, 1.0)
    # A share that is such a number already must not lose a unit to the division's rounding.
    units = floor(share / unit * (1 + 1e-12))
    rounded = min(share, round(units * unit, 9))
    return rounded if rounded >= at_least and rounded > 0 else share


def _beyond_changes_max(lines: Sequence[PlanLine], changes_max: int) -> frozenset[QuotaEntity]:
    """Return the entities with the smallest changes, as many as there are changes too many."""

    def size(line: PlanLine) -> float:
        if line.current is None or line.proposed is None or not line.proposed or not line.current:
            return inf
        return abs(log(line.proposed / line.current))

    changed = sorted((line for line in lines if line.is_change), key=size, reverse=True)
    return frozenset(line.entity for line in changed[changes_max:])


def format_quota(quota_type: QuotaType, quota: float) -> str:
    """Write a quota with the unit of its type: ``8.00 MB/s``, ``5.00 /s``, ``20.0 %`` or, of producer ids, ``100 /h``."""
    if FACTS[quota_type].unit is Unit.IDS_PER_S:
        return f"{format_rate(quota * 3600).removesuffix(' /s')} /h"
    if FACTS[quota_type].unit is Unit.PERCENT:
        return format_percent(quota)
    return format_byte_rate(quota) if quota_type in BYTE_RATE_TYPES else format_rate(quota)
