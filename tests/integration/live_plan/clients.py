"""Light clients that want what a demand says: a connection each to each broker through each gateway."""

import asyncio
import struct
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from tests.integration.live_plan.demand import KB, Demand, Tenant, Wanted

from kvota.client import BrokerConnection, Cluster, Security
from kvota.client.record_batches import encode_batch
from kvota.wire.apis import PRODUCE

TOPIC = "demand"
BEGIN_S = 0.3
WARM_UP_REQUESTS = 300
# Of all versions with record batches the last one without compact lengths.
_VERSION = 8
# api key, version, correlation id, length of the client id
_BEFORE_CLIENT_ID = 2 + 2 + 4 + 2
# correlation id, number of topics, the name, number of partitions, the partition
_ERROR_AT = 4 + 4 + 2 + len(TOPIC) + 4 + 4


def client_id_of(user: str) -> str:
    """What its client calls itself."""
    return f"{user}-app"


def secret_of(user: str) -> str:
    """The password of a user of these tests."""
    return f"{user}-secret"


@dataclass
class Sent:
    """What became of a demand.

    Attributes:
        began_us: Unix microseconds.
        late_s: how late a request of a behaving tenant came at most that nobody had told to wait: where the machine
            has too much other work, it was not the demand that was sent.
    """

    began_us: int
    late_s: float = 0.0


async def warm_up(servers: Sequence[str]) -> None:
    """Have each broker take some requests: the first ones take a fresh JVM long."""
    async with Cluster(servers) as cluster:
        for partition in (await cluster.metadata([TOPIC])).topics[TOPIC].partitions:
            assert partition.leader is not None
            connection = await cluster.connection_to(partition.leader)
            for _ in range(WARM_UP_REQUESTS):
                content = _produce(partition.index, KB)
                await connection.ask_frame(PRODUCE, content, version=_VERSION)


async def send_all(demand: Demand, gateways: Sequence[str]) -> Sent:
    """Send what is wanted, each request when it comes; what is held back comes later, or never.

    Each connection has one request on its way, and waits as long as it is told, as producers do. At the end
    of the demand nothing more is sent.

    Args:
        demand: of all tenants.
        gateways: where each of them is, by address.

    """
    async with AsyncExitStack() as stack:
        flows: list[_Flow] = []
        for number, gateway in enumerate(gateways):
            for tenant in demand.tenants:
                security = Security.plain(tenant.name, secret_of(tenant.name))
                cluster = await stack.enter_async_context(
                    Cluster([gateway], security=security, client_id=client_id_of(tenant.name))
                )
                flows += await _flows(cluster, demand, tenant, number)
        # Plans count in whole seconds: the first request is well inside of one, wherever it is noted.
        await asyncio.sleep((BEGIN_S - time.time()) % 1)
        sent, began_s = Sent(time.time_ns() // 1000), time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for flow in flows:
                tasks.create_task(flow.send(sent, began_s, demand.seconds))
    return sent


async def _flows(cluster: Cluster, demand: Demand, tenant: Tenant, gateway: int) -> "list[_Flow]":
    flows = []
    partitions = (await cluster.metadata([TOPIC])).topics[TOPIC].partitions
    for partition in partitions if tenant.on_every_broker else partitions[-1:]:
        assert partition.leader is not None
        connection = await cluster.connection_to(partition.leader)
        wanted = demand.of(tenant, gateway, partition.index)
        flows.append(_Flow(connection, partition.index, wanted, judges=not tenant.is_greedy))
    return flows


@dataclass
class _Flow:
    """One tenant's requests to one broker through one gateway."""

    connection: BrokerConnection
    partition: int
    wanted: Iterable[Wanted]
    judges: bool  # whether its requests come when they should

    async def send(self, sent: Sent, began_s: float, seconds: float) -> None:
        was_held = False
        for request in self.wanted:
            await asyncio.sleep(max(0.0, began_s + request.at_s - time.monotonic()))
            now_s = time.monotonic() - began_s
            if now_s >= seconds:
                return
            if self.judges and not was_held:
                sent.late_s = max(sent.late_s, now_s - request.at_s)
            throttle_s = await self._ask(request.value_bytes)
            was_held = was_held or throttle_s > 0
            left_s = seconds - (time.monotonic() - began_s)
            await asyncio.sleep(max(0.0, min(throttle_s, left_s)))

    async def _ask(self, value_bytes: int) -> float:
        """Send one request; return how long it is told to wait."""
        content = _produce(self.partition, value_bytes)
        answer = await self.connection.ask_frame(PRODUCE, content, version=_VERSION)
        (error,) = struct.unpack_from(">h", answer, _ERROR_AT)
        assert error == 0, f"the broker answers error {error}"
        return int.from_bytes(answer[-4:]) / 1000


def charged_bytes(user: str, value_bytes: int) -> int:
    """What a request is charged as: with its header, without the length before it."""
    client_id = client_id_of(user)
    return _BEFORE_CLIENT_ID + len(client_id) + _AROUND_VALUE + value_bytes


def _produce(partition: int, value_bytes: int) -> bytes:
    """A request with one record, acks 1, behind its header."""
    records = encode_batch([(b"", bytes(value_bytes))], now_ms=time.time_ns() // 1_000_000)
    name = TOPIC.encode()
    head = struct.pack(">hhiih", -1, 1, 30_000, 1, len(name)) + name
    return head + struct.pack(">iii", 1, partition, len(records)) + records


# The rest of a request: of lengths in it that grow with the value, those of 1 KB.
_AROUND_VALUE = len(_produce(0, KB)) - KB
