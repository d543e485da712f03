"""Consumers wait for records, not for their quota: where they have read all there is, and where a batch is larger than their room."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.endurance.caught_up import ALGORITHMS, Plan, run_caught_up
from tests.endurance.gated_kafka import NODES_MAX
from tests.endurance.recorded import rows_by_outcome, waits_of_fetches

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import QuotaType

PLAN = Plan(
    consumers=20,
    limit=1e8,
    record_bytes=[200, 20_000],
    parts=1,
    records=5,
    pause_s=0.02,
    settle_s=1.0,
)
# Four seconds of the limit, with room for one: more than a window that slides ever makes of it.
BATCH_BYTES, LIMIT, ROOM_BYTES = 900_000, 225_000, 225_000
BATCHES, SHARING = 3, 2
WAIT_S = 90.0


def test_a_new_record_is_with_each_consumer_once_before_and_behind_a_restart(
    kafka: LocalKafka, tmp_path: Path
) -> None:
    seen, wrong = run_caught_up(kafka, tmp_path, PLAN)

    assert wrong == []
    parts = [
        (one.missing, one.twice) for ways in seen.values() for of in ways.values() for one in of
    ]
    assert parts == [(0, 0)] * 16
    for algorithm in ALGORITHMS:
        rows = rows_by_outcome(tmp_path / algorithm / "record")
        assert rows.keys() == {"FETCH admitted"}


def test_nobody_waits_for_good_for_a_batch_that_is_larger_than_the_room(
    kafka: LocalKafka, tmp_path: Path
) -> None:
    kafka.create_topic("large")
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for _ in range(BATCHES):
        producer.produce("large", bytes(BATCH_BYTES))
        assert producer.flush(30) == 0

    with ThreadPoolExecutor(len(ALGORITHMS)) as pool:
        got = list(pool.map(lambda name: _read_by_all(kafka, tmp_path / name, name), ALGORITHMS))

    assert got == [[list(range(BATCHES))] * SHARING] * len(ALGORITHMS)
    for name in ALGORITHMS:
        waited_for = waits_of_fetches(tmp_path / name / "record")
        # What is expected of a Fetch is more than there ever is room for: it waits for all there can be.
        assert waited_for
        assert max(waited_for) <= ROOM_BYTES


def _read_by_all(kafka: LocalKafka, folder: Path, algorithm: str) -> list[list[int]]:
    """The offsets that each of those got who share a limit."""
    bucket = {QuotaType.FETCH: BucketSettings(burst_ms=1_000, debt_max_ms=0)}
    gateway = GatewayProcess(
        folder,
        config=gateway_toml(
            upstream=kafka.bootstrap_servers,
            node_ids=f"0-{NODES_MAX}",
            enforce={"FETCH": True},
            buckets=bucket if algorithm == "token_bucket" else None,
            kafka={"quota.window.num": 2},
            record="record",
        ),
        quotas=f"[[quota]]\nclient_id_default = true\nconsumer_byte_rate = {LIMIT}\n",
    )
    with gateway, ThreadPoolExecutor(SHARING) as pool:
        return list(pool.map(lambda _: _read(gateway.bootstrap_servers), range(SHARING)))


def _read(bootstrap_servers: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "client.id": "sharing",
            "group.id": "sharing",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("large", 0, 0)])
    offsets: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while len(offsets) < BATCHES and time.monotonic() < deadline:
        offsets += [m.offset() for m in consumer.consume(10, 1.0) if not m.error()]
    consumer.close()
    return offsets
