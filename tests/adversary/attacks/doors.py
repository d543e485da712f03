"""One broker through two doors: the bootstrap port, and its own."""

from tests.adversary.frames import error_of_produce, metadata, produce
from tests.adversary.target import Attack, Got, Target
from tests.adversary.wire_client import Lost, connected, for_seconds

CONNECTIONS = 8  # half of them through each door
REQUEST_BYTES = 20_000


async def without_metadata(target: Target, seconds: float, got: Got) -> None:
    """Nobody asks who the brokers are."""
    await _through_both(target, seconds, got, asks=False)


async def with_metadata(target: Target, seconds: float, got: Got) -> None:
    """Every connection asks first."""
    await _through_both(target, seconds, got, asks=True)


async def _through_both(target: Target, seconds: float, got: Got, *, asks: bool) -> None:
    doors = (target.address, target.nodes[0]) * (CONNECTIONS // 2)
    workers = (lambda door=door: _keep_going(target, door, got, asks=asks) for door in doors)  # type: ignore[misc]
    await for_seconds(seconds, *workers)


async def _keep_going(target: Target, door: tuple[str, int], got: Got, *, asks: bool) -> None:
    request = produce(target.topic, REQUEST_BYTES, client_id=target.client_id)
    while True:
        try:
            async with connected(door) as client:
                got.connections += 1
                if asks:
                    await client.ask(metadata(client_id=target.client_id))
                while not error_of_produce(await client.ask(request)):
                    got.count(len(request) - 4)
        except (*Lost, OSError):
            got.closed += 1


ATTACKS = (
    Attack("two_doors", without_metadata, quotas={"producer_byte_rate": 200_000}),
    Attack("two_doors_asked", with_metadata, quotas={"producer_byte_rate": 200_000}),
)
