"""Produces that heed no throttle."""

from tests.adversary.frames import error_of_produce, produce
from tests.adversary.target import Attack, Got, Target
from tests.adversary.wire_client import Lost, WireClient, connected, for_seconds

CONNECTIONS, DEPTH = 10, 20
PIPELINED_BYTES = 20_000
LARGE_BYTES = 15_000_000


async def pipelined(target: Target, seconds: float, got: Got) -> None:
    """Ten connections with twenty requests on their way each."""
    request = produce(target.topic, PIPELINED_BYTES, client_id=target.client_id)
    workers = (lambda: _keep_going(target, request, DEPTH, got) for _ in range(CONNECTIONS))
    await for_seconds(seconds, *workers)


async def large(target: Target, seconds: float, got: Got) -> None:
    """One connection, one request after the other, each worth many minutes of the quota."""
    request = produce(target.topic, LARGE_BYTES, client_id=target.client_id)
    await for_seconds(seconds, lambda: _keep_going(target, request, 1, got))


async def _keep_going(target: Target, request: bytes, depth: int, got: Got) -> None:
    """One connection at a time with so many requests on their way; only the broker's word counts."""
    while True:
        try:
            async with connected(target.address) as client:
                got.connections += 1
                client.send(request * depth)
                while True:
                    await _count(client, request, got)
                    client.send(request)
        except (*Lost, OSError):
            got.closed += 1


async def _count(client: WireClient, request: bytes, got: Got) -> None:
    error = error_of_produce(await client.answer())
    if error:
        got.notes["refused"] = got.notes.get("refused", 0) + 1
    else:
        got.count(len(request) - 4)


ATTACKS = (
    Attack("pipelined_produces", pipelined, quotas={"producer_byte_rate": 200_000}),
    Attack("large_produces", large, quotas={"producer_byte_rate": 10_000}),
)
