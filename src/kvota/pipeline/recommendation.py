"""Recommends a quota for every tenant: needs learnt from replay, shares from planning, proof by what was held out."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from pyspark.sql import DataFrame

from kvota.callbacks import DefaultQuotaCallback
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import UsageError
from kvota.model.plain_text import name_on_screen
from kvota.model.quota_type import QuotaType
from kvota.pipeline.admitted import Loop, Planned, Proof, Together, proofs, together
from kvota.pipeline.brackets import brackets
from kvota.pipeline.charged import AS_RECORDED, Counted
from kvota.pipeline.chunks import Chunks
from kvota.pipeline.days import Days
from kvota.pipeline.reached import EFFECTS_MAX, reached
from kvota.pipeline.sources.request_log import GATEWAY as REQUEST_LOG
from kvota.pipeline.tenants import COUNTERS_MAX, Gateways, TenantKey, Tenants, read_tenants
from kvota.pipeline.usage_tables import span_s
from kvota.planning.diff import Change, Effect, changes, with_plan
from kvota.planning.guardrails import Guardrails
from kvota.planning.need import Need, Tolerance, daily_need
from kvota.planning.plan import HEADROOM, LEARN, Plan, Sharing, make_plan
from kvota.planning.plan_line import PlanLine, Reason, format_quota, not_confirmed
from kvota.planning.promised import Promised, promised
from kvota.record.runs import Run, runs_at_once

Level = Literal["user", "client", "user-client"]

# Where a plan decides nothing there is nothing to confirm.
_NOT_DECIDED = frozenset({Reason.EXEMPT, Reason.TOO_LITTLE_DATA})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The replay of one tenant's planned quota against the time that was held out.

    Attributes:
        events: its requests in that time.
        share_open: of these over the quota, had they come as they came.
        share_closed: the same, had its clients waited (backlog).
        worst_ms: the longest single throttle, open loop.
        is_kept: it behaves and the replay agrees; or it was to be capped anyway.
    """

    events: int
    share_open: float
    share_closed: float
    worst_ms: float
    is_kept: bool


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
        together: what the plan lets in of each broker in each second of the time that was held out.
        gateways: that hold tenants to their quotas, each by itself.
        overcommit: planned and judged as if the capacities were so much larger, as a share of them.
        notes: what the plan's reader has to know.
    """

    level: Level
    plan: Plan
    verified: Mapping[TenantKey, Verified]
    old: ConfiguredQuotas
    new: ConfiguredQuotas
    effects: tuple[Effect, ...]
    affected: int
    together: tuple[Together, ...] = ()
    gateways: int = 1
    overcommit: float = 0.0
    notes: tuple[str, ...] = field(default=())

    @property
    def is_confirmed(self) -> bool:
        """Whether what was held out bears the plan out: of each tenant, and of all together."""
        return all(proof.is_kept for proof in self.verified.values()) and all(
            found.is_kept for found in self.together
        )

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return the configured quotas that would change."""
        return changes(self.old, self.new)

    @property
    def promised(self) -> Mapping[QuotaType, Promised]:
        """Return what all quotas of a type add up to, on the broker where that is most."""
        return promised(self.plan.lines, self.gateways)

    @property
    def plan_id(self) -> str:
        """Return a name for this plan; it differs for another plan or other quotas in force."""
        content = repr((self.plan.lines, sorted(map(str, changes(ConfiguredQuotas(), self.old)))))
        return hashlib.blake2b(content.encode(), digest_size=6).hexdigest()

    def rows(self) -> list[dict[str, object]]:
        """Return the table ``recommendation`` as plain values."""
        plan_id = self.plan_id  # it takes as long as all of the lines
        return [self._row(line, plan_id) for line in self.plan.lines]

    def _row(self, line: PlanLine, plan_id: str) -> dict[str, object]:
        verified = self.verified.get((line.quota_type, line.entity))
        return {
            "plan_id": plan_id,
            "quota_type": line.quota_type.value,
            "level": self.level,
            "user": line.entity.user,
            "client_id": line.entity.client_id,
            "weight": line.weight,
            "need": None if line.need is None else line.need.rate,
            "need_low": None if line.need is None else line.need.low,
            "need_high": None if line.need is None else line.need.high,
            "censored": line.is_censored,
            "fair_share": line.fair_share,
            "current": line.current,
            "proposed": line.proposed,
            "reason": line.reason.value,
            "behaves": line.behaves,
            "share_open": None if verified is None else verified.share_open,
            "share_closed": None if verified is None else verified.share_closed,
            "events_holdout": None if verified is None else verified.events,
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
    learn: float = LEARN  # of the record's time, from its beginning; above 0, below 1
    gateways: int | None = (
        None  # that will hold tenants to the quotas; None: as many as the record names
    )
    overcommit: float = 0.0  # planned and judged as if a capacity were so much larger, as a share
    counted: Counted = AS_RECORDED  # as the charges will be under the plan
    counters_max: int = COUNTERS_MAX  # planned for; a tenant has one per gateway and broker
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

    Needs are learnt day by day on the first part of the record, by two grids of 20 candidates, open loop. The
    finished plan is replayed over the record and judged on the rest of it, open and backlog: each tenant whose need
    it covers has to stay within it, and all together within the capacities.

    However many tenants are in the record, what comes to the driver is bounded: the plan is for those with
    the most requests, and the capacity for them is what the others leave on average.

    Args:
        chunks: what was recorded, by the level of the wishes, gateways apart, with ``USAGE_COLUMNS``.
        clients: whom a changed quota may reach; of this table ``user`` and ``client_id`` are read.
        quotas: those in force.
        capacities: per broker for PRODUCE and FETCH, per cluster for CONTROLLER_MUTATION; over all gateways.
        wishes: weights, guardrails, level.
        progress: called with a few words at the beginning of each step.
    """
    wanted = wishes or Wishes()
    if chunks.by != wanted.level:
        msg = f"the chunks are by {chunks.by}, the plan is by {wanted.level}"
        raise UsageError(msg)
    kept = chunks.of_types(quota_type.value for quota_type in capacities).persist()
    try:
        return _Planner(kept, clients, quotas, capacities, wanted, progress).recommended()
    finally:
        kept.unpersist()


class _Planner:
    """Makes one recommendation."""

    def __init__(
        self,
        chunks: Chunks,
        clients: DataFrame,
        quotas: ConfiguredQuotas,
        capacities: Mapping[QuotaType, float],
        wishes: Wishes,
        progress: Callable[[str], None],
    ) -> None:
        self._chunks = chunks
        self._clients = clients
        self._quotas = quotas
        self._capacities = capacities
        self._wishes = wishes
        self._progress = progress
        recorded = max(1, len({run.gateway for run in chunks.runs}))
        self._gateways = Gateways(recorded, wishes.gateways or recorded)
        first_s, span = span_s(chunks)
        self._first_us, self._until_us = first_s * 1_000_000, (first_s + span) * 1_000_000
        # Whole seconds, which is what is summed up of what a plan lets in.
        self._split_us = (first_s + max(1, round(span * wishes.learn))) * 1_000_000

    def recommended(self) -> Recommendation:
        wanted, capacities = self._wishes, self._capacities
        self._progress("reading usage")
        exempt = wanted.guardrails.exempt_users
        tenants = read_tenants(
            self._chunks, {*wanted.weights, *exempt}, counters_max=wanted.counters_max
        )
        tenants.refuse_strangers(wanted.weights, exempt)
        needs = self._needs(tenants)
        in_force = DefaultQuotaCallback(self._quotas)
        observed = tenants.observed(needs, in_force, wanted.weights, self._gateways)
        taken = {kind: others.rate_mean for kind, others in tenants.others.items()}
        sharing = Sharing(
            headroom=wanted.headroom,
            gateways=self._gateways.planned,
            overcommit=wanted.overcommit,
            taken=taken,
        )
        plan = make_plan(observed, capacities, wanted.guardrails, sharing)
        self._progress("replaying the plan over what was held out")
        verified = self._verified(plan, tenants)
        plan = _confirmed(plan, verified)
        whole = together(
            self._chunks,
            self._planned(plan, tenants, "backlog"),
            {kind: most * (1 + wanted.overcommit) for kind, most in capacities.items()},
        )
        new = with_plan(self._quotas, plan)
        alike = () if wanted.gateways else tuple(_named_alike(self._chunks.runs))
        first, affected = reached(
            self._clients, self._quotas, new, capacities, most=wanted.effects_max
        )
        return Recommendation(
            wanted.level,
            plan,
            verified,
            self._quotas,
            new,
            first,
            affected,
            whole,
            self._gateways.planned,
            wanted.overcommit,
            (*alike, *_notes(tenants)),
        )

    def _needs(self, tenants: Tenants) -> dict[int, Need | None]:
        """Return the need of each counter that used anything; None: no candidate was good enough."""
        days = Days.learnt(self._first_us, self._split_us)
        tolerance, counted = self._wishes.tolerance, self._wishes.counted
        self._progress("finding needs, first 20 candidates each")
        first = brackets(self._chunks, days, tenants.first_grids(), tolerance, counted)
        self._progress("finding needs, 20 candidates in between")
        both = first.refined(brackets(self._chunks, days, first, tolerance, counted))
        return {key: daily_need(of_days) for key, of_days in both.by_counter().items()}

    def _planned(self, plan: Plan, tenants: Tenants, loop: Loop) -> Planned:
        quota_of = {
            (line.quota_type, line.entity): line.proposed
            for line in plan.lines
            if line.proposed is not None
        }
        # The record's gateways together let in what those of the plan do.
        spread = self._gateways.spread
        return Planned(
            quotas={
                counter_id: quota_of[key] / spread
                for counter_id, key in tenants.of_counter.items()
                if key in quota_of
            },
            from_us=self._split_us,
            until_us=self._until_us,
            loop=loop,
            counted=self._wishes.counted,
        )

    def _verified(self, plan: Plan, tenants: Tenants) -> dict[TenantKey, Verified]:
        found: dict[Loop, dict[TenantKey, Proof]] = {"open": {}, "backlog": {}}
        for loop, of_tenant in found.items():
            of_counter = proofs(self._chunks, self._planned(plan, tenants, loop))
            for counter_id, proof in of_counter.items():
                key = tenants.of_counter[counter_id]
                of_tenant[key] = proof if key not in of_tenant else of_tenant[key].plus(proof)
        must_keep = {
            (line.quota_type, line.entity)
            for line in plan.lines
            if line.behaves and line.need is not None and line.reason not in _NOT_DECIDED
        }
        return {
            key: Verified(
                events=proof.events,
                share_open=proof.share_over,
                share_closed=found["backlog"][key].share_over,
                worst_ms=proof.worst_ms,
                is_kept=key not in must_keep
                or all(self._is_kept(of_tenant[key]) for of_tenant in found.values()),
            )
            for key, proof in found["open"].items()
        }

    def _is_kept(self, proof: Proof) -> bool:
        """One request of few proves nothing."""
        tolerance = self._wishes.tolerance
        return (
            proof.over <= max(1, proof.events * tolerance.share_over_max)
            and proof.worst_ms <= tolerance.worst_ms_max
        )


def _confirmed(plan: Plan, verified: Mapping[TenantKey, Verified]) -> Plan:
    """Return the plan without the changes that the held-out time does not bear out."""
    lines = []
    for line in plan.lines:
        proof = verified.get((line.quota_type, line.entity))
        if proof is None or proof.is_kept:
            lines.append(line)
            continue
        quota = format_quota(line.quota_type, line.proposed or 0.0)
        share = max(proof.share_open, proof.share_closed)
        lines.append(
            not_confirmed(
                line,
                f"of its {proof.events:,} requests held out {share:.2%} would wait at {quota}, "
                f"{proof.worst_ms:,.0f} ms at most",
            )
        )
    return replace(plan, lines=tuple(lines))


def _named_alike(runs: Iterable[Run]) -> Iterator[str]:
    """Say which gateways have one name."""
    # Of a request log each broker's part is a run of its own.
    of_gateways = [run for run in runs if run.gateway != REQUEST_LOG]
    for name, count in runs_at_once(of_gateways).items():
        if count > 1:
            yield (
                f'{count} runs of gateway "{name_on_screen(name)}" were there at once. Gateways of one name count as one '
                f"here, and each lets in the whole plan: give each a name (gateway.name), or say --gateways {count}"
            )


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
