"""The record that comes with kvota, for a first look: made-up tenants, decided by the engine itself.

    .venv/bin/python -m tests.sample_record

writes it anew into the package. A test holds that its rows are what this makes.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from math import pi, sin
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import QuotaEngine
from kvota.model.quota_type import CLUSTER_NODE_ID, Algorithm, QuotaType
from kvota.model.volume_row import VolumeRow
from kvota.record.event_parquet import parquet_bytes
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.record.places import VOLUME_FOLDER
from kvota.record.runs import Run
from kvota.record.volume_record import VOLUME_SCHEMA
from kvota.store.quotas_file import load_client_quotas
from kvota.testing.synthetic_volumes import HOUR_US, Kind, synthetic_volume

SAMPLE = Path(__file__).parents[1] / "src" / "kvota" / "app" / "report" / "sample"
GATEWAY, RUN = "gateway-1", "sample"
START_US = 1_763_971_200_000_000  # 2025-11-24 08:00 UTC
SPAN_S = 9_000
BROKERS = (1, 2)
LOOKS_H = 14 * 24
TOTAL = 2_000_000_000_000
DISKS: tuple[tuple[Kind, int, float], ...] = (
    ("steady", 3, 0.55),
    ("doubled", 8, 0.815),
    ("clean-ups", 4, 0.62),
)
_PRODUCE, _FETCH, _CREATE_TOPICS = (0, 11), (1, 13), (19, 7)

EventRow = tuple[object, ...]


@dataclass(frozen=True)
class Tenant:
    """Requests a second and bytes a request, and how both go over time (seconds from the begin)."""

    user: str
    client_id: str
    quota_type: QuotaType
    per_s: float
    bytes_each: float
    shape: str = "even"

    def level(self, second: int) -> float:
        if self.shape == "waves":
            return 1 + 0.6 * sin(2 * pi * second / 3_000)
        if self.shape == "batches":  # five minutes of each half an hour
            return 6.0 if second % 1_800 < 300 else 0.15
        if self.shape == "grows":
            return 0.5 + 1.6 * second / SPAN_S
        if self.shape == "storms":  # a minute of each quarter of an hour
            return 25.0 if second % 900 < 60 else 0.05
        return 1.0


TENANTS = (
    Tenant("orders", "orders-api", QuotaType.PRODUCE, 0.9, 900_000, "waves"),
    Tenant("orders", "orders-reader", QuotaType.FETCH, 0.5, 1_400_000, "waves"),
    Tenant("analytics", "nightly-export", QuotaType.PRODUCE, 0.55, 2_200_000, "batches"),
    Tenant("analytics", "dashboards", QuotaType.FETCH, 0.6, 4_000_000, "batches"),
    Tenant("billing", "invoices", QuotaType.PRODUCE, 0.6, 700_000),
    Tenant("clickstream", "collector", QuotaType.PRODUCE, 1.2, 1_300_000, "grows"),
    Tenant("search", "indexer", QuotaType.FETCH, 0.7, 2_600_000),
    Tenant("ci-bot", "pipeline <main>", QuotaType.CONTROLLER_MUTATION, 0.03, 6),
    Tenant("ci-bot", "load-test", QuotaType.CONTROLLER_MUTATION, 0.04, 10, "storms"),
)


def sample_events() -> list[EventRow]:
    """The decisions of two hours and a half, in shadow mode."""
    quotas = load_client_quotas(SAMPLE / "quotas.toml").configured()
    engine = QuotaEngine(DefaultQuotaCallback(quotas), {})
    rows = []
    for seq, (ts_us, tenant, node_id, value) in enumerate(_requests()):
        rows.append(_decided(engine, seq, ts_us, tenant, node_id, value))
    return rows


def _requests() -> Iterator[tuple[int, Tenant, int, float]]:
    dice = random.Random(17)
    for second in range(SPAN_S):
        due = []
        for tenant in TENANTS:
            wanted = tenant.per_s * tenant.level(second)
            for _ in range(int(wanted) + (dice.random() < wanted % 1)):
                value = max(1, round(tenant.bytes_each * dice.gammavariate(6, 1 / 6)))
                due.append((dice.randrange(1_000_000), tenant, dice.choice(BROKERS), value))
        for offset_us, tenant, node_id, value in sorted(due, key=lambda each: each[0]):
            yield START_US + second * 1_000_000 + offset_us, tenant, node_id, value


def _decided(
    engine: QuotaEngine, seq: int, ts_us: int, tenant: Tenant, node_id: int, value: float
) -> EventRow:
    now_ms = ts_us // 1000
    if tenant.quota_type is QuotaType.CONTROLLER_MUTATION:
        quota = engine.mutations(tenant.user, tenant.client_id, strict=True, now_ms=now_ms)
        decision = quota.charge(value, now_ms)
        charge = (quota.tags, value, quota.limit, quota.samples, quota.sample_ms)
        end = (Algorithm.TOKEN_BUCKET, decision.outcome, decision.throttle_ms)
        return _row(seq, ts_us, tenant, CLUSTER_NODE_ID, charge, end)
    lane = engine.lane(tenant.quota_type, node_id, tenant.user, tenant.client_id, now_ms)
    assert lane is not None
    throttle_ms = lane.admit(value, now_ms)
    charge = (lane.tags, value, lane.limit, lane.samples, lane.sample_ms)
    outcome = "throttled" if throttle_ms else "admitted"
    return _row(seq, ts_us, tenant, node_id, charge, (lane.algorithm, outcome, throttle_ms))


def _row(
    seq: int,
    ts_us: int,
    tenant: Tenant,
    node_id: int,
    charge: tuple[str, float, float | None, int, int],
    end: tuple[str, str, int],
) -> EventRow:
    tags, value, limit, samples, sample_ms = charge
    algorithm, outcome, throttle_ms = end
    apis = {QuotaType.PRODUCE: _PRODUCE, QuotaType.FETCH: _FETCH}
    api = apis.get(tenant.quota_type, _CREATE_TOPICS)
    return (
        *(ts_us, seq, GATEWAY, RUN, node_id, str(tenant.quota_type)),
        *(TENANTS.index(tenant), tenant.user, tenant.client_id, tags, *api),
        *(float(value), limit, samples, sample_ms, str(algorithm), str(outcome)),
        *(False, throttle_ms, 0, None, None),
    )


def sample_looks() -> list[VolumeRow]:
    """A look an hour at the disks of three brokers, two weeks long; one has filled twice as fast since a few days."""
    rows = []
    for broker_id, (kind, seed, share) in enumerate(DISKS, start=1):
        volume = synthetic_volume(kind, seed, history_h=LOOKS_H)
        used = volume.used_bytes - volume.used_bytes[-1] + share * TOTAL
        end_us = START_US + SPAN_S * 1_000_000
        rows += [
            VolumeRow(
                observer=GATEWAY,
                ts_us=end_us - HOUR_US * (LOOKS_H - 1 - hour),
                broker_id=broker_id,
                log_dir="/var/lib/kafka/data",
                source="cluster",
                status="SUCCESS",
                device=None,
                total_bytes=TOTAL,
                usable_bytes=TOTAL - round(float(each)),
                cached=False,
                factor=1.0,
            )
            for hour, each in enumerate(used)
        ]
    return sorted(rows, key=lambda row: (row.ts_us, row.broker_id or 0))


def table_of(rows: list[EventRow] | list[VolumeRow], schema: pa.Schema) -> pa.Table:
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def write_sample(folder: Path) -> None:
    """Write the record, without what stands beside it."""
    (folder / VOLUME_FOLDER).mkdir(parents=True, exist_ok=True)
    rows = sample_events()
    run = Run(GATEWAY, RUN, 0, len(rows) - 1, len(rows), rows[0][0], rows[-1][0])  # type: ignore[arg-type]
    made = parquet_bytes(table_of(rows, EVENT_SCHEMA), [run])
    (folder / f"events-{GATEWAY}-{RUN}-{0:012}-0.parquet").write_bytes(made)
    looks = table_of(sample_looks(), VOLUME_SCHEMA)
    path = folder / VOLUME_FOLDER / f"volumes-{GATEWAY}-{RUN}-2025112410-0.parquet"
    pq.write_table(looks, path, compression="zstd", write_page_checksum=True)


if __name__ == "__main__":
    write_sample(SAMPLE / "record")
