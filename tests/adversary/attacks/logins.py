"""Requests that come together with a login, from a user who comes again and again.

Every connection has a client id of its own: the quota is the user's.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from itertools import count, cycle

from tests.adversary.frames import (
    create_topics,
    error_of_produce,
    errors_of_topics,
    plain_login,
    produce,
)
from tests.adversary.target import Attack, Entity, Got, Target
from tests.adversary.wire_client import UNDISGUISED, Disguise, Lost, connected, for_seconds

AT_ONCE = 4
RECORD_BYTES = 900_000
PARTITIONS = 10
# A reserved field; an extension that is none of Kafka's; one that is said twice, of which the last counts.
DISGUISES = (
    Disguise(before_name="m=n=nobody,"),
    Disguise(extensions=",TOKENAUTH=true", signed_extensions=",TOKENAUTH=true"),
    Disguise(extensions=",tokenauth=true,tokenauth=false", signed_extensions=",tokenauth=false"),
)
# A busy loop of refused connections would be an attack on the attacker.
RECONNECT_S = 0.02
REFUSED_MIN, LONGER_S = 11, 60.0

Once = Callable[[str], Coroutine[None, None, None]]  # by client id


async def produces_with_plain(target: Target, seconds: float, got: Got) -> None:
    """Handshake, PLAIN token and Produce in one segment."""
    await _over_and_over(target, seconds, lambda name: _produce_in_one(target, name, got), got)


async def produces_with_scram(target: Target, seconds: float, got: Got) -> None:
    """The last token of a SCRAM login and Produce in one segment."""
    await _over_and_over(target, seconds, lambda name: _produce_by_scram(target, name, got), got)


async def produces_in_disguise(target: Target, seconds: float, got: Got) -> None:
    """SCRAM logins that a broker takes and in which a name is not easily read."""
    disguises = cycle(DISGUISES)
    await _over_and_over(
        target, seconds, lambda name: _produce_by_scram(target, name, got, next(disguises)), got
    )


async def creates_with_plain(target: Target, seconds: float, got: Got) -> None:
    """Handshake, PLAIN token and CreateTopics in one segment, until some were refused.

    The last ones have their answers: what was charged is held against what was created.
    """
    end_s = time.monotonic() + seconds

    def is_over() -> bool:
        return time.monotonic() > end_s and got.notes.get("refused", 0) >= REFUSED_MIN

    await _over_and_over(
        target,
        seconds + LONGER_S,
        lambda name: _create_in_one(target, name, got),
        got,
        is_over=is_over,
    )


async def _over_and_over(
    target: Target,
    seconds: float,
    once: Once,
    got: Got,
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """For so many seconds and until one was answered; nobody comes again when ``is_over``.

    A connection counts when it has ended: one that has not may still be given something.
    """
    names = (f"{target.client_id}-{number}" for number in count())

    async def worker() -> None:
        while not is_over():
            try:
                await once(next(names))
                got.connections += 1
            except (*Lost, OSError):
                got.connections += 1
                got.closed += 1
                await asyncio.sleep(RECONNECT_S)

    await for_seconds(seconds, *[worker] * AT_ONCE, until=lambda: got.answers > 0)


async def _produce_in_one(target: Target, name: str, got: Got) -> None:
    request = produce(target.topic, RECORD_BYTES, client_id=name)
    async with connected(target.address) as client:
        client.send(plain_login(target.user, target.secret, client_id=name) + request)
        await client.answer()
        await client.answer()
        if error_of_produce(await client.answer()) == 0:
            got.count(len(request) - 4)


async def _produce_by_scram(
    target: Target, name: str, got: Got, disguise: Disguise = UNDISGUISED
) -> None:
    request = produce(target.topic, RECORD_BYTES, client_id=name)
    async with connected(target.address) as client:
        final = await client.scram_final(
            target.user, target.secret, client_id=name, disguise=disguise
        )
        client.send(final + request)
        await client.answer()
        if error_of_produce(await client.answer()) == 0:
            got.count(len(request) - 4)


async def _create_in_one(target: Target, name: str, got: Got) -> None:
    request = create_topics([name], PARTITIONS, client_id=name, strict=True)
    async with connected(target.address) as client:
        client.send(plain_login(target.user, target.secret, client_id=name) + request)
        await client.answer()
        await client.answer()
        for error in errors_of_topics(request, await client.answer()):
            if error == 0:
                got.count(PARTITIONS)
            else:
                got.note("refused")


_BYTES, _MUTATIONS = {"producer_byte_rate": 10_000}, {"controller_mutation_rate": 0.1}
ATTACKS = (
    Attack("produces_with_plain", produces_with_plain, quotas=_BYTES, entity=Entity.USER),
    Attack("produces_with_scram", produces_with_scram, quotas=_BYTES, entity=Entity.USER),
    Attack("produces_in_disguise", produces_in_disguise, quotas=_BYTES, entity=Entity.USER),
    Attack(
        "creates_with_plain",
        creates_with_plain,
        unit="partitions",
        quotas=_MUTATIONS,
        entity=Entity.USER,
    ),
)
