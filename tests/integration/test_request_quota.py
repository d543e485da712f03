"""request_percentage beside a real broker's: set by the same alteration, told in the same order of throttle times.

The time itself cannot be the same (the gateway counts its own thread), so the quota is one that every request is over.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.integration.bandwidth_frames import (
    fetch_frame,
    fetch_result,
    produce_frame,
    produce_result,
)
from tests.integration.brokers_in_step import await_served, is_throttled
from tests.integration.conftest import HOST
from tests.integration.raw_client import RawClient
from tests.unit.quota_api.written import alteration, altered

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED
from kvota.testing.frames import decoded, request, throttle_of
from kvota.wire.apis import FETCH, METADATA, PRODUCE

TOPIC = "request-quota"
RECORD_BYTES = 15_000
WITHOUT, TIME, BYTES, BOTH = "without", "time", "bytes", "both"
# 15 KB are 15 s of this, of which 10 s are the window.
BYTE_RATES = {"producer_byte_rate": 1_000.0, "consumer_byte_rate": 1_000.0}
OVER_TIME = {"request_percentage": 1e-7}
_KNOWN_S = 60.0


@dataclass(frozen=True)
class Told:
    """What a client was told of one request of each kind."""

    metadata_ms: int
    produce_ms: int
    produce_error: int
    fetch_ms: int
    fetch_error: int
    fetched_topics: int


def told(address: tuple[str, int], client_id: str) -> Told:
    """One request on a connection each, so that no mute is in the way of the next one."""

    def ask(frame: bytes) -> bytes:
        with RawClient(address) as client:
            client.send(frame)
            return client.frame()

    metadata = ask(request(METADATA, 8, client=client_id, topics=()))
    produced = ask(produce_frame(TOPIC, value_bytes=RECORD_BYTES, client_id=client_id))
    fetched = ask(fetch_frame(TOPIC, max_bytes=1_000_000, client_id=client_id))
    produce_error, produce_ms = produce_result(produced[4:], TOPIC)
    fetch_error, fetch_ms = fetch_result(fetched[4:])
    return Told(
        metadata_ms=throttle_of(metadata, METADATA, 8),
        produce_ms=produce_ms,
        produce_error=produce_error,
        fetch_ms=fetch_ms,
        fetch_error=fetch_error,
        fetched_topics=len(decoded(fetched, FETCH, 11).responses),
    )


def set_quotas(address: tuple[str, int]) -> None:
    """By Kafka's own request, and wait until they count."""
    frame = alteration(
        ({"client-id": TIME}, OVER_TIME),
        ({"client-id": BYTES}, BYTE_RATES),
        ({"client-id": BOTH}, OVER_TIME | BYTE_RATES),
    )
    with RawClient(address) as client:
        client.send(frame)
        assert {error for _, error, _ in altered(client.frame())} == {0}
    end = time.monotonic() + _KNOWN_S
    for client_id in (TIME, BOTH):
        while not is_throttled(address, client_id):
            assert time.monotonic() < end, f"{address}: request_percentage holds nobody back"
            time.sleep(0.1)


@dataclass(frozen=True)
class Seen:
    """What the broker and the gateway in front of it have told, by client id."""

    broker: dict[str, Told]
    gateway: dict[str, Told]
    record: Path


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("request-quota")
    clients = (WITHOUT, TIME, BYTES, BOTH)
    with LocalKafka(host=HOST, java_options=SHORT_LIVED) as kafka:
        kafka.create_topic(TOPIC)
        await_served(kafka, TOPIC)
        config = gateway_toml(
            upstream=kafka.bootstrap_servers,
            node_ids="0-2",
            source="file",
            enforce=dict.fromkeys(("PRODUCE", "FETCH", "REQUEST"), True),
            record="record",
        )
        gateway = GatewayProcess(folder, config=config, quotas="")
        with gateway:
            # Without quotas on the broker; a client of the second node port, which is the node's.
            through = ("127.0.0.1", gateway.first_port + 1 + 1)
            set_quotas(through)
            by_gateway = {client_id: told(through, client_id) for client_id in clients}
        host, _, port = kafka.bootstrap_servers.split(",")[0].partition(":")
        set_quotas((host, int(port)))
        by_broker = {client_id: told((host, int(port)), client_id) for client_id in clients}
        yield Seen(by_broker, by_gateway, folder / "record")


def test_who_has_no_quota_is_told_nothing(seen: Seen) -> None:
    assert seen.gateway[WITHOUT] == seen.broker[WITHOUT] == Told(0, 0, 0, 0, 0, 1)


def test_over_time_alone_every_answer_tells_one_sample_and_a_fetch_is_empty(seen: Seen) -> None:
    assert seen.gateway[TIME] == seen.broker[TIME] == Told(1_000, 1_000, 0, 1_000, 0, 0)


def test_over_bytes_alone_nothing_else_is_told(seen: Seen) -> None:
    gateway, broker = seen.gateway[BYTES], seen.broker[BYTES]

    assert (gateway.metadata_ms, gateway.produce_error) == (broker.metadata_ms, 0) == (0, 0)
    assert gateway.produce_ms == pytest.approx(broker.produce_ms, abs=100)
    assert broker.produce_ms > 4_000


def test_over_both_the_longer_one_is_told(seen: Seen) -> None:
    gateway, broker = seen.gateway[BOTH], seen.broker[BOTH]

    assert gateway.metadata_ms == broker.metadata_ms == 1_000
    assert gateway.produce_ms == pytest.approx(broker.produce_ms, abs=100)
    assert (gateway.fetched_topics, gateway.fetch_error) == (broker.fetched_topics, 0) == (0, 0)
    assert gateway.fetch_ms == pytest.approx(broker.fetch_ms, abs=100)
    assert broker.produce_ms > 4_000
    assert broker.fetch_ms > 4_000


def test_the_record_has_rows_of_time_with_the_api_that_was_answered(seen: Seen) -> None:
    rows = [row for row in pq.read_table(seen.record).to_pylist() if row["quota_type"] == "REQUEST"]
    of_time = [row for row in rows if row["client_id"] == TIME]

    assert {row["api_key"] for row in of_time} == {METADATA, PRODUCE, FETCH}
    assert all(0 <= row["value"] < 100 for row in of_time)
    assert sum(row["value"] for row in of_time) > 0
    assert {(row["limit"], row["throttle_ms"], row["outcome"]) for row in of_time} == {
        (1e-7, 1_000, "throttled")
    }
    assert {row["limit"] for row in rows if row["client_id"] == WITHOUT} == {None}
