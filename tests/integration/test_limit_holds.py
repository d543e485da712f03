"""A limit under ``token_bucket`` holds against 20 connections that ignore what they are told."""

import asyncio
import contextlib
import struct
import time
from dataclasses import dataclass, field

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka.record import MemoryRecordsBuilder
from tests.integration.address_scan import TAP_HOST, ClientTap
from tests.integration.tapped_gateway import TappedGateway

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.localkafka.cluster.listeners import PLAINTEXT

LIMIT = 1_000_000
CONNECTIONS = 20
RECORD_BYTES = 150_000  # 0.15 s of the limit; all connections together ask for far more
SECONDS = 25.0
TICK_S = 0.1
BURST_MS, DEBT_MAX_MS = 1_000, 1_000
TOPIC = "limit-holds"


@dataclass
class Crowd:
    """Connections that send one Produce after the other; what the broker has acknowledged."""

    port: int
    acknowledged: list[bytes] = field(default_factory=list)
    closed: int = 0
    stood_still_s: float = 0.0

    async def run(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SECONDS), asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look_at_the_clock())
                for number in range(CONNECTIONS):
                    tasks.create_task(self._connection(number))

    async def _look_at_the_clock(self) -> None:
        """Note for how long the machine let nobody work here."""
        before_s = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now_s = time.monotonic()
            if (late_s := now_s - before_s - TICK_S) > TICK_S:
                self.stood_still_s += late_s
            before_s = now_s

    async def _connection(self, number: int) -> None:
        sent = 0
        while True:
            try:
                reader, writer = await asyncio.open_connection(TAP_HOST, self.port)
                try:
                    while True:
                        sent += 1
                        await self._request(b"%d-%d" % (number, sent), reader, writer)
                finally:
                    writer.transport.abort()
            except (ConnectionError, asyncio.IncompleteReadError):
                self.closed += 1
                await asyncio.sleep(0.05)

    async def _request(
        self, key: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(_produce(key))
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(TOPIC) + 4 + 4)
        assert error == 0
        self.acknowledged.append(key)


def _produce(key: bytes) -> bytes:
    """Produce v8 with one record, acks 1."""
    builder = MemoryRecordsBuilder(2, 0, RECORD_BYTES + 1_000)
    builder.append(timestamp=int(time.time() * 1000), key=key, value=bytes(RECORD_BYTES))
    builder.close()
    records = bytes(builder.buffer())
    name = TOPIC.encode()
    body = struct.pack(">hhiih", -1, 1, 30_000, 1, len(name)) + name
    body += struct.pack(">iii", 1, 0, len(records)) + records
    head = struct.pack(">hhih", 0, 8, 1, 5) + b"crowd"
    return struct.pack(">i", len(head) + len(body)) + head + body


@dataclass
class Seen:
    """What came of it."""

    crowd: Crowd
    rows: list[dict[str, object]]
    answers: list[int]  # whole answers that the tap has seen go to each connection
    elapsed_s: float


@pytest.fixture(scope="module")
def seen(kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    kafka.create_topic(TOPIC)
    first_port = free_port_range(4)
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        first_port=first_port,
        node_ids="0-2",
        enforce={"PRODUCE": True},
        record="record",
    )
    config = config.replace("[gateway]\n", f'[gateway]\nadvertised_host = "{TAP_HOST}"\n')
    config = config.replace(
        "[quotas.PRODUCE]\n",
        f'[quotas.PRODUCE]\nalgorithm = "token_bucket"\nburst = "{BURST_MS}ms"\n'
        f'debt_max = "{DEBT_MAX_MS}ms"\n',
    )
    quotas = f"[[quota]]\nuser_default = true\nproducer_byte_rate = {LIMIT}\n"
    folder = tmp_path_factory.mktemp("limit-holds")
    process = GatewayProcess(folder, config=config, quotas=quotas)
    crowd = Crowd(first_port)
    with process, ClientTap(first_port, 4) as tap:
        begin = time.monotonic()
        asyncio.run(crowd.run())
        elapsed_s = time.monotonic() - begin
        answers = [_answers(stream) for stream in tap.sent_to_clients]
        gateway = TappedGateway(process, tap, kafka, first_port, PLAINTEXT)
        rows = gateway.recorded()
    return Seen(crowd, rows, answers, elapsed_s)


def _answers(stream: bytes) -> int:
    """How many whole answers were sent to one connection."""
    found = at = 0
    while at + 4 <= len(stream):
        at += 4 + int.from_bytes(stream[at : at + 4], "big")
        found += at <= len(stream)
    return found


def _excess_s(rows: list[dict[str, object]]) -> float:
    """By how much the worst interval is above elapsed + burst + debt_max + its last request."""
    worst_ms = over_ms = 0.0
    seen_ms: int | None = None
    for row in rows:
        now_ms = int(str(row["ts_us"])) // 1000
        over_ms = max(0.0, over_ms - max(0, now_ms - (now_ms if seen_ms is None else seen_ms)))
        seen_ms = now_ms
        if row["outcome"] != "rejected":
            worst_ms = max(worst_ms, over_ms - BURST_MS - DEBT_MAX_MS)
            over_ms += float(str(row["value"])) / float(str(row["limit"])) * 1000
    return worst_ms / 1000


def test_in_every_interval_of_the_record_the_limit_holds(seen: Seen) -> None:
    rows = [row for row in seen.rows if row["quota_type"] == "PRODUCE"]

    assert _excess_s(rows) <= 1e-6
    assert {row["samples"] for row in rows} == {1}
    assert {row["tags"] for row in rows} == {"client-id=,user=ANONYMOUS"}


def test_the_limit_is_what_holds_them_back(seen: Seen) -> None:
    """The bound would hold of a crowd that sends little; this one waits in line all the time."""
    waits = [row for row in seen.rows if row["outcome"] == "rejected"]
    charged = [row for row in seen.rows if row["outcome"] != "rejected"]

    assert len(waits) > CONNECTIONS
    used_s = sum(float(str(row["value"])) for row in charged) / LIMIT
    # Clients, gateway and broker stand still with the machine at times; a crowd that sends little uses far less.
    assert used_s > 0.6 * (seen.elapsed_s - seen.crowd.stood_still_s)


def test_what_reached_the_clients_is_within_the_limit_too(seen: Seen) -> None:
    used_s = sum(seen.answers) * RECORD_BYTES / LIMIT

    bound_s = seen.elapsed_s + (BURST_MS + DEBT_MAX_MS) / 1000 + RECORD_BYTES / LIMIT
    assert used_s <= bound_s
    assert sum(seen.answers) >= len(seen.crowd.acknowledged)


def test_every_connection_is_served(seen: Seen) -> None:
    served = [0] * CONNECTIONS
    for key in seen.crowd.acknowledged:
        served[int(key.split(b"-")[0])] += 1

    assert min(served) >= 0.6 * sum(served) / CONNECTIONS


def test_nothing_acknowledged_is_lost_and_nothing_arrives_twice(
    seen: Seen, kafka: LocalKafka
) -> None:
    arrived: list[bytes] = []
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": TOPIC})
    partition = TopicPartition(TOPIC, 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=30)
    consumer.assign([partition])
    deadline = time.monotonic() + 60
    while len(arrived) < end and time.monotonic() < deadline:
        arrived += [message.key() for message in consumer.consume(100, 1.0)]
    consumer.close()

    assert set(seen.crowd.acknowledged) <= set(arrived)
    # No request is sent twice unless its connection was closed before its turn came.
    assert len(arrived) == len(set(arrived))
