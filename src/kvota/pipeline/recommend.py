"""Recommends a quota for every tenant: needs from replay, shares from planning, proof by replay."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import DataFrame, Row

from kvota.callbacks import DefaultQuotaCallback
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import UsageError
from kvota.model.quota_type import QuotaType
from kvota.pipeline.brackets import brackets
from kvota.pipeline.charged import AS_RECORDED, Counted
from kvota.pipeline.chunks import Chunks
from kvota.pipeline.reached import EFFECTS_MAX, reached
from kvota.pipeline.replay import Mode, OfCounters, replay
from kvota.pipeline.tenants import COUNTERS_MAX, TenantKey, Tenants, read_tenants
from kvota.planning.diff import Change, Effect, changes, with_plan
from kvota.planning.guardrails import Guardrails
from kvota.planning.need import Tolerance, between
from kvota.planning.plan import HEADROOM, Plan, PlanLine, format_quota, make_plan

Level = Literal["user", "client", "user-client"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The replay of one tenant's planned quota against what was recorded."""

    share_open: float  # of its requests, had they come as they came
    share_closed: float  # of its requests, had its clients waited (backlog)
    worst_ms: float  # the longest single throttle, open loop
    is_kept: bool  # behaves, and the replay agrees; or it was to be capped anyway


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A plan with its proof and its consequences; making one changes nothing.

    Attributes:
        level: what its tenants are.
        plan: a line for each of the busiest tenants.
        verified: the proof, for each line with a quota.
        old: the quotas in force.
        new: those of the plan.
        effects: the first clients in the record that the plan reaches.
        affected: how many it reaches in all.
        notes: what the plan's reader has to know.
    """

    level: Level
    plan: Plan
    verified: Mapping[TenantKey, Verified]
    old: ConfiguredQuotas
    new: ConfiguredQuotas
    effects: tuple[Effect, ...]
    affected: int
    notes: tuple[str, ...] = field(default=())

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return the configured quotas that would change."""
        return changes(self.old, self.new)

    @property
    def plan_id(self) -> str:
        """Return a name for this plan; it differs for another plan or other quotas in force."""
        content = repr((self.plan.lines, sorted(map(str, changes(ConfiguredQuotas(), self.old)))))
        return hashlib.blake2b(content.encode(), digest_size=6).hexdigest()

    def rows(self) -> list[dict[str, object]]:
        """Return the table ``recommendation`` as plain values."""
        return [self._row(line) for line in self.plan.lines]

    def _row(self, line: PlanLine) -> dict[str, object]:
        verified = self.verified.get((line.quota_type, line.entity))
        return {
            "plan_id": self.plan_id,
            "quota_type": line.quota_type.value,
            "level": self.level,
            "user": line.entity.user,
            "client_id": line.entity.client_id,
            "weight": line.weight,
            "need": line.need,
            "fair_share": line.fair_share,
            "current": line.current,
            "proposed": line.proposed,
            "reason": line.reason.value,
            "behaves": line.behaves,
            "share_open": None if verified is None else verified.share_open,
            "share_closed": None if verified is None else verified.share_closed,
            "share_holdout": None,
            "events": line.events,
            "days": line.hours / 24,
            "guardrails": list(line.guardrails),
            "evidence": line.evidence,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """The operator's wishes for a plan, beside the capacities."""

    level: Level = "user"
    weights: Mapping[str, float] = field(default_factory=dict)  # by user, or client id
    guardrails: Guardrails = field(default_factory=Guardrails)
    tolerance: Tolerance = field(default_factory=Tolerance)
    headroom: float = HEADROOM
    counted: Counted = AS_RECORDED  # as the charges will be under the plan
    counters_max: int = COUNTERS_MAX  # planned for; a tenant has one per broker
    effects_max: int = EFFECTS_MAX  # named; the others are only counted


def recommend(
    chunks: Chunks,
    clients: DataFrame,
    quotas: ConfiguredQuotas,
    capacities: Mapping[QuotaType, float],
    wishes: Wishes | None = None,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> Recommendation:
    """Make a plan for the tenants in the record under the capacities stated; this runs Spark jobs.

    Needs are learnt on the whole record by two grids of 20 candidates, open loop; the finished plan
    is replayed on the same record, open and backlog. There is no hold-out yet.

    However many tenants are in the record, what comes to the driver is bounded: the plan is for those with
    the most requests, and the capacity for them is what the others leave on average.

    Args:
        chunks: what was recorded, by the level of the wishes, with ``USAGE_COLUMNS``.
        clients: whom a changed quota may reach; of this table ``user`` and ``client_id`` are read.
        quotas: those in force.
        capacities: per broker for PRODUCE and FETCH, per cluster for CONTROLLER_MUTATION.
        wishes: weights, guardrails, level.
        progress: called with a few words at the beginning of each step.
    """
    wanted = wishes or Wishes()
    if chunks.by != wanted.level:
        msg = f"the chunks are by {chunks.by}, the plan is by {wanted.level}"
        raise UsageError(msg)
    in_force = DefaultQuotaCallback(quotas)
    kept = chunks.of_types(quota_type.value for quota_type in capacities).persist()
    try:
        progress("reading usage")
        exempt = wanted.guardrails.exempt_users
        tenants = read_tenants(kept, {*wanted.weights, *exempt}, counters_max=wanted.counters_max)
        tenants.refuse_strangers(wanted.weights, exempt)
        progress("finding needs, first 20 candidates each")
        needs = _needs(kept, wanted, tenants, progress)
        observed = tenants.observed(needs, in_force, wanted.weights)
        taken = {kind: others.rate_mean for kind, others in tenants.others.items()}
        plan = make_plan(
            observed, capacities, wanted.guardrails, headroom=wanted.headroom, taken=taken
        )
        progress("replaying the plan")
        verified = _verify(kept, wanted, plan, tenants)
    finally:
        kept.unpersist()
    new = with_plan(quotas, plan)
    first, affected = reached(clients, quotas, new, capacities, most=wanted.effects_max)
    return Recommendation(
        wanted.level, plan, verified, quotas, new, first, affected, _notes(tenants)
    )


def _needs(
    chunks: Chunks, wishes: Wishes, tenants: Tenants, progress: Callable[[str], None]
) -> dict[int, float | None]:
    """Return the need of each counter that used anything; None where no candidate was good enough."""
    first = brackets(chunks, tenants.first_grid(), wishes.tolerance, wishes.counted)
    progress("finding needs, 20 candidates in between")
    inner = {key: between(found) for key, found in first.items()}
    second = brackets(chunks, inner, wishes.tolerance, wishes.counted)
    # The second grid ends where the first one passed, so it says all that both say.
    return {key: second.get(key, found).passes for key, found in first.items()}


def _notes(tenants: Tenants) -> tuple[str, ...]:
    notes = []
    if tenants.nameless:
        notes.append(
            f"{tenants.nameless:,} requests name no client id; no quota of this level can be set for them"
        )
    for kind, others in tenants.others.items():
        notes.append(
            f"the plan is for the tenants with the most requests; left as they are: {others.tenants:,} with {kind}, "
            f"which together keep {format_quota(kind, others.rate_mean)} of the capacity, their mean in the record"
        )
    return tuple(notes)


def _replayed(
    chunks: Chunks, wishes: Wishes, candidates: Mapping[int, Sequence[float]], mode: Mode
) -> Iterable[Row]:
    wanted = {key: quotas for key, quotas in candidates.items() if quotas}
    if not wanted:
        return []
    columns = ("counter_id", "quota", "share_over", "worst_ms")
    replayed = replay(chunks, OfCounters(wanted), counted=wishes.counted, mode=mode)
    return replayed.select(*columns).collect()


def _verify(
    chunks: Chunks, wishes: Wishes, plan: Plan, tenants: Tenants
) -> dict[TenantKey, Verified]:
    tolerance = wishes.tolerance
    quota_of = {
        (line.quota_type, line.entity): line.proposed
        for line in plan.lines
        if line.proposed is not None
    }
    candidates = {
        counter_id: (quota_of[key],)
        for counter_id, key in tenants.of_counter.items()
        if key in quota_of
    }
    shares: dict[Mode, dict[TenantKey, float]] = {"open": {}, "backlog": {}}
    worst_ms: dict[TenantKey, float] = {}
    for mode, share_of in shares.items():
        for row in _replayed(chunks, wishes, candidates, mode):
            key = tenants.of_counter[row["counter_id"]]
            share_of[key] = max(share_of.get(key, 0.0), row["share_over"])
            if mode == "open":
                worst_ms[key] = max(worst_ms.get(key, 0.0), row["worst_ms"])
    behaving = {(line.quota_type, line.entity) for line in plan.lines if line.behaves}
    return {
        key: Verified(
            share_open=share_open,
            share_closed=shares["backlog"].get(key, 0.0),
            worst_ms=worst_ms[key],
            is_kept=key not in behaving
            or (share_open <= tolerance.share_over_max and worst_ms[key] <= tolerance.worst_ms_max),
        )
        for key, share_open in shares["open"].items()
    }
