"""Clients that send what no client should, many at a time, and what becomes of their connections."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from kvota.testing.kafka_messages import mutate

# The first bytes of strangers: sizes, a byte, half a head, other protocols.
STRANGERS = (
    b"\x7f\xff\xff\xff",
    bytes(4),
    b"\xff\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xc3",  # and then silence
    b"\0\0\0\x20\0\x12\0",  # half a header, and then silence
    b"\0\0\0\x20\0\x12\0\x03\0\0\0\1\0\x05cli",  # and half a client id
    b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
    b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",  # TLS
    b"\0\0\x27\x10\x7f\xff\0\0" + bytes(100),  # an API nobody knows
)
LARGE_STRANGERS = (
    b"\0\x60\0\0\0\x01\0\x0c" + bytes(20_000),  # a Fetch of 6 MB whose rest never comes
    b"\x06\0\0\0\0\0\0\x09\0\0\0\1\0\0\0\0\xff\xff" + bytes(20_000),  # a Produce of 100 MB
)


class Fate(Enum):
    """What became of a connection."""

    CLOSED = "closed"
    ANSWERED = "answered"
    WAITING = "waiting"  # at the broker, which may take its time


@dataclass
class Outcome:
    """How many connections met which fate; ports of those that were closed without an answer."""

    fates: Counter[Fate] = field(default_factory=Counter)
    closed_ports: Counter[int] = field(default_factory=Counter)


async def attack(
    address: tuple[str, int], openings: Iterator[bytes], *, at_once: int, patience_s: float
) -> Outcome:
    """One connection for each opening; a number of them at the same time."""
    outcome = Outcome()

    async def worker() -> None:
        for opening in openings:
            await _one(address, opening, patience_s, outcome)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(worker())
    return outcome


async def _one(
    address: tuple[str, int], opening: bytes, patience_s: float, outcome: Outcome
) -> None:
    reader, writer = await asyncio.open_connection(*address)
    port = writer.get_extra_info("sockname")[1]
    fate = Fate.WAITING
    try:
        writer.write(opening)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                fate = Fate.ANSWERED if await reader.read(1) else Fate.CLOSED
    except ConnectionError:
        fate = Fate.CLOSED
    finally:
        writer.transport.abort()
    outcome.fates[fate] += 1
    if fate is Fate.CLOSED:
        outcome.closed_ports[port] += 1


def mutants(frames: list[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Real requests with a few faults each, a quarter of them without a mended size."""
    rng = Random(seed)
    for _ in range(count):
        frame = rng.choice(frames)
        mutant = mutate(frame, rng)
        yield frame[:4] + mutant[4:] if rng.random() < 0.25 else mutant
