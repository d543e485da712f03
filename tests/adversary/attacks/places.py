"""Room and places that are taken and not used."""

import asyncio
import struct
from itertools import count

from tests.adversary.frames import produce
from tests.adversary.good_client import GoodLoad
from tests.adversary.target import Attack, Got, Target
from tests.adversary.wire_client import Lost, WireClient, connected, for_seconds

ANNOUNCED_BYTES = (100 << 20, 28 << 20)
SENT_BYTES, BYTE_EVERY_S = 16_384, 0.5
CLOSED, CLOSING_AT_ONCE, OPEN_S = 3_000, 100, 0.05
RECONNECT_S = 0.02


async def slow_announcers(target: Target, seconds: float, got: Got) -> None:
    """Two connections announce all that a broker may be told of at once, and send a byte now and then."""

    async def worker(announced_bytes: int) -> None:
        while True:
            try:
                async with connected(target.address) as client:
                    got.connections += 1
                    client.send(_begun_produce(target, announced_bytes))
                    while True:
                        await asyncio.sleep(BYTE_EVERY_S)
                        client.send(b"\0")
                        await client.sent()
            except (*Lost, OSError):
                got.closed += 1
                await asyncio.sleep(RECONNECT_S)

    await for_seconds(seconds, *(lambda size=size: worker(size) for size in ANNOUNCED_BYTES))


def _begun_produce(target: Target, announced_bytes: int) -> bytes:
    whole = produce(target.topic, SENT_BYTES, client_id=target.client_id)
    return struct.pack(">i", announced_bytes) + whole[4 : 4 + SENT_BYTES]


async def closed_connections(target: Target, seconds: float, got: Got) -> None:
    """Three thousand connections over the quota that are opened and closed in order, then silence."""
    request = produce(target.topic, 1_000, client_id=target.client_id)
    left = count(CLOSED, -1)

    async def worker() -> None:
        while next(left) > 0:
            try:
                client = await WireClient.to(target.address)
                got.connections += 1
                client.send(request + request)  # the second is read no more: it is muted
                await asyncio.sleep(OPEN_S)
                client.close()
            except (*Lost, OSError):
                got.closed += 1
                await asyncio.sleep(RECONNECT_S)
        await asyncio.Event().wait()

    await for_seconds(seconds, *[worker] * CLOSING_AT_ONCE)


ATTACKS = (
    Attack(
        "slow_announcers",
        slow_announcers,
        good=GoodLoad(value_bytes=600_000, pace_s=0.1),
    ),
    Attack(
        "closed_connections",
        closed_connections,
        quotas={"producer_byte_rate": 1_000},
        good=GoodLoad(reconnects=True, pace_s=0.05),
    ),
)
