"""Fetches that ask for more before what was read is paid for."""

import asyncio

from tests.adversary.frames import fetch
from tests.adversary.target import Attack, Got, Target
from tests.adversary.wire_client import Lost, connected, for_seconds

MAX_BYTES = 1_100_000  # one batch of a readable topic
PIPELINED = 1_000
# Smaller answers carry no records: an error, or empty because of the quota.
EMPTY_BYTES_MAX = 1_000
RECONNECTING, PARALLEL = 4, 50
RECONNECT_S = 0.02


async def pipelined(target: Target, seconds: float, got: Got) -> None:
    """A thousand in one segment, on one connection."""
    request = _request(target)

    async def worker() -> None:
        while True:
            try:
                async with connected(target.address) as client:
                    got.connections += 1
                    client.send(request * PIPELINED)
                    for _ in range(PIPELINED):
                        _count(await client.answer(), got)
            except (*Lost, OSError):
                got.closed += 1
                await asyncio.sleep(RECONNECT_S)

    await for_seconds(seconds, worker)


async def connection_each(target: Target, seconds: float, got: Got) -> None:
    """A new connection for every one; it is dropped once the answer is here."""
    request = _request(target)

    async def worker() -> None:
        while True:
            try:
                async with connected(target.address) as client:
                    got.connections += 1
                    _count(await client.ask(request), got)
            except (*Lost, OSError):
                got.closed += 1
            # Without a pause the plain broker, which keeps muted connections, runs out of file descriptors.
            await asyncio.sleep(RECONNECT_S)

    await for_seconds(seconds, *[worker] * RECONNECTING)


async def parallel(target: Target, seconds: float, got: Got) -> None:
    """One after the other on each of many connections."""
    request = _request(target)

    async def worker() -> None:
        while True:
            try:
                async with connected(target.address) as client:
                    got.connections += 1
                    while True:
                        _count(await client.ask(request), got)
            except (*Lost, OSError):
                got.closed += 1
                await asyncio.sleep(RECONNECT_S)

    await for_seconds(seconds, *[worker] * PARALLEL)


def _request(target: Target) -> bytes:
    return fetch(target.topic, MAX_BYTES, client_id=target.client_id)


def _count(answer: bytes, got: Got) -> None:
    if len(answer) > EMPTY_BYTES_MAX:
        got.count(len(answer) - 4)
    else:
        got.note("empty")


# A batch is worth a second of it: ratios to the plain broker are of many answers.
_QUOTAS = {"consumer_byte_rate": 1_000_000}
ATTACKS = (
    Attack("pipelined_fetches", pipelined, quotas=_QUOTAS),
    Attack("connection_per_fetch", connection_each, quotas=_QUOTAS),
    Attack("parallel_fetches", parallel, quotas=_QUOTAS),
)
