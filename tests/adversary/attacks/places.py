"""Places that are taken: by connections that are closed while muted, and by as many as there are that stay."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from itertools import count

from tests.adversary.frames import (
    error_of_produce,
    fetch,
    metadata,
    plain_login,
    produce,
    versions,
)
from tests.adversary.good_client import GoodLoad
from tests.adversary.target import Attack, Entity, Got, Target
from tests.adversary.wire_client import Lost, WireClient, connected, for_seconds

CLOSED, CLOSING_AT_ONCE, OPEN_S = 3_000, 100, 0.05
RECONNECT_S = 0.02
# Fewer than by default: a test has a few seconds, and each place costs a login (``bench/adversary`` has a
# ``--places``).
PLACES = 400
VALUE_BYTES = 100_000
# Of all places, at a moment: newcomers have theirs, too.
NOT_HELD_MAX = 9
_AT_ONCE = 50
_GIVES_UP_S = 10.0


# ------------------------------------------------------------------ closed while muted


async def closed_connections(target: Target, seconds: float, got: Got) -> None:
    """Three thousand connections over the quota that are opened and closed in order, then silence for so long."""
    request = produce(target.topic, 1_000, client_id=target.client_id)
    left, silent = count(CLOSED, -1), count(1)
    all_closed = asyncio.Event()

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
        if next(silent) == CLOSING_AT_ONCE:
            all_closed.set()
        await asyncio.Event().wait()

    await for_seconds(seconds, *[worker] * CLOSING_AT_ONCE, since=all_closed.is_set)


async def closed_in_a_mute(target: Target, seconds: float, got: Got) -> None:
    """As many connections as there are places, each properly closed behind its answer; then a newcomer.

    Notes how long newcomers, one after each flood, took to be served at the worst.
    """
    over_quota = produce(target.topic, VALUE_BYTES, client_id=target.client_id)
    newcomer = produce(target.topic, 100, client_id="newcomer")
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        for _ in range(0, target.places, _AT_ONCE):
            await asyncio.gather(*(_one(target, over_quota, got) for _ in range(_AT_ONCE)))
        waited_s = await _served_after(target, newcomer)
        got.notes["newcomer_waited_s"] = max(waited_s, got.notes.get("newcomer_waited_s", 0.0))
        got.notes["newcomers_served"] = got.notes.get("newcomers_served", 0) + (
            waited_s < _GIVES_UP_S
        )


async def _one(target: Target, request: bytes, got: Got) -> None:
    """Opened, answered, properly closed."""
    try:
        client = await WireClient.to(target.address)
    except OSError:
        return
    got.connections += 1
    try:
        async with asyncio.timeout(0.5):
            if error_of_produce(await client.ask(request)) == 0:
                got.count(len(request) - 4)
    except Lost:
        got.closed += 1
    client.close()


async def _served_after(target: Target, request: bytes) -> float:
    begin_s = time.monotonic()
    while time.monotonic() < begin_s + _GIVES_UP_S:
        try:
            async with asyncio.timeout(_GIVES_UP_S), connected(target.address) as client:
                await client.ask(request)
                return time.monotonic() - begin_s
        except (*Lost, OSError):
            await asyncio.sleep(0.01)
    return float("inf")


# ------------------------------------------------------------------ all places, by connections that stay

# What a connection does once it is there, and goes on doing until it is closed.
_Stay = Callable[[Target, WireClient], Awaitable[None]]


async def _idle(target: Target, client: WireClient) -> None:
    await client.ask(metadata(client_id=target.client_id))


async def _muted(target: Target, client: WireClient) -> None:
    """Over the quota, and more behind it that is not read."""
    request = produce(target.topic, VALUE_BYTES, client_id=target.client_id)
    client.send(request + request)


async def _long_poll(target: Target, client: WireClient) -> None:
    """More is asked for than there is, for an hour."""
    client.send(
        fetch(
            target.topic,
            1 << 30,
            client_id=target.client_id,
            min_bytes=1 << 30,
            max_wait_ms=3_600_000,
        )
    )


async def _slow(target: Target, client: WireClient) -> None:
    """Just so much of a request that it goes on, and a byte now and then."""
    request = produce(target.topic, 20_000, client_id=target.client_id)
    client.send(request[:-1_000])
    for byte in request[-1_000:]:
        await asyncio.sleep(0.5)
        client.send(bytes([byte]))
        await client.sent()


async def _at_work(target: Target, client: WireClient) -> None:
    """One small request after the other: there is always an answer due."""
    request = produce(target.topic, 10, client_id=target.client_id)
    while True:
        await client.ask(request)


async def _stay(
    stay: _Stay, target: Target, seconds: float, got: Got, *, logs_in: bool = True
) -> None:
    """As many as there are places; who is closed comes again. The seconds begin when nearly all are held."""
    gate = asyncio.Semaphore(_AT_ONCE)
    notes = got.notes

    def all_held() -> bool:
        return notes.get("held_at_most", 0) >= target.places - NOT_HELD_MAX

    async def one() -> None:
        async with AsyncExitStack() as ends:
            async with gate:
                client = await ends.enter_async_context(connected(target.address))
                got.connections += 1
                if logs_in:
                    await _log_in(target, client)
            held = got.connections - got.closed
            notes["held_at_most"] = max(notes.get("held_at_most", 0), held)
            await stay(target, client)
            await client.closed()
            got.closed += 1

    async def worker() -> None:
        while True:
            try:
                await one()
            except (*Lost, OSError):
                got.closed += 1
                await asyncio.sleep(RECONNECT_S)

    await for_seconds(seconds, *[worker] * target.places, since=all_held)


async def _log_in(target: Target, client: WireClient) -> None:
    if target.logs_in:
        await client.ask(plain_login(target.user, target.secret, client_id=target.client_id))
        await client.answer()


async def nobody(target: Target, seconds: float, got: Got) -> None:
    """Connections that do not log in: they ask for versions, or nothing."""
    numbers = count()

    async def ask_versions(target: Target, client: WireClient) -> None:
        if next(numbers) % 2:
            await client.ask(versions(client_id=target.client_id))

    await _stay(ask_versions, target, seconds, got, logs_in=False)


async def again_and_again(target: Target, seconds: float, got: Got) -> None:
    """New connections as fast as they can be had; none is closed that may still have a place."""
    held: deque[WireClient] = deque()

    async def worker() -> None:
        while True:
            try:
                client = await WireClient.to(target.address)
                got.connections += 1
                held.append(client)
                if len(held) > 2 * target.places:
                    held.popleft().abort()
                await _log_in(target, client)
                await client.ask(metadata(client_id=target.client_id))
            except (*Lost, OSError):
                got.closed += 1
                await asyncio.sleep(RECONNECT_S)

    def all_held() -> bool:
        return got.connections > target.places

    await for_seconds(seconds, *[worker] * (_AT_ONCE // 2), since=all_held)
    for client in held:
        client.abort()


def _attack(
    name: str,
    run: Callable[[Target, float, Got], Awaitable[None]],
    *,
    quotas: Mapping[str, float] | None = None,
    entity: Entity = Entity.USER,
) -> Attack:
    return Attack(
        name,
        run,
        quotas=quotas or {},
        entity=entity,
        limits={"connections_max": PLACES},
        # Those of the attack, and of the good client; without logins they would bar who sets it, too.
        broker_connections_max=PLACES if entity.logs_in else None,
        good=GoodLoad(reconnects=True, pace_s=0.02),
    )


FILLING = (
    _attack("places_idle", partial(_stay, _idle)),
    _attack("places_muted", partial(_stay, _muted), quotas={"producer_byte_rate": 10_000}),
    _attack("places_long_polls", partial(_stay, _long_poll), quotas={"consumer_byte_rate": 10**9}),
    _attack("places_slow", partial(_stay, _slow)),
    _attack("places_at_work", partial(_stay, _at_work)),
    _attack("places_nobody", nobody),
    _attack("places_again_and_again", again_and_again),
    _attack("places_without_logins", partial(_stay, _idle), entity=Entity.CLIENT_ID),
)
ATTACKS = (
    Attack(
        "closed_connections",
        closed_connections,
        quotas={"producer_byte_rate": 1_000},
        good=GoodLoad(reconnects=True, pace_s=0.05),
    ),
    Attack(
        "closed_in_a_mute",
        closed_in_a_mute,
        quotas={"producer_byte_rate": 10_000},
        limits={"connections_max": PLACES},
    ),
    *FILLING,
)
