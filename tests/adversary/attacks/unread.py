"""Answers that are asked for and not taken: what does the gateway keep of them?"""

import asyncio
from itertools import count

from tests.adversary.field import READABLE_RECORD_BYTES, READABLE_RECORDS, READABLE_TOPIC
from tests.adversary.frames import correlated, fetch, produce
from tests.adversary.target import Attack, Got, Target
from tests.adversary.wire_client import connected, for_seconds

CONNECTIONS, AT_ONCE = 300, 30
PIPELINED = 5_000
RECEIVE_BYTES = 4_096  # less is kept by no system for who does not read
HOUR_MS = 3_600_000
PAUSE_S = 0.1


async def answers(target: Target, seconds: float, got: Got) -> None:
    """Each connection asks for all there is to read, and reads nothing."""
    all_bytes = READABLE_RECORDS * READABLE_RECORD_BYTES
    await _ask(target, seconds, got, fetch(READABLE_TOPIC, all_bytes, client_id=target.client_id))


async def behind_a_long_poll(target: Target, seconds: float, got: Got) -> None:
    """Each waits for an hour for records that never come, with thousands of Produces behind that."""
    poll = fetch(
        READABLE_TOPIC,
        1_000,
        client_id=target.client_id,
        max_wait_ms=HOUR_MS,
        offset=READABLE_RECORDS,
    )
    numbers = count(2)
    small = produce(target.topic, 1, client_id=target.client_id)
    pipeline = b"".join(correlated(small, next(numbers)) for _ in range(PIPELINED))
    await _ask(target, seconds, got, poll + pipeline)


async def _ask(target: Target, seconds: float, got: Got, request: bytes) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def worker() -> None:
        async with connected(target.address, receive_bytes=RECEIVE_BYTES) as client:
            got.connections += 1
            async with gate:
                client.send(request)
                await asyncio.sleep(PAUSE_S)
            got.count(len(request))
            await asyncio.Event().wait()

    await for_seconds(seconds, *[worker] * CONNECTIONS, until=lambda: got.answers >= CONNECTIONS)


ATTACKS = (
    Attack("unread_answers", answers),
    Attack("behind_a_long_poll", behind_a_long_poll),
)
