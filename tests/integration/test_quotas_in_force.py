"""Real clients at full speed under byte-rate quotas: limits hold, nothing is lost, the law holds."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession
from tests.integration.law_of_record import law_of

from kvota.app.demo.verdicts import verdicts
from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import QuotaType

QUOTA = 200_000
# A tenth of a second's worth each, in batches of up to 20 KB.
RECORD = bytes(2_000)
SECONDS = 12.0
# One look of a client at what there is to send and to read takes far less.
ROUND_S = 0.25
BUCKETS = {
    QuotaType.PRODUCE: BucketSettings(burst_ms=1_000, debt_max_ms=500),
    QuotaType.FETCH: BucketSettings(burst_ms=1_000, debt_max_ms=500),
}
QUOTAS = """
[[quota]]
user_default = true
producer_byte_rate = {quota}
consumer_byte_rate = {quota}
"""


@dataclass
class Seen:
    """What the clients saw, and where the gateway's record is."""

    produced: int
    fetched: list[int]
    record: Path
    buckets: Mapping[QuotaType, BucketSettings]


@pytest.fixture(scope="module")
def topics(kafka: LocalKafka) -> None:
    for topic in ("in-force-up", "in-force-down"):
        kafka.create_topic(topic)
    _fill(kafka.bootstrap_servers, "in-force-down")


@pytest.fixture(scope="module", params=[{}, BUCKETS], ids=["sampled-rate", "token-bucket"])
def seen(
    request: pytest.FixtureRequest,
    kafka: LocalKafka,
    topics: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Seen:
    folder = tmp_path_factory.mktemp("in-force")
    gateway = _gateway(
        folder,
        kafka,
        QUOTA,
        enforce=("PRODUCE", "FETCH"),
        buckets=request.param,
        windows={"quota.window.num": 2, "quota.window.size.seconds": 1},
    )
    with gateway:
        produced, fetched = _traffic(gateway.bootstrap_servers, folder.name)
        assert gateway.running
    return Seen(produced, fetched, folder / "record", request.param)


def _gateway(
    folder: Path,
    kafka: LocalKafka,
    quota: int,
    *,
    enforce: tuple[str, ...],
    buckets: Mapping[QuotaType, BucketSettings] | None = None,
    windows: dict[str, int] | None = None,
) -> GatewayProcess:
    return GatewayProcess(
        folder,
        config=gateway_toml(
            upstream=kafka.bootstrap_servers,
            node_ids="0-2",
            enforce=dict.fromkeys(enforce, True),
            buckets=buckets,
            record="record",
            kafka=windows,
        ),
        quotas=QUOTAS.format(quota=quota),
    )


def _fill(bootstrap_servers: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "batch.size": 20_000})
    for number in range(4_000):
        producer.produce(topic, RECORD, key=b"%d" % number)
        producer.poll(0)
    assert producer.flush(60) == 0


def _traffic(bootstrap_servers: str, group: str) -> tuple[int, list[int]]:
    """Both at once, as fast as they may; returns the records acknowledged, and those received."""
    acknowledged: list[int] = []
    failed: list[object] = []

    def delivered(error: object, _message: object) -> None:
        (failed if error else acknowledged).append(error)  # type: ignore[arg-type]

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "client.id": "up",
            "enable.idempotence": True,
            "batch.size": 20_000,
            "queue.buffering.max.messages": 100,
        }
    )
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "client.id": "down",
            "group.id": group,
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": 50_000,
        }
    )
    consumer.assign([TopicPartition("in-force-down", 0, 0)])
    received: list[int] = []
    worked_s, now_s = 0.0, time.monotonic()
    while worked_s < SECONDS:
        # The clients stand still with the machine at times, which are none of theirs.
        before_s, now_s = now_s, time.monotonic()
        worked_s += min(now_s - before_s, ROUND_S)
        try:
            producer.produce("in-force-up", RECORD, on_delivery=delivered)
        except BufferError:
            producer.poll(0.01)
        received += [int(message.key()) for message in consumer.consume(100, 0.001)]
    assert producer.flush(60) == 0
    consumer.close()
    assert not failed
    return len(acknowledged), received


def test_nothing_is_lost_and_the_quota_is_used(seen: Seen) -> None:
    assert seen.fetched == list(range(len(seen.fetched)))
    # Far from the quota only where something stalls; how near it comes is for bench/hold.
    assert len(seen.fetched) * len(RECORD) > 0.4 * SECONDS * QUOTA
    assert seen.produced * len(RECORD) > 0.4 * SECONDS * QUOTA


def test_token_buckets_hold_in_every_interval_and_nothing_else_is_judged(seen: Seen) -> None:
    judged = verdicts(seen.record, seen.buckets)

    assert {key[1] for key in judged} == set(seen.buckets)
    assert all(verdict.holds for verdict in judged.values()), judged


def test_the_record_has_throttled_requests_and_refused_fetches_and_the_law_holds(
    spark: SparkSession, seen: Seen
) -> None:
    rows = pq.read_table(seen.record)
    outcomes = {
        (row["quota_type"], row["outcome"]): row["rows"]
        for row in rows.group_by(["quota_type", "outcome"])
        .aggregate([([], "count_all")])
        .rename_columns({"count_all": "rows"})
        .to_pylist()
    }
    assert outcomes["PRODUCE", "throttled"] > 10
    assert outcomes["FETCH", "rejected"] > 5
    assert pc.all(rows["enforced"]).as_py()

    found = law_of(spark, seen.record)

    assert (found.holds, found.rows, found.unjudged) == (True, rows.num_rows, 0), found.differences
    assert (found.missing, found.repeated, found.not_replayed) == (0, 0, 0)


def test_records_without_acks_arrive(kafka: LocalKafka, tmp_path: Path) -> None:
    kafka.create_topic("in-force-acks-0")
    gateway = _gateway(tmp_path, kafka, 1_000_000, enforce=("PRODUCE",))
    count = 7_500  # 15 MB: above what the first window lets through at once, and 5 s of it
    with gateway:
        producer = Producer({"bootstrap.servers": gateway.bootstrap_servers, "acks": 0})
        for _ in range(count):
            producer.produce("in-force-acks-0", RECORD)
            producer.poll(0)
        assert producer.flush(60) == 0
        received = _count(kafka.bootstrap_servers, "in-force-acks-0", count)
    rows = pq.read_table(tmp_path / "record").to_pylist()

    assert received == count
    charged = [row for row in rows if row["value"] > 2_000]
    assert max(row["throttle_ms"] for row in charged) > 0
    assert {row["upstream_throttle_ms"] for row in charged} == {None}


def _count(bootstrap_servers: str, topic: str, wanted: int) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    received, end = 0, time.monotonic() + 60
    while received < wanted and time.monotonic() < end:
        received += len(consumer.consume(1_000, 1.0))
    consumer.close()
    return received
