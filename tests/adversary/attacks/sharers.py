"""Somebody spends what users share, the quota of a client id: without a login, or with bytes that never come.

``Got.used`` is what an honest client of that id had, far below the quota.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine

from tests.adversary.field import GOOD_LOGIN
from tests.adversary.frames import error_of_produce, plain_login, produce
from tests.adversary.target import Attack, Entity, Got, Target
from tests.adversary.wire_client import Lost, connected, for_seconds

STRANGERS = 10
STRANGE_BYTES = 400_000  # a broker reads no more before a login
HONEST_BYTES, HONEST_PACE_S = 2_000, 0.02
PAUSE_S = 0.05
ANNOUNCED_BYTES, BEGUN_BYTES, HELD_S = 50 * 2**20, 17_000, 1.2
# What an honest client must have had beside that, of some 250 where nothing else runs, and how often it must have begun.
ANSWERS_MIN, TIMES_MIN = 40, 3


async def refused(target: Target, seconds: float, got: Got) -> None:
    """Produces that a broker refuses with the connection."""
    await _beside_an_honest_client(target, seconds, got, lambda: _intrude(target, 1, got))


async def unanswered(target: Target, seconds: float, got: Got) -> None:
    """The same with acks=0."""
    await _beside_an_honest_client(target, seconds, got, lambda: _intrude(target, 0, got))


async def announcing(target: Target, seconds: float, got: Got) -> None:
    """With a login of its own: a large Produce begins, and breaks off. Twice as long where the machine is slow."""
    end_s = time.monotonic() + 2 * seconds

    def is_enough() -> bool:
        has_come = got.answers >= ANSWERS_MIN and got.connections >= TIMES_MIN
        return has_come or time.monotonic() > end_s

    await for_seconds(
        seconds, lambda: _be_honest(target, got), lambda: _announce(target, got), until=is_enough
    )


async def _beside_an_honest_client(
    target: Target,
    seconds: float,
    got: Got,
    other: Callable[[], Coroutine[None, None, None]],
) -> None:
    await for_seconds(seconds, lambda: _be_honest(target, got), *[other] * STRANGERS)


async def _be_honest(target: Target, got: Got) -> None:
    request = produce(target.topic, HONEST_BYTES, client_id=target.client_id)
    while True:
        try:
            async with connected(target.address) as client:
                await client.ask(plain_login(*GOOD_LOGIN, client_id=target.client_id))
                await client.answer()
                while True:
                    begin_s = time.monotonic()
                    if not error_of_produce(await client.ask(request)):
                        got.count(len(request) - 4)
                    waited_s = time.monotonic() - begin_s
                    got.notes["longest wait, s"] = max(
                        got.notes.get("longest wait, s", 0), waited_s
                    )
                    await asyncio.sleep(HONEST_PACE_S)
        except (*Lost, OSError):
            got.closed += 1
            await asyncio.sleep(PAUSE_S)


async def _intrude(target: Target, acks: int, got: Got) -> None:
    request = produce(target.topic, STRANGE_BYTES, client_id=target.client_id, acks=acks)
    while True:
        try:
            async with connected(target.address) as client:
                got.connections += 1
                client.send(request)
                await client.closed()
        except (*Lost, OSError):
            pass
        await asyncio.sleep(PAUSE_S)


async def _announce(target: Target, got: Got) -> None:
    request = produce(target.topic, STRANGE_BYTES, client_id=target.client_id)
    begin = ANNOUNCED_BYTES.to_bytes(4, "big") + request[4:BEGUN_BYTES]
    while True:
        try:
            async with connected(target.address) as client:
                await client.ask(plain_login(target.user, target.secret, client_id="other"))
                await client.answer()
                got.connections += 1
                client.send(begin)
                await asyncio.sleep(HELD_S)
        except (*Lost, OSError):
            pass


_BYTES = {"producer_byte_rate": 1_000_000}
ATTACKS = (
    Attack("strangers", refused, quotas=_BYTES, entity=Entity.SHARED_CLIENT_ID),
    Attack("strangers_unanswered", unanswered, quotas=_BYTES, entity=Entity.SHARED_CLIENT_ID),
    Attack("announced_and_shared", announcing, quotas=_BYTES, entity=Entity.SHARED_CLIENT_ID),
)
