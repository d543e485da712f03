"""Recommends a quota for every tenant: needs from replay, shares from planning, proof by replay."""

import difflib
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import DataFrame, Row

from kvota.callbacks import DefaultQuotaCallback
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import UsageError
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG
from kvota.pipeline.charged import AS_RECORDED, Counted
from kvota.pipeline.chunks import Chunks
from kvota.pipeline.replay import Mode, OfCounters, replay
from kvota.pipeline.usage import usage_total
from kvota.planning.diff import Change, Effect, changes, effects, with_plan
from kvota.planning.guardrails import Guardrails
from kvota.planning.need import Tolerance, Trial, between, bracket, geometric_grid
from kvota.planning.plan import HEADROOM, Observed, Plan, PlanLine, make_plan

Level = Literal["user", "client", "user-client"]

# The first grid: from a quarter of the mean to four times the busiest second.
_GRID_BELOW_MEAN = 0.25
_GRID_ABOVE_MAX = 4.0


_Key = tuple[QuotaType, QuotaEntity]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The replay of one tenant's planned quota against what was recorded."""

    share_open: float  # of its requests, had they come as they came
    share_closed: float  # of its requests, had its clients waited (backlog)
    worst_ms: float  # the longest single throttle, open loop
    is_kept: bool  # behaves, and the replay agrees; or it was to be capped anyway


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A plan with its proof and its consequences; making one changes nothing."""

    level: Level
    plan: Plan
    verified: Mapping[_Key, Verified]
    old: ConfiguredQuotas
    new: ConfiguredQuotas
    effects: tuple[Effect, ...]
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
        tenants = _Tenants(kept, wanted)
        tenants.refuse_strangers()
        progress("finding needs, first 20 candidates each")
        first = _trials(kept, wanted, tenants.first_grid())
        brackets = {key: bracket(trials, wanted.tolerance) for key, trials in first.items()}
        progress("finding needs, 20 candidates in between")
        second = _trials(kept, wanted, {key: between(found) for key, found in brackets.items()})
        needs = {
            key: bracket([*first[key], *second.get(key, ())], wanted.tolerance).passes
            for key in first
        }
        observed = tenants.observed(needs, in_force)
        plan = make_plan(observed, capacities, wanted.guardrails, headroom=wanted.headroom)
        progress("replaying the plan")
        verified = _verify(kept, wanted, plan, tenants)
    finally:
        kept.unpersist()
    new = with_plan(quotas, plan)
    return Recommendation(
        wanted.level,
        plan,
        verified,
        quotas,
        new,
        effects(in_force, DefaultQuotaCallback(new), _names_of(clients), capacities),
        tenants.notes(),
    )


class _Tenants:
    """The tenants in the record, with their counters and what they used."""

    def __init__(self, chunks: Chunks, wishes: Wishes) -> None:
        self._wishes = wishes
        self.of_counter: dict[int, _Key] = {}
        self._used_of: dict[int, Row] = {}
        self._nameless = 0
        for used in usage_total(chunks).collect():
            entity = _entity(used)
            if entity is None:
                self._nameless += used["events"]
                continue
            self.of_counter[used["counter_id"]] = (QuotaType(used["quota_type"]), entity)
            self._used_of[used["counter_id"]] = used

    def refuse_strangers(self) -> None:
        """Refuse a weight or an exemption of somebody who is not in the record: most likely misspelt."""
        here = {
            str(entity.user if entity.user is not None else entity.client_id)
            for _, entity in self.of_counter.values()
        }
        for what, names in (
            ("a weight", self._wishes.weights),
            ("an exemption", self._wishes.guardrails.exempt_users),
        ):
            for name in sorted(set(names) - here):
                near = difflib.get_close_matches(name, sorted(here), n=1)
                hint = f'did you mean "{near[0]}"?' if near else "nobody in the record is named so"
                msg = f'{what} is given to "{name}": {hint}'
                raise UsageError(msg)

    def first_grid(self) -> dict[int, tuple[float, ...]]:
        """Return the first candidates of every counter that used anything."""
        return {
            key: geometric_grid(
                used["rate_mean"] * _GRID_BELOW_MEAN, used["rate_max"] * _GRID_ABOVE_MAX
            )
            for key, used in self._used_of.items()
            if used["rate_mean"] > 0 and used["rate_max"] >= used["rate_mean"]
        }

    def observed(
        self, needs: Mapping[int, float | None], in_force: DefaultQuotaCallback
    ) -> list[Observed]:
        """Return one per tenant; the broker where it needs most decides: a quota is per broker."""
        of_tenant: dict[_Key, list[int]] = {}
        for counter_id, key in self.of_counter.items():
            of_tenant.setdefault(key, []).append(counter_id)
        return [
            self._observed(key, of_tenant[key], needs, in_force)
            for key in sorted(of_tenant, key=lambda key: (key[0], str(key[1])))
        ]

    def notes(self) -> tuple[str, ...]:
        """Return notes that the plan's reader needs."""
        if not self._nameless:
            return ()
        return (
            f"{self._nameless:,} requests name no client id; no quota of this level can be set for them",
        )

    def _observed(
        self,
        key: _Key,
        counter_ids: Sequence[int],
        needs: Mapping[int, float | None],
        in_force: DefaultQuotaCallback,
    ) -> Observed:
        quota_type, entity = key
        used = [self._used_of[counter_id] for counter_id in counter_ids]
        found = [needs[counter_id] for counter_id in counter_ids if counter_id in needs]
        known = [need for need in found if need is not None]
        tags = {USER_TAG: str(entity.user or ""), CLIENT_ID_TAG: str(entity.client_id or "")}
        return Observed(
            quota_type=quota_type,
            entity=entity,
            need=max(known) if known and len(known) == len(found) else None,
            rate_p50=max(row["rate_p50"] for row in used),
            events=sum(row["events"] for row in used),
            hours=used[0]["window_s"] / 3600,
            current=in_force.quota_limit(quota_type, tags),
            weight=self._weight(entity),
            is_censored=any(row["censored"] for row in used),
        )

    def _weight(self, entity: QuotaEntity) -> float:
        weights = self._wishes.weights
        name = entity.user if entity.user is not None else entity.client_id
        return weights.get(str(name), 1.0)


def _entity(row: Row) -> QuotaEntity | None:
    if row["user"] is None and row["client_id"] is None:
        return None
    return QuotaEntity(user=row["user"], client_id=row["client_id"])


def _trials(
    chunks: Chunks, wishes: Wishes, candidates: Mapping[int, Sequence[float]]
) -> dict[int, list[Trial]]:
    trials: dict[int, list[Trial]] = {}
    for row in _replayed(chunks, wishes, candidates, "open"):
        trial = Trial(quota=row["quota"], share_over=row["share_over"], worst_ms=row["worst_ms"])
        trials.setdefault(row["counter_id"], []).append(trial)
    return trials


def _replayed(
    chunks: Chunks, wishes: Wishes, candidates: Mapping[int, Sequence[float]], mode: Mode
) -> Iterable[Row]:
    wanted = {key: quotas for key, quotas in candidates.items() if quotas}
    if not wanted:
        return []
    columns = ("counter_id", "quota", "share_over", "worst_ms")
    replayed = replay(chunks, OfCounters(wanted), counted=wishes.counted, mode=mode)
    return replayed.select(*columns).collect()


def _verify(chunks: Chunks, wishes: Wishes, plan: Plan, tenants: _Tenants) -> dict[_Key, Verified]:
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
    shares: dict[Mode, dict[_Key, float]] = {"open": {}, "backlog": {}}
    worst_ms: dict[_Key, float] = {}
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


def _names_of(clients: DataFrame) -> list[tuple[str, str]]:
    rows = clients.select("user", "client_id").distinct().collect()
    return [(row["user"] or "", row["client_id"] or "") for row in rows]
