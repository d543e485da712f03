"""Names and parts in numbers that nobody needs."""

import asyncio
from itertools import count

from tests.adversary.frames import produce, produce_of_many
from tests.adversary.target import Attack, Entity, Got, Target
from tests.adversary.wire_client import Lost, connected, for_seconds

NAME_BYTES, NAMES_AT_ONCE, NAMING = 1_012, 200, 3
MANY_PARTITIONS, ASKING_FOR_MANY = 300_000, 2
RECONNECT_S = 0.02


async def client_ids(target: Target, seconds: float, got: Got) -> None:
    """Produces that each come under a client id nobody has had."""
    numbers = count()
    placeholder = "x" * NAME_BYTES
    before, behind = produce(target.topic, 10, client_id=placeholder).split(placeholder.encode())

    def request() -> bytes:
        return before + b"%0*d" % (NAME_BYTES, next(numbers)) + behind

    async def worker() -> None:
        while True:
            try:
                async with connected(target.address) as client:
                    got.connections += 1
                    while True:
                        client.send(b"".join(request() for _ in range(NAMES_AT_ONCE)))
                        for _ in range(NAMES_AT_ONCE):
                            await client.answer()
                            got.count(1)
            except (*Lost, OSError):
                got.closed += 1
                await asyncio.sleep(RECONNECT_S)

    await for_seconds(
        seconds, *[worker] * NAMING, until=lambda: got.answers > NAMING * NAMES_AT_ONCE
    )


async def many_partitions(target: Target, seconds: float, got: Got) -> None:
    """Produces that name 300,000 partitions, one after the other on two connections."""
    request = produce_of_many(target.topic, MANY_PARTITIONS, client_id=target.client_id)

    async def worker() -> None:
        while True:
            try:
                async with connected(target.address) as client:
                    got.connections += 1
                    while True:
                        await client.pour(request)
                        await client.answer()
                        got.count(len(request) - 4)
            except (*Lost, OSError):
                got.closed += 1
                await asyncio.sleep(RECONNECT_S)

    await for_seconds(seconds, *[worker] * ASKING_FOR_MANY, until=lambda: got.answers > 0)


ATTACKS = (
    Attack(
        "client_ids",
        client_ids,
        unit="names",
        quotas={"producer_byte_rate": 1_000_000_000},
        entity=Entity.EVERY_CLIENT_ID,
    ),
    Attack("many_partitions", many_partitions),
)
