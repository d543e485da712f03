"""Finds the clients in a record whom a plan reaches: all are counted, the first ones are named."""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812

from kvota.callbacks import DefaultQuotaCallback
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_type import QuotaType
from kvota.pipeline.arrow_columns import spark_ddl
from kvota.planning.diff import Effect, effects

# More are only counted.
EFFECTS_MAX = 10_000

_EFFECT = pa.schema(
    [
        ("user", pa.string()),
        ("client_id", pa.string()),
        ("quota_type", pa.string()),
        ("old_limit", pa.float64()),
        ("new_limit", pa.float64()),
        ("moves", pa.bool_()),
    ]
)

Batches = Iterator[pa.RecordBatch]


def reached(
    clients: DataFrame,
    old: ConfiguredQuotas,
    new: ConfiguredQuotas,
    quota_types: Iterable[QuotaType],
    *,
    most: int = EFFECTS_MAX,
) -> tuple[tuple[Effect, ...], int]:
    """Return the first clients to whom new quotas give another limit or counter, and how many there are.

    Args:
        clients: of this table ``user`` and ``client_id`` are read.
        old: in force.
        new: to come.
        quota_types: those that are looked at.
        most: so many are returned.
    """
    if old == new:
        return (), 0
    names = [F.coalesce(name, F.lit("")).alias(name) for name in ("user", "client_id")]
    stage = _effects_stage(old, new, tuple(quota_types))
    found = clients.select(*names).distinct().mapInArrow(stage, spark_ddl(_EFFECT))
    seen = Observation()
    counted = found.observe(seen, F.count(F.lit(1)).alias("rows"))
    first = counted.orderBy("user", "client_id", "quota_type").limit(most).collect()
    of_first = (row.asDict() | {"quota_type": QuotaType(row["quota_type"])} for row in first)
    return tuple(Effect(**row) for row in of_first), int(seen.get["rows"])


def _effects_stage(
    old: ConfiguredQuotas, new: ConfiguredQuotas, quota_types: tuple[QuotaType, ...]
) -> Callable[[Batches], Batches]:
    def stage(batches: Batches) -> Batches:
        before, after = DefaultQuotaCallback(old), DefaultQuotaCallback(new)
        for batch in batches:
            names = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            rows = [_row(effect) for effect in effects(before, after, names, quota_types)]
            yield from pa.Table.from_pylist(rows, _EFFECT).to_batches()

    return stage


def _row(effect: Effect) -> dict[str, object]:
    row = {name: getattr(effect, name) for name in _EFFECT.names}
    return row | {"quota_type": effect.quota_type.value}
