"""Reads from a record the tenants to plan for: those with the most requests, however many there are."""

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import fsum, isfinite
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from kvota.callbacks import DefaultQuotaCallback
from kvota.model.errors import UsageError
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG
from kvota.pipeline.any_session import arrow_table
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.brackets import Ends
from kvota.pipeline.chunks import Chunks
from kvota.pipeline.habits import habits
from kvota.pipeline.usage_tables import span_s
from kvota.planning.need import Need
from kvota.planning.observed import Observed

# A plan has at most so many counters: of each a few hundred bytes come to the driver. A tenant has one per gateway and broker.
COUNTERS_MAX = 60_000

# The first grid: from a quarter of the mean to four times the busiest second.
_GRID_BELOW_MEAN = 0.25
_GRID_ABOVE_MAX = 4.0

_TENANT = ("quota_type", "user", "client_id")
_USED = (
    "counter_id",
    *_TENANT,
    "gateway",
    "node_id",
    "events",
    "rate_mean",
    "rate_max",
    "rate_usual",
    "hours",
    "share_throttled",
)

# Sums of these do not depend on who adds them up in which order; what does not fit is no rate.
_EXACT = "decimal(28,6)"

TenantKey = tuple[QuotaType, QuotaEntity]
_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Others:
    """The tenants of one quota type that are not planned for."""

    tenants: int
    rate_mean: float  # of all of them together, on the broker where they use most


@dataclass(frozen=True, slots=True)
class Gateways:
    """How many there are: each holds a tenant to its quota by itself."""

    recorded: int
    planned: int

    @property
    def spread(self) -> float:
        """What one of the plan gets of what one of the record had."""
        return self.recorded / self.planned


@dataclass(frozen=True, slots=True)
class Tenants:
    """The tenants to plan for, with their counters and what they used.

    Attributes:
        of_counter: whose each counter is, by counter_id.
        used_of: what was used of each counter, as ``habits`` has it, and ``rate_mean`` over the record.
        others: by quota type; none where all are planned for.
        nameless: requests that have no name of the level.
    """

    of_counter: Mapping[int, TenantKey]
    used_of: Mapping[int, _Row]
    others: Mapping[QuotaType, Others]
    nameless: int

    def first_grids(self) -> Ends:
        """Return the ends of the first candidates of every counter that used anything."""
        ends = {
            key: (used["rate_mean"] * _GRID_BELOW_MEAN, used["rate_max"] * _GRID_ABOVE_MAX)
            for key, used in self.used_of.items()
            if used["rate_mean"] * _GRID_BELOW_MEAN > 0
            and used["rate_mean"] <= used["rate_max"]
            and isfinite(used["rate_max"] * _GRID_ABOVE_MAX)
        }
        keys: Array = np.array(sorted(ends), np.int64)
        lows, highs = (np.array([ends[key][end] for key in sorted(ends)]) for end in (0, 1))
        return Ends(keys, lows, highs)

    def observed(
        self,
        needs: Mapping[int, Need | None],
        in_force: DefaultQuotaCallback,
        weights: Mapping[str, float],
        gateways: Gateways,
    ) -> list[Observed]:
        """Return one per tenant; of several gateways the one where it needs most decides: a quota is per gateway.

        Args:
            needs: by counter_id; a counter that is not there learnt nothing.
            in_force: gives the quotas in force.
            weights: by name; others have 1.
            gateways: of the record and of the plan.
        """
        of_tenant: dict[TenantKey, list[int]] = {}
        for counter_id, key in self.of_counter.items():
            of_tenant.setdefault(key, []).append(counter_id)
        return [
            self._observed(key, of_tenant[key], needs, in_force, weights, gateways)
            for key in sorted(of_tenant, key=lambda key: (key[0], str(key[1])))
        ]

    def refuse_strangers(self, weights: Iterable[str], exempt: Iterable[str]) -> None:
        """Refuse a weight or an exemption of somebody who is not in the record: most likely misspelt.

        Raises:
            UsageError: there is one.
        """
        here = {_name(entity) for _, entity in self.of_counter.values()}
        for what, names in (("a weight", weights), ("an exemption", exempt)):
            for name in sorted(set(names) - here):
                near = difflib.get_close_matches(name, sorted(here), n=1)
                hint = f'did you mean "{near[0]}"?' if near else "nobody in the record is named so"
                msg = f'{what} is given to "{name}": {hint}'
                raise UsageError(msg)

    def _observed(
        self,
        key: TenantKey,
        counter_ids: Sequence[int],
        needs: Mapping[int, Need | None],
        in_force: DefaultQuotaCallback,
        weights: Mapping[str, float],
        gateways: Gateways,
    ) -> Observed:
        quota_type, entity = key
        used = [self.used_of[counter_id] for counter_id in counter_ids]
        spread = gateways.spread
        of_broker: dict[int, list[Need | None]] = {}
        unlearnt: Counter[int] = Counter()
        for counter_id in counter_ids:
            broker = self.used_of[counter_id]["node_id"]
            learnt = of_broker.setdefault(broker, [])
            if counter_id in needs:
                learnt.append(needs[counter_id])
            else:
                unlearnt[broker] += 1
        # Where nothing was learnt, it may need what it needs elsewhere.
        elsewhere = _largest([need for learnt in of_broker.values() for need in learnt], spread)
        tags = {USER_TAG: str(entity.user or ""), CLIENT_ID_TAG: str(entity.client_id or "")}
        return Observed(
            quota_type=quota_type,
            entity=entity,
            needs={
                broker: _largest(learnt, spread) if learnt else elsewhere
                for broker, learnt in of_broker.items()
            },
            rate_usual=max(row["rate_usual"] for row in used) * spread,
            events=sum(row["events"] for row in used),
            hours=max(row["hours"] for row in used),
            current=in_force.quota_limit(quota_type, tags),
            weight=weights.get(_name(entity), 1.0),
            share_throttled=max(row["share_throttled"] for row in used),
            evenness={
                broker: _evenness(learnt, unlearnt[broker], gateways.recorded)
                for broker, learnt in of_broker.items()
                if learnt
            },
        )


def _largest(needs: Sequence[Need | None], spread: float) -> Need | None:
    """Return the need at the gateway where it is largest; None: at one of them it is not known."""
    known = [need for need in needs if need is not None]
    if not known or len(known) < len(needs):
        return None
    return max(known, key=lambda need: need.rate).times(spread)


def _evenness(needs: Sequence[Need | None], unlearnt: int, gateways: int) -> float:
    """Return the mean need over all gateways as a share of the largest; where one is not known, it is as large."""
    rates = [need.rate for need in needs if need is not None]
    if len(rates) < len(needs):
        return 1.0
    most = max(rates)
    return (fsum(rates) + unlearnt * most) / (gateways * most) if most > 0 else 1.0


def read_tenants(
    chunks: Chunks, always: Iterable[str] = (), *, counters_max: int = COUNTERS_MAX
) -> Tenants:
    """Find the tenants with the most requests, and what they used; this runs Spark jobs.

    Args:
        chunks: what was recorded, by user, client id or both, with ``USAGE_COLUMNS``.
        always: users (or client ids) that are among them, however few requests they have.
        counters_max: of all tenants, about.
    """
    _, span = span_s(chunks)
    mean = (F.col("value_sum") / F.lit(float(span))).alias("rate_mean")
    used = habits(chunks).select("*", mean).select(*_USED).persist()
    try:
        return _tenants(used, sorted(set(always)), counters_max)
    finally:
        used.unpersist()


def _tenants(used: DataFrame, always: Sequence[str], counters_max: int) -> Tenants:
    has_name = F.coalesce("user", "client_id").isNotNull()
    named = used.where(has_name)
    of_brokers = (
        named.groupBy("quota_type", "node_id")
        .agg(
            F.sum(F.expr(f"try_cast(rate_mean AS {_EXACT})")).alias("rate"),
            F.count("*").alias("count"),
        )
        .collect()
    )
    gateways = named.select("gateway").distinct().count()
    brokers = max(1, len({row["node_id"] for row in of_brokers}) * gateways)
    busiest = _of_the_busiest(named, counters_max // brokers + 1, always)
    counters = arrow_table(busiest).to_pylist()
    nameless = used.where(~has_name).agg(F.sum("events").alias("events")).head()
    others: dict[QuotaType, Others] = {}
    if len(counters) < sum(row["count"] for row in of_brokers):
        others = _others(named, of_brokers, counters)
    return Tenants(
        {row["counter_id"]: _key(row) for row in counters},
        {row["counter_id"]: row for row in counters},
        others,
        0 if nameless is None else nameless["events"] or 0,
    )


def _of_the_busiest(named: DataFrame, count: int, always: Sequence[str]) -> DataFrame:
    """Return the rows of the tenants with most requests, and of those that are always wanted."""
    wanted = F.coalesce("user", "client_id").isin(*always) if always else F.lit(col=False)
    chosen = (
        named.groupBy(*_TENANT)
        .agg(F.sum("events").alias("requests"))
        .orderBy(wanted.desc(), F.col("requests").desc(), *_TENANT)
        .limit(count + len(always) * len(QuotaType))
        .select(*(F.col(name).alias(f"chosen_{name}") for name in _TENANT))
    )
    same = [F.col(name).eqNullSafe(F.col(f"chosen_{name}")) for name in _TENANT]
    return named.join(F.broadcast(chosen), same, "left_semi").orderBy("counter_id")


def _others(
    named: DataFrame, of_brokers: Iterable[Row], counters: Iterable[_Row]
) -> dict[QuotaType, Others]:
    """Sum up those that are not among ``counters``."""
    rates = {(row["quota_type"], row["node_id"]): row["rate"] or Decimal(0) for row in of_brokers}
    tenants: dict[str, set[TenantKey]] = {}
    for row in counters:
        tenants.setdefault(row["quota_type"], set()).add(_key(row))
        if isfinite(row["rate_mean"]):
            rates[row["quota_type"], row["node_id"]] -= Decimal(row["rate_mean"])
    every = named.select(*_TENANT).distinct().groupBy("quota_type").count().collect()
    return {
        QuotaType(kind): Others(
            count - len(tenants.get(kind, ())),
            max(0.0, *(float(rate) for (name, _), rate in rates.items() if name == kind)),
        )
        for kind, count in every
        if count > len(tenants.get(kind, ()))
    }


def _key(row: _Row) -> TenantKey:
    entity = QuotaEntity(user=row["user"], client_id=row["client_id"])
    return QuotaType(row["quota_type"]), entity


def _name(entity: QuotaEntity) -> str:
    return str(entity.user if entity.user is not None else entity.client_id)
