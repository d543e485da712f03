"""Reads from a record the tenants to plan for: those with the most requests, however many there are."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from kvota.callbacks import DefaultQuotaCallback
from kvota.model.errors import UsageError
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG
from kvota.pipeline.chunks import Chunks
from kvota.pipeline.usage import usage_total
from kvota.planning.need import geometric_grid
from kvota.planning.plan import Observed

# A plan has at most so many counters: of each a few hundred bytes come to the driver. A tenant has one per broker.
COUNTERS_MAX = 60_000

# The first grid: from a quarter of the mean to four times the busiest second.
_GRID_BELOW_MEAN = 0.25
_GRID_ABOVE_MAX = 4.0

_TENANT = ("quota_type", "user", "client_id")
_USED = (
    "counter_id",
    *_TENANT,
    "node_id",
    "window_s",
    "events",
    "rate_mean",
    "rate_p50",
    "rate_max",
    "censored",
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
class Tenants:
    """The tenants to plan for, with their counters and what they used.

    Attributes:
        of_counter: whose each counter is, by counter_id.
        used_of: what was used of each counter, as ``usage_total`` has it.
        others: by quota type; none where all are planned for.
        nameless: requests that have no name of the level.
    """

    of_counter: Mapping[int, TenantKey]
    used_of: Mapping[int, _Row]
    others: Mapping[QuotaType, Others]
    nameless: int

    def first_grid(self) -> dict[int, tuple[float, ...]]:
        """Return the first candidates of every counter that used anything."""
        return {
            key: geometric_grid(
                used["rate_mean"] * _GRID_BELOW_MEAN, used["rate_max"] * _GRID_ABOVE_MAX
            )
            for key, used in self.used_of.items()
            if used["rate_mean"] * _GRID_BELOW_MEAN > 0
            and used["rate_mean"] <= used["rate_max"]
            and isfinite(used["rate_max"] * _GRID_ABOVE_MAX)
        }

    def observed(
        self,
        needs: Mapping[int, float | None],
        in_force: DefaultQuotaCallback,
        weights: Mapping[str, float],
    ) -> list[Observed]:
        """Return one per tenant; the broker where it needs most decides: a quota is per broker."""
        of_tenant: dict[TenantKey, list[int]] = {}
        for counter_id, key in self.of_counter.items():
            of_tenant.setdefault(key, []).append(counter_id)
        return [
            self._observed(key, of_tenant[key], needs, in_force, weights)
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
        needs: Mapping[int, float | None],
        in_force: DefaultQuotaCallback,
        weights: Mapping[str, float],
    ) -> Observed:
        quota_type, entity = key
        used = [self.used_of[counter_id] for counter_id in counter_ids]
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
            weight=weights.get(_name(entity), 1.0),
            is_censored=any(row["censored"] for row in used),
        )


def read_tenants(
    chunks: Chunks, always: Iterable[str] = (), *, counters_max: int = COUNTERS_MAX
) -> Tenants:
    """Find the tenants with the most requests, and what they used; this runs Spark jobs.

    Args:
        chunks: what was recorded, by user, client id or both, with ``USAGE_COLUMNS``.
        always: users (or client ids) that are among them, however few requests they have.
        counters_max: of all tenants, about.
    """
    used = usage_total(chunks).select(*_USED).persist()
    try:
        return _tenants(used, sorted(set(always)), counters_max)
    finally:
        used.unpersist()


def _tenants(used: DataFrame, always: Sequence[str], counters_max: int) -> Tenants:
    has_name = F.coalesce("user", "client_id").isNotNull()
    named = used.where(has_name)
    of_brokers = (
        named.groupBy("quota_type", "node_id")
        .agg(F.sum(F.col("rate_mean").try_cast(_EXACT)).alias("rate"), F.count("*").alias("count"))
        .collect()
    )
    brokers = max(1, len({row["node_id"] for row in of_brokers}))
    counters = _of_the_busiest(named, counters_max // brokers + 1, always).toArrow().to_pylist()
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
