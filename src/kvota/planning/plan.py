"""Makes a plan: a limit for each tenant, with the reason."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, fsum, inf, isclose, log, log10

from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import BYTE_RATE_TYPES, QuotaType
from kvota.planning.fair_share import Claim, fair_shares
from kvota.planning.guardrails import Guardrails
from kvota.planning.observed import Observed
from kvota.planning.plan_line import PlanLine, Reason, evidence, kept

# A tenant gets this much above its need, so that the first busier day does not throttle it.
HEADROOM = 0.2
# The first part of a record's time, of which needs are learnt; the rest judges the plan.
LEARN = 0.7

_FIGURES = 3
_ROUNDING = 1e-12  # of a sum of doubles


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """How capacities are shared.

    Attributes:
        headroom: above the need, as a share of it.
        gateways: each holds a tenant to the quota by itself, so each gets its part of a capacity.
        overcommit: shared as if there were so much more, as a share of it.
        taken: what others take of each broker, per second; they keep it.
    """

    headroom: float = HEADROOM
    gateways: int = 1
    overcommit: float = 0.0
    taken: Mapping[QuotaType, float] = field(default_factory=dict)

    def room(self, quota_type: QuotaType, capacity: float) -> float:
        """What each gateway may share of a capacity."""
        return (capacity * (1 + self.overcommit) - self.taken.get(quota_type, 0.0)) / self.gateways

    def capacity(self, quota_type: QuotaType, room: float) -> float:
        """The capacity of which each gateway may share so much."""
        return (room * self.gateways + self.taken.get(quota_type, 0.0)) / (1 + self.overcommit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """What lacks where one broker is away and the others share its load evenly; the worst such case.

    Attributes:
        away: the broker.
        node_id: the one on which most lacks then.
        rate: how much, per second, over all gateways.
        enough: planned for this capacity all fits into the one stated, whichever broker is away; None: the guardrails
            keep too much in force for that.
    """

    away: int
    node_id: int
    rate: float
    enough: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """All lines in a stable order, with what is left of each capacity.

    Attributes:
        lines: one per tenant and quota type.
        capacities: as stated: per broker, over all gateways.
        spare: of the broker where least is left; below 0: the guardrails keep more in force than there is.
        lacking: where one broker fewer has to do; a type that is not there has enough, or but one broker.
    """

    lines: tuple[PlanLine, ...]
    capacities: Mapping[QuotaType, float]
    spare: Mapping[QuotaType, float]
    lacking: Mapping[QuotaType, Lacking] = field(default_factory=dict)


def make_plan(
    observed: Sequence[Observed],
    capacities: Mapping[QuotaType, float],
    guardrails: Guardrails | None = None,
    sharing: Sharing | None = None,
) -> Plan:
    """Share each stated capacity by weighted max-min fairness, within the guardrails.

    A capacity counts where its quotas do: per broker for bandwidth, per cluster for mutations. Each of several
    gateways holds a tenant to its quota by itself, so a quota is at most its part of what all may let through.

    Args:
        observed: those who share it; what they need is per gateway.
        capacities: per second, by quota type, over all gateways.
        guardrails: what may change, and by how much.
        sharing: how.
    """
    rules, how = guardrails or Guardrails(), sharing or Sharing()
    lines: list[PlanLine] = []
    spare: dict[QuotaType, float] = {}
    lacking: dict[QuotaType, Lacking] = {}
    for quota_type, capacity in capacities.items():
        of_type = sorted(
            (tenant for tenant in observed if tenant.quota_type is quota_type),
            key=lambda tenant: str(tenant.entity),
        )
        room = how.room(quota_type, capacity)
        made = _PlanOfType(of_type, room, rules, how.headroom)
        lines += made.lines()
        spare[quota_type] = made.spare() * how.gateways
        lacks = made.lacking(room)
        if lacks is not None:
            # With so much less taken of each broker, the part of one that is away fits on each of the others.
            enough = how.capacity(quota_type, room * (1 - 1 / len(made.brokers)))
            enough = _rounded_down(enough, 0.0, quota_type)
            smaller = _PlanOfType(of_type, how.room(quota_type, enough), rules, how.headroom)
            lacking[quota_type] = replace(
                lacks,
                rate=lacks.rate * how.gateways,
                enough=enough if smaller.lacking(room) is None else None,
            )
    return Plan(tuple(lines), dict(capacities), spare, lacking)


class _PlanOfType:
    """Plans one quota type."""

    def __init__(
        self, observed: Sequence[Observed], room: float, rules: Guardrails, headroom: float
    ) -> None:
        self._observed = observed
        self._room = room
        self._rules = rules
        self._headroom = headroom
        self._takes: list[dict[int, float]] = []
        self.brokers = sorted({broker for tenant in observed for broker in tenant.needs}) or [-1]
        self._weights = {
            broker: fsum(each.weight for each in observed if broker in each.needs) or 1.0
            for broker in self.brokers
        }
        self._lines = self._planned(frozenset())
        unchanged: frozenset[QuotaEntity] = frozenset()
        # This repeats because what one tenant leaves unused can change another's limit.
        while beyond := _beyond_changes_max(self._lines, rules.changes_max):
            unchanged |= beyond
            self._lines = self._planned(unchanged)

    def lines(self) -> list[PlanLine]:
        return self._lines

    def spare(self) -> float:
        """Return what is left of the broker of which most is taken."""
        taken = self._taken(self._takes)
        return self._room - max(taken.values())

    def lacking(self, room: float) -> Lacking | None:
        """Return what lacks of this room on the fullest of the others if one broker is away and they share its load evenly."""
        worst: Lacking | None = None
        others = len(self.brokers) - 1
        for away in self.brokers if others else ():
            moved = [
                {
                    broker: wanted.get(broker, 0.0) + wanted.get(away, 0.0) / others
                    for broker in self.brokers
                    if broker != away
                }
                for wanted in self._takes
            ]
            for broker, rate in self._taken(moved).items():
                most = room * _ROUNDING if worst is None else worst.rate
                if broker != away and rate - room > most:
                    worst = Lacking(away=away, node_id=broker, rate=rate - room, enough=None)
        return worst

    def _taken(self, wants: Iterable[Mapping[int, float]]) -> dict[int, float]:
        """Return what is taken of each broker under the quotas of the lines."""
        taken: dict[int, list[float]] = {broker: [] for broker in self.brokers}
        for wanted, line in zip(wants, self._lines, strict=True):
            most = inf if line.proposed is None else line.proposed
            for broker, rate in wanted.items():
                taken[broker].append(min(most, rate))
        return {broker: fsum(rates) for broker, rates in taken.items()}

    def _planned(self, unchanged: frozenset[QuotaEntity]) -> list[PlanLine]:
        rules, headroom = self._rules, self._headroom
        stays = {tenant.entity: _left_alone(tenant, rules, unchanged) for tenant in self._observed}
        movable = [tenant for tenant in self._observed if stays[tenant.entity] is None]
        kept_of = [tenant.keeps(rules) for tenant in self._observed]
        room = dict.fromkeys(self.brokers, self._room)
        for tenant, wanted in zip(self._observed, kept_of, strict=True):
            if stays[tenant.entity] is not None:
                for broker, rate in wanted.items():
                    room[broker] -= rate
        claims = [tenant.claim(rules, headroom) for tenant in movable]
        room = {broker: max(0.0, rate) for broker, rate in room.items()}
        found = fair_shares(claims, room)
        shares = fair_shares(_needs_first(claims, movable, room, rules), room).shares
        granted = {
            tenant.entity: _decided(
                self._blank(tenant, level), tenant, claim, share, rules, headroom
            )
            for tenant, claim, share, level in zip(
                movable, claims, shares, found.levels, strict=True
            )
        }
        highest = max((level for level in found.levels if level < inf), default=inf)
        lines = []
        for tenant in self._observed:
            reason = stays[tenant.entity]
            if reason is not None:
                lines.append(kept(self._blank(tenant, highest), reason, rules))
            else:
                lines.append(granted[tenant.entity])
        self._takes = [
            tenant.taken(line.proposed or 0.0, rules, headroom)
            if stays[tenant.entity] is None
            else what_is_kept
            for tenant, line, what_is_kept in zip(self._observed, lines, kept_of, strict=True)
        ]
        return lines

    def _blank(self, tenant: Observed, level: float) -> PlanLine:
        need = tenant.need
        if level == inf:  # nobody stops it, so its part is what weights alone would give it
            level = min(
                max(0.0, self._room) / self._weights[broker]
                for broker in (tenant.needs or self.brokers)
            )
        return PlanLine(
            quota_type=tenant.quota_type,
            entity=tenant.entity,
            weight=tenant.weight,
            need=need,
            node_ids=tuple(sorted(tenant.needs)),
            is_censored=tenant.is_censored,
            fair_share=tenant.weight * level,
            current=tenant.current,
            proposed=tenant.current,
            reason=Reason.KEPT,
            behaves=tenant.current is None or (need is not None and need.rate <= tenant.current),
            guardrails=(),
            events=tenant.events,
            hours=tenant.hours,
            share_throttled=tenant.share_throttled,
            evidence="",
        )


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


def _decided(
    line: PlanLine,
    tenant: Observed,
    claim: Claim,
    share: float,
    rules: Guardrails,
    headroom: float,
) -> PlanLine:
    most_wanted = max(tenant.wants(rules, headroom).values())
    need = 0.0 if tenant.need is None else tenant.need.rate
    quota = _quota(tenant, claim, share, most_wanted, rules)
    at_least = max(claim.at_least, need) if quota >= need else claim.at_least
    proposed = _rounded_down(quota, at_least, tenant.quota_type)
    reason, bound_by = _why(tenant, claim, quota, most_wanted, rules)
    is_right = tenant.current is not None and isclose(
        proposed, tenant.current, rel_tol=10.0**-_FIGURES
    )
    if tenant.current is not None and is_right:
        proposed = tenant.current
    decided = replace(
        line,
        proposed=proposed,
        reason=Reason.KEPT if is_right else reason,
        behaves=need <= proposed,
        guardrails=bound_by,
    )
    return replace(decided, evidence=evidence(reason, decided))


def _needs_first(
    claims: Sequence[Claim],
    tenants: Sequence[Observed],
    room: Mapping[int, float],
    rules: Guardrails,
) -> Sequence[Claim]:
    """Return claims that give nobody less than it needs, where all needs fit and only the headroom does not."""
    needs = [
        replace(claim, wants=tenant.takes(rules, 0.0))
        for claim, tenant in zip(claims, tenants, strict=True)
    ]
    found = fair_shares(needs, room)
    raised = [
        replace(claim, at_least=share) for claim, share in zip(claims, found.shares, strict=True)
    ]
    # A quota that is needed on one broker leaves headroom on another, where less is needed.
    fits = all(
        fsum(claim.taken(claim.at_least, broker) for claim in raised) <= capacity * (1 + _ROUNDING)
        for broker, capacity in room.items()
    )
    return raised if fits and all(level == inf for level in found.levels) else claims


def _quota(
    tenant: Observed, claim: Claim, share: float, most_wanted: float, rules: Guardrails
) -> float:
    """Return the quota of a share, which is an average over all gateways.

    Who gets what it needs has it at the gateway where it needs most. Who does not gets as much at each gateway
    as on average: else it could take what is left for it at every one of them.
    """
    if share >= max(claim.wants.values()):
        return max(share, min(most_wanted, claim.at_most))
    if share < max(tenant.takes(rules, 0.0).values()):
        return share
    return max(share, min(max(tenant.wants(rules, 0.0).values()), claim.at_most))


def _why(
    tenant: Observed, claim: Claim, quota: float, most_wanted: float, rules: Guardrails
) -> tuple[Reason, tuple[str, ...]]:
    if quota == claim.at_most and most_wanted > claim.at_most:
        return Reason.STEP, ("step_up",)
    if quota == claim.at_least and claim.at_least > 0 and most_wanted != quota:
        if tenant.current is not None and quota == tenant.current * rules.step_down_max:
            return Reason.STEP, ("step_down",)
        is_median = quota > rules.floors.get(tenant.quota_type, 0.0)
        return Reason.FLOOR, ("median",) if is_median else ("floor",)
    if quota == most_wanted:
        return (Reason.CENSORED if tenant.is_censored else Reason.NEED), ()
    return Reason.SHARE, ()


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
