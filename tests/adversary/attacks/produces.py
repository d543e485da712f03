"""Produces that heed no throttle."""

import asyncio

from tests.adversary.frames import error_of_produce, metadata, produce
from tests.adversary.target import Attack, Got, Target
from tests.adversary.wire_client import Lost, WireClient, connected, for_seconds

CONNECTIONS, DEPTH = 10, 20
PIPELINED_BYTES = 20_000
LARGE_BYTES = 15_000_000
RECONNECT_S = 0.02


async def pipelined(target: Target, seconds: float, got: Got) -> None:
    """Ten connections with twenty requests on their way each."""
    request = produce(target.topic, PIPELINED_BYTES, client_id=target.client_id)
    workers = (lambda: _keep_going(target.address, request, DEPTH, got) for _ in range(CONNECTIONS))
    await for_seconds(seconds, *workers)


async def large(target: Target, seconds: float, got: Got) -> None:
    """One connection, one request after the other, each worth many minutes of the quota."""
    request = produce(target.topic, LARGE_BYTES, client_id=target.client_id)
    await for_seconds(
        seconds,
        lambda: _keep_going(target.address, request, 1, got),
        until=lambda: got.answers > 0,
    )


async def two_names(target: Target, seconds: float, got: Got) -> None:
    """By the bootstrap address, before anybody has asked who that is, and by the node's own."""
    request = produce(target.topic, PIPELINED_BYTES, client_id=target.client_id)
    begun = asyncio.Event()

    async def by_node() -> None:
        await begun.wait()
        async with connected(target.address) as client:
            await client.ask(metadata(client_id=target.client_id))
        await _keep_going(target.nodes[0], request, DEPTH, got)

    async def by_bootstrap() -> None:
        asyncio.get_running_loop().call_later(0.5, begun.set)
        await _keep_going(target.address, request, DEPTH, got)

    await for_seconds(seconds, by_bootstrap, by_node)


async def _keep_going(address: tuple[str, int], request: bytes, depth: int, got: Got) -> None:
    """One connection at a time with so many requests on their way; only the broker's word counts."""
    while True:
        try:
            async with connected(address) as client:
                got.connections += 1
                client.send(request * depth)
                while True:
                    await _count(client, request, got)
                    client.send(request)
        except (*Lost, OSError):
            got.closed += 1
            await asyncio.sleep(RECONNECT_S)


async def _count(client: WireClient, request: bytes, got: Got) -> None:
    error = error_of_produce(await client.answer())
    if error:
        got.note(f"error {error}")
    else:
        got.count(len(request) - 4)


ATTACKS = (
    Attack("pipelined_produces", pipelined, quotas={"producer_byte_rate": 200_000}),
    Attack("two_names", two_names, quotas={"producer_byte_rate": 200_000}),
    Attack("large_produces", large, quotas={"producer_byte_rate": 10_000}),
    # The same where a mute ends soon: what a minute shows in a few seconds.
    Attack(
        "large_produces_short_mutes",
        large,
        quotas={"producer_byte_rate": 10_000},
        limits={"mute_time_max": "2s"},
    ),
)
