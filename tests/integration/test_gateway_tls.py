"""TLS on both sides of the gateway, with a real broker that wants a certificate and real clients that show theirs."""

import asyncio
import contextlib
import signal
import socket
import ssl
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from tests.integration.conftest import HOST

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import Authority, LocalKafka, tls_settings
from kvota.localkafka.cluster.certificates import Issued
from kvota.localkafka.cluster.listeners import Listener
from kvota.localkafka.processes.command_line import SHORT_LIVED

RECORDS = 2_000
PATIENCE_S = 60.0
# "slow" is muted again and again, and loses nothing.
QUOTAS = """
[[quota]]
user = "orders"
producer_byte_rate = "10GB/s"
consumer_byte_rate = "10GB/s"

[[quota]]
user = "slow"
producer_byte_rate = "100KB/s"
consumer_byte_rate = "10GB/s"
"""
TLS = """
[gateway.tls]
certfile = "server.pem"
keyfile = "server.key"
client_auth = "required"
client_cafile = "ca.pem"
principal_mapping_rules = "RULE:^CN=([^,]*).*$/$1/,DEFAULT"

[upstream.tls]
cafile = "ca.pem"
certfile = "gateway.pem"
keyfile = "gateway.key"
"""


class Place(NamedTuple):
    gateway: GatewayProcess
    kafka: LocalKafka
    authority: Authority

    def issued(self, name: str) -> Issued:
        return self.authority.issue(name)

    def librdkafka(self, name: str) -> dict[str, str]:
        issued = self.issued(name)
        return {
            "bootstrap.servers": self.gateway.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.authority.certificate),
            "ssl.certificate.location": str(issued.certificate),
            "ssl.key.location": str(issued.key),
        }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    authority.issue("server", hosts=["127.0.0.1"])
    authority.issue("gateway")
    broker = authority.issue("broker", hosts=[HOST])
    listener = Listener(
        name="OURS",
        protocol="SSL",
        settings=tls_settings(broker, authority, client_auth="required"),
    )
    kafka = LocalKafka(host=HOST, listeners=[listener], java_options=SHORT_LIVED)
    with kafka:
        config = gateway_toml(
            upstream=kafka.servers_of("OURS"),
            first_port=free_port_range(6),
            node_ids="0-3",
            enforce={"PRODUCE": True, "FETCH": True},
            record="record",
        )
        with GatewayProcess(folder, config=config + TLS, quotas=QUOTAS) as gateway:
            yield Place(gateway, kafka, authority)
            assert gateway.running
            # A look at the files may come between the two of a pair.
            errors = [line for line in gateway.log.splitlines() if " ERROR " in line]
            assert [line for line in errors if "the certificate in force stays" not in line] == []
            for key in folder.glob("*.key"):
                assert key.read_text().splitlines()[1] not in gateway.log


@pytest.fixture
def topic(place: Place) -> str:
    name = f"tls-{uuid.uuid4().hex[:8]}"
    place.kafka.create_topic(name, partitions=2)
    return name


def consumed(place: Place, topic: str, count: int) -> list[int]:
    consumer = Consumer(
        place.librdkafka("orders")
        | {"group.id": topic, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    )
    consumer.subscribe([topic])
    received: list[int] = []
    end = time.monotonic() + 60
    while len(received) < count and time.monotonic() < end:
        received += [int(m.value()[-10:]) for m in consumer.consume(count, 1) if not m.error()]
    consumer.close()
    return sorted(received)


def test_java(place: Place, topic: str, tmp_path: Path) -> None:
    issued = place.issued("orders")
    properties = tmp_path / "client.properties"
    lines = {
        "bootstrap.servers": place.gateway.bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(place.authority.certificate),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(issued.keystore),
    }
    properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    produced = place.kafka.run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", topic, "--num-records", str(RECORDS), "--record-size", "1000"),
        *("--throughput", "-1", "--producer.config", str(properties)),
    )
    assert f"{RECORDS} records sent" in produced.stdout, produced.stdout + produced.stderr
    read = place.kafka.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", place.gateway.bootstrap_servers, "--topic", topic),
        *("--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "60000"),
        *("--command-config", str(properties)),
    )

    assert len(read.stdout.splitlines()) == RECORDS, read.stderr


def test_librdkafka_in_a_transaction(place: Place, topic: str) -> None:
    producer = Producer(place.librdkafka("orders") | {"transactional.id": topic})
    producer.init_transactions(60)
    for is_kept in (True, False):
        producer.begin_transaction()
        for number in range(RECORDS):
            producer.produce(topic, b"%d" % number)
        assert producer.flush(60) == 0  # else there may be nothing at the broker to be aborted
        if is_kept:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)

    assert consumed(place, topic, RECORDS) == list(range(RECORDS))


async def test_aiokafka(place: Place, topic: str) -> None:
    issued = place.issued("orders")
    options = {
        "bootstrap_servers": place.gateway.bootstrap_servers,
        "security_protocol": "SSL",
        "ssl_context": create_ssl_context(
            cafile=str(place.authority.certificate),
            certfile=str(issued.certificate),
            keyfile=str(issued.key),
        ),
    }
    async with AIOKafkaProducer(**options) as producer:
        sent = [await producer.send(topic, b"%d" % number) for number in range(RECORDS)]
        await asyncio.gather(*sent)
    received: list[int] = []
    consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **options)
    async with consumer, asyncio.timeout(60):
        while len(received) < RECORDS:
            batches = await consumer.getmany(timeout_ms=1_000)
            received += [int(record.value) for batch in batches.values() for record in batch]

    assert sorted(received) == list(range(RECORDS))


def test_kafka_python(place: Place, topic: str) -> None:
    issued = place.issued("orders")
    options = {
        "bootstrap_servers": place.gateway.bootstrap_servers,
        "security_protocol": "SSL",
        "ssl_cafile": str(place.authority.certificate),
        "ssl_certfile": str(issued.certificate),
        "ssl_keyfile": str(issued.key),
    }
    producer = KafkaProducer(**options)
    for number in range(RECORDS):
        producer.send(topic, b"%d" % number)
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **options
    )
    received = []
    for record in consumer:
        received.append(int(record.value))
        if len(received) == RECORDS:
            break
    consumer.close()

    assert sorted(received) == list(range(RECORDS))


def test_who_is_over_a_quota_of_its_certificate_is_muted_and_loses_nothing(
    place: Place, topic: str
) -> None:
    failed: list[object] = []
    producer = Producer(
        place.librdkafka("slow") | {"batch.size": 100_000, "message.timeout.ms": 60_000}
    )
    sent = 0
    end = time.monotonic() + PATIENCE_S
    # Where the machine stood still there was room again: it goes on until its throttling is said.
    while sent < 15 or ("slow" not in place.gateway.log and time.monotonic() < end):
        producer.produce(
            topic,
            b"%0100000d" % sent,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        assert producer.flush(60) == 0
        sent += 1

    assert failed == []
    assert consumed(place, topic, sent) == list(range(sent))
    assert "slow" in place.gateway.log


def test_who_calls_a_name_that_is_none_is_one_line_in_the_log(place: Place) -> None:
    """Python itself would print ten lines on stderr for each."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(
        ssl.MemoryBIO(), outgoing, server_hostname="aaaa"
    )
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read().replace(b"aaaa", b"\xff\n\xfe\x80")

    for _ in range(5):
        with socket.create_connection(("127.0.0.1", place.gateway.first_port), timeout=60) as one:
            one.sendall(hello)
            assert one.recv(1) == b"\x15"  # an alert

    end = time.monotonic() + PATIENCE_S
    while "(SNI) is none" not in place.gateway.log and time.monotonic() < end:
        time.sleep(0.05)
    assert place.gateway.log.count("(SNI) is none") == 1
    assert "Traceback" not in place.gateway.log


@pytest.mark.parametrize("is_told", [True, False], ids=["by a signal", "by its files"])
def test_a_renewed_certificate_is_shown_and_nobody_is_disconnected(
    place: Place, topic: str, *, is_told: bool
) -> None:
    failed: list[object] = []
    producer = Producer(place.librdkafka("orders"))

    def send(number: int) -> None:
        producer.produce(
            topic,
            b"%d" % number,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        assert producer.flush(60) == 0

    send(0)
    closed = place.gateway.log.count(" closed")
    shown = place.gateway.log.count("shows the certificate")
    place.authority.issue("server", hosts=["127.0.0.1"])
    if is_told:
        place.gateway._process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
    end = time.monotonic() + PATIENCE_S
    while place.gateway.log.count("shows the certificate") == shown and time.monotonic() < end:
        time.sleep(0.1)
    send(1)

    assert failed == []
    assert place.gateway.log.count("shows the certificate") > shown
    assert place.gateway.log.count(" closed") == closed
    assert consumed(place, topic, 2) == [0, 1]
