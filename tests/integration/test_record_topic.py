"""The record in a topic of a real cluster: what it takes, and what becomes of rows while it is away."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.conftest import HOST
from tests.integration.test_gateway_http import metrics_of
from tests.integration.topic_blocks import blocks_in, seqs_in

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.app.system_clock import SystemClock
from kvota.client import Cluster
from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED
from kvota.model.decision_sink import ChargeMemo
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.record.event_schema import WRITE_SCHEMA
from kvota.record.found_events import find_events
from kvota.record.record_limits import RecordLimits, TopicStatus
from kvota.record.recorder import Recorder
from kvota.record.topic_sender import BLOCK_ROWS, TopicSender

START_US = 1_790_000_000_000_000
SEEN_S = 60.0


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return request.node.name.replace("[", "-").replace("]", "")[:200]


def memo(user: str = "alice") -> ChargeMemo:
    return ChargeMemo(
        node_id=1,
        quota_type=QuotaType.PRODUCE,
        connection=1,
        user=user,
        client_id="app",
        tags=f"user={user}",
        api_key=0,
        api_version=9,
        limit=1e6,
        samples=11,
        sample_ms=1000,
        algorithm=Algorithm.SAMPLED_RATE,
        enforced=True,
    )


def recorder(
    servers: str, topic: str, folder: Path | None = None, *, gateway: str = "gw", **limits: float
) -> Recorder:
    settings = {"flush_rows": 1_000, "buffer_rows": 4_000, "close_timeout_s": 60.0, **limits}
    bounds = RecordLimits(**settings)  # type: ignore[arg-type]
    clock = SystemClock()
    sender = TopicSender(
        topic, partial(Cluster, [servers]), limits=bounds, key=gateway, clock=clock
    )
    return Recorder(folder, sender, gateway=gateway, run_id="run", limits=bounds, clock=clock)


def told(one: Recorder) -> TopicStatus:
    status = one.status().topic
    assert status is not None
    return status


def settled(one: Recorder) -> int:
    """How many rows are in the topic, or will never be."""
    return told(one).rows_written + told(one).rows_dropped


def append(sink: Recorder, rows: int, *, of: ChargeMemo | None = None) -> None:
    one = of or memo()
    for _ in range(rows):
        seq = sink.next_seq()
        sink.append(one, seq, START_US + seq, float(seq), 0, -1, 0)


def until(is_so: Callable[[], bool], what: Callable[[], object]) -> None:
    end = time.monotonic() + SEEN_S
    while not is_so():
        assert time.monotonic() < end, what()
        time.sleep(0.05)


def test_a_topic_is_made_and_has_each_row_as_a_file_has_it(
    kafka: LocalKafka, topic: str, tmp_path: Path
) -> None:
    both = recorder(kafka.bootstrap_servers, topic, tmp_path, flush_rows=25_000, buffer_rows=60_000)
    both.start()
    append(both, 25_000)
    append(both, 10, of=memo("bob"))
    both.close()

    blocks = blocks_in(kafka, topic)
    assert [block.num_rows for block in blocks] == [BLOCK_ROWS, BLOCK_ROWS, 5_000, 10]
    assert all(block.schema.equals(WRITE_SCHEMA, check_metadata=True) for block in blocks)
    (of_run,) = find_events([tmp_path]).runs
    assert (of_run.rows, of_run.last_seq) == (25_010, 25_009)
    rows = [row for block in blocks for row in block.to_pylist()]
    assert [row["seq"] for row in rows] == list(range(25_010))
    assert (rows[7]["value"], rows[7]["user"], rows[25_009]["user"]) == (7.0, "alice", "bob")
    assert (told(both).rows_written, told(both).rows_dropped) == (25_010, 0)
    status = both.status()
    assert (status.rows_written, status.rows_dropped) == (25_010, 0)


def test_rows_of_a_cluster_that_was_away_are_in_the_topic_once_or_counted(
    topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with LocalKafka(host=HOST, java_options=SHORT_LIVED) as kafka:
        small = {"flush_rows": 200, "buffer_rows": 1_000, "flush_interval_s": 0.1}
        names = (topic, f"{topic}-alone")
        both, alone = (
            recorder(kafka.bootstrap_servers, name, folder, **small)
            for name, folder in zip(names, (tmp_path, None), strict=True)
        )
        for one in (both, alone):
            one.start()
            append(one, 500)
            until(lambda one=one: told(one).rows_written == 500, one.status)  # type: ignore[misc]

        kafka.kill(1)
        appended = 500
        while min(told(both).rows_dropped, told(alone).rows_dropped) < 500:
            assert appended < 100_000
            for one in (both, alone):
                append(one, 200)
            appended += 200
            until(lambda: both.status().rows_written > appended - 200, both.status)  # noqa: B023
        until(lambda: not (told(both).is_up or told(alone).is_up), both.status)
        assert both.status().recording, "the folder takes rows all the same"
        assert not alone.status().recording
        kafka.start_node(1)
        for one in (both, alone):
            until(lambda one=one: told(one).is_up, one.status)  # type: ignore[misc]
            # What has waited may leave no room for more.
            until(lambda one=one: settled(one) == appended, one.status)  # type: ignore[misc]
            append(one, 500)
            one.close()
        appended += 500

        for one, name in zip((both, alone), names, strict=True):
            seqs = seqs_in(kafka, name)
            assert len(seqs) == told(one).rows_written
            assert len(seqs) + told(one).rows_dropped == appended
            assert seqs == sorted(set(seqs)), "each once, and in their order"
            assert {0, 499, appended - 1} <= set(seqs)
    assert (both.status().rows_written, both.status().rows_dropped) == (appended, 0)
    assert find_events([tmp_path]).rows == appended
    said = [record.getMessage() for record in caplog.records]
    for words in ("recording stops: topic", "recording again: topic"):
        assert sum(line.startswith(words) for line in said) == 2, said


def test_a_topic_that_takes_little_at_once_gets_smaller_blocks(
    kafka: LocalKafka, topic: str
) -> None:
    kafka.create_topic(topic, partitions=2, configs={"max.message.bytes": "3000"})
    one = recorder(kafka.bootstrap_servers, topic)
    one.start()
    append(one, 1_000)
    one.close()

    blocks = blocks_in(kafka, topic)
    assert len(blocks) > 2
    assert sorted(seq for block in blocks for seq in block["seq"].to_pylist()) == list(range(1_000))
    assert one.status().rows_dropped == 0


def test_a_compacted_topic_is_refused_in_words(kafka: LocalKafka, topic: str) -> None:
    kafka.create_topic(topic, partitions=1, configs={"cleanup.policy": "compact"})
    one = recorder(kafka.bootstrap_servers, topic)
    one.start()
    append(one, 1_000)
    until(lambda: not one.status().recording, one.status)
    one.close()

    assert "cleanup.policy=compact" in str(one.status().last_error)
    assert (one.status().rows_written, one.status().rows_dropped) == (0, 1_000)


def test_a_gateway_sends_its_decisions_around_its_own_quotas_and_shows_how_that_stands(
    kafka: LocalKafka, topic: str, tmp_path: Path
) -> None:
    kafka.create_topic(f"{topic}-orders")
    config = gateway_toml(upstream=kafka.bootstrap_servers, node_ids="0-2", http_port=0)
    config += f'[record]\ntopic = "{topic}"\nflush_interval = "100ms"\n'
    with GatewayProcess(tmp_path, config=config, quotas="") as process:
        producer = Producer({"bootstrap.servers": process.bootstrap_servers, "client.id": "shop"})
        for number in range(50):
            producer.produce(f"{topic}-orders", str(number).encode())
            assert producer.flush(60) == 0
        written = "kvota_record_topic_rows_written_total", ()
        until(lambda: metrics_of(process)[written] >= 50, lambda: process.log)
        shown = metrics_of(process)
        assert shown["kvota_recording_to_topic", ()] == 1
        assert shown["kvota_record_topic_rows_dropped_total", ()] == 0
        assert f"records to topic {topic}" in process.log
    rows = [row for block in blocks_in(kafka, topic) for row in block.to_pylist()]

    assert [row["seq"] for row in rows] == list(range(len(rows)))
    assert {row["client_id"] for row in rows} == {"shop"}, "its own blocks are not counted"
    assert sum(row["quota_type"] == "PRODUCE" for row in rows) == 50
    assert f"sent {len(rows)} decisions to the topic, 0 dropped" in process.log
    assert not list(tmp_path.glob("**/*.parquet"))
