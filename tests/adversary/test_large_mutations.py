"""Hundreds of large topic mutations of two users before a broker that does not answer them: memory stays, and turns are fair."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from tests.adversary.frames import delete_topics
from tests.adversary.good_client import FROM_HOST, GoodClient, GoodLoad
from tests.adversary.memory import Memory

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.testing.scripted_broker import ScriptedBroker
from kvota.testing.scripted_cluster import ScriptedCluster

# Without logins an address is a user: the second one comes when the first has filled its line.
USERS = ("127.0.0.1", "127.0.0.3")
CONNECTIONS, NAMES, NAME_BYTES = 200, 10_000, 188  # of each user; 1.9 MB each, 770 MB in all
# A user has its turn when its first request is whole; so long each time nobody else must have one.
TURN_S, BETWEEN_S, ATTACK_S = 30.0, 2.0, 3.0
GROWTH_MIB_MAX = 300
# Hundreds where nothing else runs; who is kept waiting until the end has a few.
GOOD_ANSWERS_MIN = 20
LARGE_BYTES = 100_000
PORTS = 10
QUOTAS = """
[[quota]]
user_default = true
controller_mutation_rate = 1000000
"""


class Broker(asyncio.Protocol):
    """Answers what is small; asked about thousands of topics it says nothing.

    Attributes:
        asked: the connections on which it was.
    """

    asked: set["Broker"]

    def __init__(self, cluster: ScriptedCluster, asked: set["Broker"]) -> None:
        self.asked = asked
        self._scripted = ScriptedBroker(cluster)
        self._arrived = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._arrived += len(data)
        if self._arrived > LARGE_BYTES:
            self.asked.add(self)
        elif answers := self._scripted.answers(data):
            assert isinstance(self._transport, asyncio.WriteTransport)
            self._transport.write(answers)
            self._arrived = 0


async def pour(port: int, host: str, request: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    try:
        writer.write(request)
        await reader.read(1)
    finally:
        writer.transport.abort()


async def attack(pid: int, port: int, asked: set[Broker]) -> tuple[float, list[int]]:
    """How much the gateway's memory has grown, in MiB, and of how many the broker was asked as each user came."""
    names = [f"{number:05}".ljust(NAME_BYTES, "x") for number in range(NAMES)]
    request = delete_topics(names, client_id="adversary")
    memory, in_hand = Memory(pid), []
    pours: list[asyncio.Task[None]] = []
    for users, host in enumerate(USERS, 1):
        pours += [asyncio.create_task(pour(port, host, request)) for _ in range(CONNECTIONS)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TURN_S):
                while len(asked) < users:  # noqa: ASYNC110  (nothing tells)
                    await asyncio.sleep(0.02)
        await asyncio.sleep(BETWEEN_S)
        in_hand.append(len(asked))
    _done, pending = await asyncio.wait(pours, timeout=ATTACK_S)
    growth_mib = memory.growth_mib()
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)
    assert len(pending) == len(pours), "all wait: for the broker, or for their turn"
    return growth_mib, [*in_hand, len(asked)]


@pytest.mark.skipif(FROM_HOST is None, reason="this machine has one address of its own")
async def test_large_mutations_that_nobody_answers_take_little_memory_and_one_turn_of_each_user(
    tmp_path: Path,
) -> None:
    loop = asyncio.get_running_loop()
    cluster, asked = ScriptedCluster(), set[Broker]()
    broker = await loop.create_server(lambda: Broker(cluster, asked), "127.0.0.1", 0)
    cluster.brokers[1] = broker.sockets[0].getsockname()
    port = free_port_range(PORTS)
    config = gateway_toml(
        upstream=f"127.0.0.1:{cluster.brokers[1][1]}",
        first_port=port,
        node_ids=f"0-{PORTS - 2}",
        enforce={"CONTROLLER_MUTATION": True},
        record="record",
        limits={"drain_time": "1s"},
    )

    try:
        with GatewayProcess(tmp_path, config=config, quotas=QUOTAS) as gateway:
            good = GoodClient(("127.0.0.1", port), "", GoodLoad(value_bytes=0), None)
            await asyncio.to_thread(good.__enter__)
            try:
                growth_mib, in_hand = await attack(gateway.pid, port, asked)
                waits = await asyncio.to_thread(good.waits)
            finally:
                await asyncio.to_thread(good.__exit__, None, None, None)
    finally:
        broker.close()
    assert in_hand == [1, 2, 2]
    assert growth_mib <= GROWTH_MIB_MAX
    assert waits.answers > GOOD_ANSWERS_MIN
    assert waits.reconnects == 0
