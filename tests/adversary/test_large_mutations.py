"""Hundreds of large topic mutations before a broker that does not answer: the gateway's memory stays."""

import asyncio
from pathlib import Path

from tests.adversary.frames import delete_topics
from tests.adversary.memory import Memory

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml

CONNECTIONS, NAMES, NAME_BYTES = 400, 20_000, 188  # 3.8 MB each, 1.5 GB in all
ATTACK_S = 8.0
GROWTH_MIB_MAX = 400
PORTS = 10
QUOTAS = """
[[quota]]
user_default = true
controller_mutation_rate = 1000000
"""


async def pour(port: int, request: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        await reader.read(1)
    finally:
        writer.transport.abort()


async def attack(gateway: GatewayProcess, port: int) -> float:
    """How much the gateway's memory has grown, in MiB."""
    names = [f"{number:05}".ljust(NAME_BYTES, "x") for number in range(NAMES)]
    request = delete_topics(names, client_id="adversary")
    memory = Memory(gateway.pid)
    pours = [asyncio.create_task(pour(port, request)) for _ in range(CONNECTIONS)]
    _done, pending = await asyncio.wait(pours, timeout=ATTACK_S)
    growth_mib = memory.growth_mib()
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)
    assert len(pending) == CONNECTIONS, "all wait: for the broker, or for their turn"
    return growth_mib


async def test_large_mutations_that_nobody_answers_take_little_memory(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    broker = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)  # takes all, says nothing
    port = free_port_range(PORTS)
    config = gateway_toml(
        upstream=f"127.0.0.1:{broker.sockets[0].getsockname()[1]}",
        first_port=port,
        node_ids=f"0-{PORTS - 2}",
        enforce={"CONTROLLER_MUTATION": True},
        record="record",
        limits={"drain_time": "1s"},
    )

    with GatewayProcess(tmp_path, config=config, quotas=QUOTAS, first_port=port) as gateway:
        growth_mib = await attack(gateway, port)

    broker.close()
    assert growth_mib <= GROWTH_MIB_MAX
