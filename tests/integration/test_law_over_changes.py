"""The law on a run in which algorithm, enforcement, burst and limits change under the traffic."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from pyspark.sql import SparkSession
from tests.integration.law_of_record import law_of, with_limits_off

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import QuotaType

# Each stage is waited for where the machine has other work.
pytestmark = pytest.mark.timeout(600)

TOPIC = "law-over-changes"
PARTITIONS = 6
PRODUCERS = 3
STAGE_S, SEEN_S = 3.0, 60.0
BATCH_BYTES = 20_000
# So large that producers are above their limit where the machine has other work, too.
VALUE_BYTES = 7_000
BANDWIDTH = (QuotaType.PRODUCE, QuotaType.FETCH)
ALL = (*BANDWIDTH, QuotaType.CONTROLLER_MUTATION)
QUOTAS = """
[[quota]]
client_id = "law"
producer_byte_rate = {bytes_per_s}
consumer_byte_rate = {bytes_per_s}
controller_mutation_rate = {partitions_per_s}
"""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What is in force for some seconds, by the files that SIGHUP reads."""

    enforce: bool
    bucket: BucketSettings | None
    bytes_per_s: int = 100_000

    @property
    def quotas(self) -> str:
        return QUOTAS.format(
            bytes_per_s=self.bytes_per_s, partitions_per_s=self.bytes_per_s / 50_000
        )

    def config(self, upstream: str, first_port: int) -> str:
        buckets: Mapping[QuotaType, BucketSettings] = (
            {} if self.bucket is None else dict.fromkeys(BANDWIDTH, self.bucket)
        )
        return gateway_toml(
            upstream=upstream,
            first_port=first_port,
            enforce=dict.fromkeys(ALL, self.enforce),
            buckets=buckets,
            record="record",
        )


BUCKET = BucketSettings(burst_ms=1_000, debt_max_ms=500)
STAGES = (
    Stage(enforce=False, bucket=None),
    Stage(enforce=True, bucket=BUCKET),
    Stage(enforce=True, bucket=BUCKET, bytes_per_s=150_000),
    Stage(enforce=True, bucket=BucketSettings(burst_ms=300, debt_max_ms=0), bytes_per_s=150_000),
    Stage(enforce=True, bucket=None, bytes_per_s=150_000),
    Stage(enforce=False, bucket=BUCKET),
    Stage(enforce=True, bucket=BUCKET),
)


@dataclass
class Traffic:
    """Clients of one client id that produce, consume and create topics until they are stopped."""

    bootstrap_servers: str
    failed: list[object] = field(default_factory=list)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> "Traffic":
        for work in (*[self._produce] * PRODUCERS, self._consume, self._create_topics):
            self._threads.append(threading.Thread(target=self._run, args=(work,), daemon=True))
            self._threads[-1].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(90)
            assert not thread.is_alive()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  (on a thread of its own: the test has to hear of it)
            self.failed.append(error)

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "client.id": "law",
                "batch.size": BATCH_BYTES,
                "queue.buffering.max.messages": 60,
            }
        )
        number = 0
        while not self._stopping.is_set():
            number += 1
            with contextlib.suppress(BufferError):
                producer.produce(
                    TOPIC,
                    bytes(VALUE_BYTES),
                    partition=number % PARTITIONS,
                    on_delivery=self._delivered,
                )
            producer.poll(0.002)
        assert producer.flush(60) == 0

    def _delivered(self, error: object, _message: object) -> None:
        if error is not None:
            self.failed.append(error)

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "client.id": "law",
                "group.id": TOPIC,
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                "max.partition.fetch.bytes": BATCH_BYTES,
            }
        )
        parts = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
        consumer.assign(parts)
        while not self._stopping.is_set():
            if not consumer.consume(200, 0.3):
                consumer.assign(parts)  # from the beginning again
        consumer.close()

    def _create_topics(self) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers, client_id="law")
        number = 0
        while not self._stopping.is_set():
            number += 1
            topics = [NewTopic(f"{TOPIC}-{number}-{one}", 3, 1) for one in range(2)]
            with contextlib.suppress(Exception):  # refused at times, as it should be
                admin.create_topics(topics, raise_errors=False)
            self._stopping.wait(0.2)
        admin.close()


@pytest.fixture(scope="module")
def record(kafka3: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a gateway recorded, with three brokers behind it and everything changed in the middle."""
    folder = tmp_path_factory.mktemp("law-over-changes")
    kafka3.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=1)
    first_port = free_port_range(12)
    configs = [stage.config(kafka3.bootstrap_servers, first_port) for stage in STAGES]
    gateway = GatewayProcess(folder, config=configs[0], quotas=STAGES[0].quotas)
    with gateway, Traffic(gateway.bootstrap_servers) as traffic:
        _until_all_held_back(folder / "record", STAGES[0])
        for stage, config in zip(STAGES[1:], configs[1:], strict=True):
            gateway.reload(stage.quotas, config)
            _until_all_held_back(folder / "record", stage)
    assert traffic.failed == []
    return folder / "record"


def _until_all_held_back(record: Path, stage: Stage) -> None:
    """Some seconds at least, and until the record has of this stage what is asked about it."""
    began_us = time.time_ns() // 1_000
    time.sleep(STAGE_S)
    end = time.monotonic() + SEEN_S
    while missing := _missing(record, stage, began_us):
        assert time.monotonic() < end, (stage, missing)
        time.sleep(0.2)


def _missing(record: Path, stage: Stage, began_us: int) -> list[str]:
    tables = [pq.read_table(file) for file in record.glob("*.parquet")]
    if not tables:
        return ["rows"]
    rows = _of(pa.concat_tables(tables), enforced=stage.enforce)
    rows = rows.filter(pc.greater_equal(rows["ts_us"], began_us))
    throttled = rows.filter(pc.greater(rows["throttle_ms"], 0))["quota_type"].to_pylist()
    missing = [f"{kind} throttled" for kind in BANDWIDTH if str(kind) not in throttled]
    if not _of(rows, quota_type=str(QuotaType.CONTROLLER_MUTATION)):
        missing.append("mutations")
    # In shadow mode debts grow, and where there may be none each request waits for its turn.
    waits = stage.bucket is not None and not (stage.enforce and stage.bucket.debt_max_ms)
    if waits and not _of(rows, quota_type=str(QuotaType.PRODUCE), outcome="rejected"):
        missing.append("PRODUCE rejected")
    return missing


def _of(rows: pa.Table, **wanted: object) -> pa.Table:
    for column, value in wanted.items():
        rows = rows.filter(pc.equal(rows[column], value))
    return rows


def test_every_row_is_replayed_whatever_was_changed_before_it(
    spark: SparkSession, record: Path
) -> None:
    rows = pq.read_table(record)

    found = law_of(spark, record)

    # The run has what the law is asked about: all of it on all brokers.
    for kind in BANDWIDTH:
        for algorithm in ("sampled_rate", "token_bucket"):
            for enforced in (False, True):
                some = _of(rows, quota_type=str(kind), algorithm=algorithm, enforced=enforced)
                throttled = some.filter(pc.greater(some["throttle_ms"], 0))
                assert throttled.num_rows > 0, (kind, algorithm, enforced)
            of_algorithm = _of(rows, quota_type=str(kind), algorithm=algorithm)
            assert {100_000.0, 150_000.0} <= set(of_algorithm["limit"].to_pylist())
            assert set(of_algorithm["node_id"].to_pylist()) == {1, 2, 3}
    for enforced in (False, True):
        waits = _of(rows, quota_type="PRODUCE", outcome="rejected", enforced=enforced)
        assert set(waits["algorithm"].to_pylist()) == {"token_bucket"}
    assert {1_000, 300} <= set(_of(rows, algorithm="token_bucket")["sample_ms"].to_pylist())
    mutations = _of(rows, quota_type="CONTROLLER_MUTATION")
    assert set(mutations["enforced"].to_pylist()) == {False, True}
    assert set(mutations["limit"].to_pylist()) == {2.0, 3.0}
    assert (found.holds, found.rows, found.unjudged) == (True, rows.num_rows, 0), found.differences
    assert (found.missing, found.repeated, found.not_replayed) == (0, 0, 0)


def test_the_law_fails_when_one_limit_of_a_token_bucket_is_a_thousandth_off(
    spark: SparkSession, record: Path, tmp_path: Path
) -> None:
    def of_bucket(rows: pa.Table) -> pa.Array:
        meant = pc.and_(pc.equal(rows["quota_type"], "PRODUCE"), pc.equal(rows["limit"], 150_000))
        return pc.and_(meant, pc.equal(rows["algorithm"], "token_bucket"))

    assert with_limits_off(record, tmp_path, of_bucket)

    right, wrong = law_of(spark, record), law_of(spark, tmp_path)

    assert (right.holds, right.differing) == (True, 0)
    assert (wrong.holds, wrong.rows, wrong.unjudged) == (False, right.rows, right.unjudged)
    assert {of_type.quota_type for of_type in wrong.of_types if of_type.differing} == {"PRODUCE"}
