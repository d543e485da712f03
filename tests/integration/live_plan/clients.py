"""Light clients that want what a demand says: a connection each to each broker through each gateway."""

import asyncio
import struct
import time
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack

from tests.integration.live_plan.demand import Demand, Tenant, Wanted

from kvota.client import BrokerConnection, Cluster, Security
from kvota.client.record_batches import encode_batch
from kvota.wire.apis import PRODUCE

TOPIC = "demand"
BEGIN_S = 0.3
# Of all versions with record batches the last one without compact lengths.
_VERSION = 8
# correlation id, number of topics, the name, number of partitions, the partition
_ERROR_AT = 4 + 4 + 2 + len(TOPIC) + 4 + 4


def secret_of(user: str) -> str:
    """The password of a user of these tests."""
    return f"{user}-secret"


async def send_all(demand: Demand, gateways: Sequence[str]) -> int:
    """Send what is wanted, each request when it comes; what is held back comes later, or never.

    Each connection has one request on its way, and waits as long as it is told, as producers do. At the end
    of the demand nothing more is sent.

    Args:
        demand: of all tenants.
        gateways: where each of them is, by address.

    Returns:
        when they began, in Unix microseconds.
    """
    async with AsyncExitStack() as stack:
        flows = []
        for number, gateway in enumerate(gateways):
            for tenant in demand.tenants:
                security = Security.plain(tenant.name, secret_of(tenant.name))
                cluster = await stack.enter_async_context(
                    Cluster([gateway], security=security, client_id=f"{tenant.name}-app")
                )
                flows += await _flows(cluster, demand, tenant, number)
        # Plans count in whole seconds: the first request is well inside of one, wherever it is noted.
        await asyncio.sleep((BEGIN_S - time.time()) % 1)
        began_us, began_s = time.time_ns() // 1000, time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for connection, partition, wanted in flows:
                tasks.create_task(
                    _send(connection, partition, wanted, began_s, began_s + demand.seconds)
                )
    return began_us


async def _flows(
    cluster: Cluster, demand: Demand, tenant: Tenant, gateway: int
) -> list[tuple[BrokerConnection, int, Iterable[Wanted]]]:
    metadata = await cluster.metadata([TOPIC])
    flows: list[tuple[BrokerConnection, int, Iterable[Wanted]]] = []
    partitions = metadata.topics[TOPIC].partitions
    for partition in partitions if tenant.on_every_broker else partitions[-1:]:
        assert partition.leader is not None
        connection = await cluster.connection_to(partition.leader)
        flows.append((connection, partition.index, demand.of(tenant, gateway, partition.index)))
    return flows


async def _send(
    connection: BrokerConnection,
    partition: int,
    wanted: Iterable[Wanted],
    began_s: float,
    until_s: float,
) -> None:
    for request in wanted:
        await asyncio.sleep(max(0.0, began_s + request.at_s - time.monotonic()))
        if time.monotonic() >= until_s:
            return
        content = _produce(partition, request.value_bytes)
        answer = await connection.ask_frame(PRODUCE, content, version=_VERSION)
        (error,) = struct.unpack_from(">h", answer, _ERROR_AT)
        assert error == 0, f"the broker answers error {error}"
        throttle_s = int.from_bytes(answer[-4:]) / 1000
        if throttle_s:
            left_s = until_s - time.monotonic()
            await asyncio.sleep(max(0.0, min(throttle_s, left_s)))


def _produce(partition: int, value_bytes: int) -> bytes:
    """A request with one record, acks 1, behind its header."""
    records = encode_batch([(b"", bytes(value_bytes))], now_ms=time.time_ns() // 1_000_000)
    name = TOPIC.encode()
    head = struct.pack(">hhiih", -1, 1, 30_000, 1, len(name)) + name
    return head + struct.pack(">iii", 1, partition, len(records)) + records
