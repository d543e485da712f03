"""A real broker's request log: every Produce and Fetch of real clients has the bytes of its frame, and quotas hold as they held."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from confluent_kafka import Consumer, Producer
from pyspark.sql import SparkSession
from tests.tap_thread import Address, Stream, TapThread

from kvota.admin import AdminClient, ClientQuotaAlteration, QuotaEntity
from kvota.app.cli.main import main
from kvota.localkafka import LocalKafka
from kvota.localkafka.cluster.ports import free_ports, is_free
from kvota.localkafka.processes.command_line import SHORT_LIVED
from kvota.pipeline import LAW_COLUMNS, chunks_of_files, find_events
from kvota.pipeline.law_check import replay_rows
from kvota.pipeline.sources.request_line import MARK, request_of

LOG4J = Path(__file__).with_name("request_log.log4j2.properties")
IntArray = npt.NDArray[np.int32]

BROKER_HOST, TAP_HOST = "127.0.0.2", "127.0.0.3"
# Controller, PLAINTEXT and SASL, one behind the other.
PORTS = 3
PRODUCE, FETCH = 0, 1
FLEXIBLE_FETCH = 12
# Who has a quota; the first one always runs, the others where what the log says of that is not to be trusted.
LIMITED = ("alice", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "mallory")
QUOTA_PER_S = 50_000
# Kafka lets pass what its window holds at once, and then throttles: so many come after that.
MESSAGES, MESSAGE_BYTES = 320, 2_500
# Where the machine is slow the client sends less at once, and is throttled less often.
THROTTLED_MIN = 10
RECORDS = 2_000
WARM_UPS = 200
WRITTEN_S = 60.0


class Key(NamedTuple):
    """One request: by the port of its connection to the broker, and its number there."""

    port: int
    correlation_id: int


class FrameTap(TapThread):
    """Keeps the size of each Produce's frame and of each Fetch's answer, as quotas charge them."""

    def __init__(self, ways: dict[Address, Address]) -> None:
        super().__init__(ways)
        self.sizes: dict[Key, int] = {}

    async def relay(self, client: Stream, upstream: Stream) -> None:
        """Relay frame by frame."""
        port = upstream[1].get_extra_info("sockname")[1]
        fetches: dict[int, int] = {}
        await asyncio.gather(
            self._requests(client[0], upstream[1], port, fetches),
            self._answers(upstream[0], client[1], port, fetches),
        )

    async def _requests(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        port: int,
        fetches: dict[int, int],
    ) -> None:
        async for frame in frames(reader, writer):
            key, version = (int.from_bytes(frame[at : at + 2]) for at in (0, 2))
            number = int.from_bytes(frame[4:8])
            if key == PRODUCE:
                self.sizes[Key(port, number)] = len(frame)
            elif key == FETCH:
                fetches[number] = version

    async def _answers(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        port: int,
        fetches: dict[int, int],
    ) -> None:
        async for frame in frames(reader, writer):
            number = int.from_bytes(frame[:4])
            if number in fetches:
                tags_of_header = fetches.pop(number) >= FLEXIBLE_FETCH
                self.sizes[Key(port, number)] = len(frame) - tags_of_header


async def frames(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator[bytes]:
    """Yield each frame, and send it on when it has been looked at."""
    while True:
        try:
            length = await reader.readexactly(4)
            frame = await reader.readexactly(int.from_bytes(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        yield frame
        writer.write(length + frame)
        await writer.drain()


@dataclass
class Logged:
    """What a broker has logged, and what a tap has seen; ``servers``: where both can be reached.

    Attributes:
        sizes: of what has been seen of the two clients that come first.
        seen: what the tap has seen so far.
    """

    folder: Path
    sizes: dict[Key, int]
    seen: dict[Key, int]
    servers: str

    def until_written(self) -> None:
        """A broker writes a request's line behind its answer."""
        end = time.monotonic() + WRITTEN_S
        while missing := self.seen.keys() - {key for key, _ in self.lines()}:
            assert time.monotonic() < end, missing
            time.sleep(0.1)

    def lines(self) -> Iterator[tuple[Key, dict[str, Any]]]:
        """Each whole line, and whose request it tells of."""
        text = (self.folder / "kafka-request.log").read_bytes()
        for line in text[: text.rfind(b"\n") + 1].splitlines():
            fields = json.loads(line[line.index(MARK) + len(MARK) : line.rindex(b"}") + 1])
            port = int(fields["connection"].split("-")[1].rpartition(":")[2])
            yield Key(port, fields["requestHeader"]["correlationId"]), fields


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logged]:
    folder = tmp_path_factory.mktemp("logs") / "broker-1"
    folder.mkdir()
    first = next(
        port
        for port in free_ports(BROKER_HOST, 20)
        if all(is_free(BROKER_HOST, port + more) for more in range(PORTS))
    )
    plaintext, sasl = first, first + 1
    advertised = f"PLAINTEXT://{BROKER_HOST}:{plaintext},SASL://{TAP_HOST}:{sasl}"
    kafka = LocalKafka(
        host=BROKER_HOST,
        users={name: f"{name}-secret" for name in (*LIMITED, "bob")},
        first_port=first,
        properties={"advertised.listeners": advertised},
        java_options=(
            *SHORT_LIVED,
            f"-Dlog4j2.configurationFile={LOG4J}",
            f"-Dkvota.request.log={folder / 'kafka-request.log'}",
            "-Duser.timezone=Europe/Berlin",
        ),
    )
    with ExitStack() as stack:
        stack.enter_context(kafka)
        warm_up(kafka)
        tap = stack.enter_context(FrameTap({(TAP_HOST, sasl): (BROKER_HOST, sasl)}))
        servers = f"{TAP_HOST}:{sasl}"
        traffic(kafka, servers, folder.parent)
        yield Logged(folder, dict(tap.sizes), tap.sizes, servers)


def warm_up(kafka: LocalKafka) -> None:
    """Have the broker log some requests of nobody who is looked at: a cold one writes its first lines late."""
    kafka.create_topic("of-nobody", partitions=1)
    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    producer = Producer({**settings, "linger.ms": 0, "batch.num.messages": 1})
    for _ in range(WARM_UPS):
        producer.produce("of-nobody", b"warm")
        assert producer.flush(60) == 0
    consumer = Consumer({**settings, "group.id": "nobody", "auto.offset.reset": "earliest"})
    consumer.subscribe(["of-nobody"])
    assert consumer.poll(60) is not None
    consumer.close()


def traffic(kafka: LocalKafka, servers: str, folder: Path) -> None:
    """Have librdkafka, as alice with a quota, and Kafka's Java clients, as bob, write and read."""
    asyncio.run(set_quotas(kafka))
    for name in LIMITED:
        kafka.create_topic(f"of-{name}", partitions=3)
    kafka.create_topic("of-bob", partitions=1)
    java = threading.Thread(target=by_java, args=(kafka, servers, folder))
    java.start()
    by_librdkafka(servers, LIMITED[0])
    java.join()


async def set_quotas(kafka: LocalKafka) -> None:
    quota = {"producer_byte_rate": float(QUOTA_PER_S)}
    async with AdminClient(kafka.bootstrap_servers) as admin:
        await admin.alter_client_quotas(
            [ClientQuotaAlteration(QuotaEntity(user=name), quota) for name in LIMITED]
        )


def login(name: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": f"{name}-secret",
    }


def by_librdkafka(servers: str, user: str) -> None:
    """Write to a topic of the user's own, and read it."""
    topic = f"of-{user}"
    settings = {"bootstrap.servers": servers, "client.id": "<script>", **login(user)}
    producer = Producer({**settings, "linger.ms": 0, "batch.num.messages": 1})
    for number in range(MESSAGES):
        producer.produce(topic, bytes(MESSAGE_BYTES), partition=number % 3)
    assert producer.flush(60) == 0
    consumer = Consumer({**settings, "group.id": user, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    count = 0
    while count < MESSAGES:
        message = consumer.poll(60)
        assert message is not None, f"{count} messages"
        count += message.error() is None
    for _ in range(3):  # empty answers
        consumer.poll(0.5)
    consumer.close()


def by_java(kafka: LocalKafka, servers: str, folder: Path) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    path = folder / "bob.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="bob" password="bob-secret";\n'
    )
    produced = kafka.run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", servers, "--topic", "of-bob", "--num-records", str(RECORDS)),
        *("--record-size", "200", "--throughput", "-1", "--command-config", str(path)),
    )
    assert produced.returncode == 0, produced.stderr
    read = kafka.run_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", servers, "--topic", "of-bob", "--from-beginning"),
        *("--command-config", str(path), "--max-messages", str(RECORDS)),
    )
    assert read.stdout.count("\n") == RECORDS, read.stderr


def test_each_produce_and_fetch_has_the_bytes_of_its_frame(logged: Logged) -> None:
    logged.until_written()
    seen: dict[Key, tuple[str, float]] = {}
    for key, fields in logged.lines():
        request = request_of(fields)
        for charge in request.charges:
            if charge.quota_type in {"PRODUCE", "FETCH"} and key in logged.sizes:
                assert request.who is not None
                seen[key] = (f"{request.who.user} {charge.quota_type}", charge.value)

    assert {key: value for key, (_, value) in seen.items()} == logged.sizes
    assert {kind for kind, _ in seen.values()} == {
        *("alice PRODUCE", "alice FETCH", "bob PRODUCE", "bob FETCH")
    }


@pytest.mark.timeout(600)
def test_a_replay_throttles_whom_the_broker_throttled(
    logged: Logged, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line that the broker writes late has a late time, as on a busy machine; so several may try."""
    seen = []
    for user in LIMITED:
        if user != LIMITED[0]:
            by_librdkafka(logged.servers, user)
        logged.until_written()
        recorded, replayed = throttles(user, logged.folder, spark, tmp_path / user, capsys)
        throttled = int(np.count_nonzero(recorded))
        agreement = float(np.mean((recorded > 0) == (replayed > 0)))
        apart = np.abs(recorded - replayed)[recorded > 0]
        apart_ms = float(np.percentile(apart, 95)) if throttled else 0.0
        seen.append((user, throttled, agreement, apart_ms))
        if throttled >= THROTTLED_MIN and agreement >= 0.99 and apart_ms <= 20:
            return
    pytest.fail(
        f"(user, throttled requests, agreement, 95th percentile of the difference in ms): {seen}"
    )


def throttles(
    user: str,
    folder: Path,
    spark: SparkSession,
    kept: Path,
    capsys: pytest.CaptureFixture[str],
) -> tuple[IntArray, IntArray]:
    """Return what a user's Produces were throttled for, by the broker and by a replay of its log, in ms."""
    quotas = kept.with_suffix(".toml")
    quotas.write_text(f'[[quota]]\nuser = "{user}"\nproducer_byte_rate = {QUOTA_PER_S}\n')

    code = main(
        [
            *("usage", "--request-log", str(folder), "--log-zone", "Europe/Berlin"),
            *("--log-quotas", str(quotas), "--keep-events", str(kept), "--output", "json"),
        ]
    )

    said = capsys.readouterr()
    assert code == 0, said.err
    used = {(row["user"], row["quota_type"]): row for row in json.loads(said.out)["rows"]}
    assert used[user, "PRODUCE"]["events"] == MESSAGES
    assert used[user, "PRODUCE"]["limit_per_s"] == QUOTA_PER_S
    rows = replay_rows(chunks_of_files(spark, find_events([kept]), further=LAW_COLUMNS))
    produced = rows.where("quota_type = 'PRODUCE' and limit is not null").toArrow()
    recorded, replayed = (
        produced[name].to_numpy() for name in ("throttle_ms", "replayed_throttle_ms")
    )
    return recorded, replayed
