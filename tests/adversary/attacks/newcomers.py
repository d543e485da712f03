"""Connections that are closed while a quota keeps them muted: their places stay taken."""

import asyncio
import time

from tests.adversary.frames import error_of_produce, produce
from tests.adversary.target import Attack, Got, Target
from tests.adversary.wire_client import Lost, WireClient, connected

CONNECTIONS_MAX = 400
_VALUE_BYTES = 100_000
_AT_ONCE = 50
_GIVES_UP_S = 10.0


async def closed_in_a_mute(target: Target, seconds: float, got: Got) -> None:
    """As many connections as there are places, each properly closed behind its answer; then a newcomer.

    Notes how long newcomers, one after each flood, took to be served at the worst.
    """
    over_quota = produce(target.topic, _VALUE_BYTES, client_id=target.client_id)
    newcomer = produce(target.topic, 100, client_id="newcomer")
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        for _ in range(0, CONNECTIONS_MAX, _AT_ONCE):
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


ATTACKS = (
    Attack(
        "closed_in_a_mute",
        closed_in_a_mute,
        quotas={"producer_byte_rate": 10_000},
        limits={"connections_max": CONNECTIONS_MAX},
    ),
)
