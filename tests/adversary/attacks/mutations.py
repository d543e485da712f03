"""Topic mutations: uncharged ones, and large ones that wait for a decision."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count, islice

from tests.adversary.frames import (
    create_partitions,
    create_topics,
    delete_topics,
    errors_of_topics,
    metadata_of,
    partitions_of_topics,
)
from tests.adversary.good_client import GoodLoad
from tests.adversary.target import Attack, Got, Target
from tests.adversary.wire_client import Lost, WireClient, connected, for_seconds

NONE = 0
AT_ONCE = 4
ANSWERS_MIN, GROWTH_ANSWERS_MIN = 51, 21
GROWN = "grown before"
CREATED_PARTITIONS = 5
PERMISSIVE_PARTITIONS = 30
GROWN_PARTITIONS = 50
METADATA_S = 0.1  # until all nodes know of a topic
ASKED_AT_ONCE = 5
DEFAULT_PARTITIONS = 10  # the brokers' num.partitions
DELETE_CONNECTIONS, DELETE_NAMES = 300, 20_000
RECONNECT_S = 0.02


async def creates_and_deletes(target: Target, seconds: float, got: Got) -> None:
    """Create through one node, delete at once through another."""
    await _through_two_nodes(
        target,
        seconds,
        got,
        _create_and_delete,
        at_once=AT_ONCE,
        until=lambda: got.answers >= ANSWERS_MIN,
    )


async def growth_beside_deletion(target: Target, seconds: float, got: Got) -> None:
    """A topic of one partition grows through one node while it is deleted through another."""
    await _through_two_nodes(
        target,
        seconds,
        got,
        _grow_and_delete,
        at_once=2,
        until=lambda: got.answers >= GROWTH_ANSWERS_MIN and got.notes.get(GROWN, 0) > 0,
    )


async def _through_two_nodes(
    target: Target,
    seconds: float,
    got: Got,
    mutate: Callable[[WireClient, WireClient, str, Target, Got], Awaitable[None]],
    *,
    at_once: int,
    until: Callable[[], bool],
) -> None:
    """``mutate`` again and again, each time with a topic's name of its own."""
    names = (f"{target.client_id}-{number}" for number in count())

    async def worker() -> None:
        while True:
            try:
                async with connected(target.nodes[0]) as one, connected(target.nodes[-1]) as other:
                    got.connections += 2
                    while True:
                        await mutate(one, other, next(names), target, got)
            except (*Lost, OSError):
                got.closed += 1
                await asyncio.sleep(RECONNECT_S)

    await for_seconds(seconds, *[worker] * at_once, until=until)


async def _create_and_delete(
    one: WireClient, other: WireClient, name: str, target: Target, got: Got
) -> None:
    request = create_topics([name], CREATED_PARTITIONS, client_id=target.client_id)
    _count(request, await one.ask(request), CREATED_PARTITIONS, got)
    request = delete_topics([name], client_id=target.client_id)
    _count(request, await other.ask(request), CREATED_PARTITIONS, got)


async def _grow_and_delete(
    one: WireClient, other: WireClient, name: str, target: Target, got: Got
) -> None:
    request = create_topics([name], 1, client_id=target.client_id)
    _count(request, await one.ask(request), 1, got)
    await asyncio.sleep(METADATA_S)
    grow = create_partitions(name, GROWN_PARTITIONS, client_id=target.client_id)
    delete = delete_topics([name], client_id=target.client_id)
    one.send(grow)
    other.send(delete)
    (error,) = errors_of_topics(grow, await one.answer())
    # Where it has grown that was before it was deleted.
    if error == NONE:
        got.note(GROWN)
        got.count(GROWN_PARTITIONS - 1)
    _count(delete, await other.answer(), GROWN_PARTITIONS if error == NONE else 1, got)


async def creates_of_default(target: Target, seconds: float, got: Got) -> None:
    """Topics with as many partitions as the broker thinks right, where nobody has asked for Metadata."""
    names = (f"{target.client_id}-{number}" for number in count())

    async def worker() -> None:
        while True:
            try:
                async with connected(target.address) as client:
                    got.connections += 1
                    while True:
                        request = create_topics([next(names)], -1, client_id=target.client_id)
                        _count(request, await client.ask(request), DEFAULT_PARTITIONS, got)
            except (*Lost, OSError):
                got.closed += 1
                await asyncio.sleep(RECONNECT_S)

    await for_seconds(seconds, worker)


async def creates_by_metadata(target: Target, seconds: float, got: Got) -> None:
    """Topics that a broker makes by itself, for they were asked for."""
    names = (f"{target.client_id}-{number}" for number in count())
    asked: list[str] = []

    async def worker() -> None:
        while True:
            try:
                async with connected(target.address) as client:
                    got.connections += 1
                    while True:
                        asked.extend(some := list(islice(names, ASKED_AT_ONCE)))
                        await client.ask(
                            metadata_of(some, client_id=target.client_id, creates=True)
                        )
                        got.note("asked for")
                        await asyncio.sleep(METADATA_S)
            except (*Lost, OSError):
                got.closed += 1
                await asyncio.sleep(RECONNECT_S)

    await for_seconds(seconds, worker)
    async with connected(target.address) as client:
        told = await client.ask(metadata_of(asked, client_id=target.client_id, creates=False))
        got.count(partitions_of_topics(told))


async def permissive(target: Target, seconds: float, got: Got) -> None:
    """Creations in a version that cannot be refused, one after the other on one connection."""
    names = (f"{target.client_id}-{number}" for number in count())

    async def worker() -> None:
        while True:
            try:
                async with connected(target.address) as client:
                    got.connections += 1
                    while True:
                        request = create_topics(
                            [next(names)], PERMISSIVE_PARTITIONS, client_id=target.client_id
                        )
                        _count(request, await client.ask(request), PERMISSIVE_PARTITIONS, got)
            except (*Lost, OSError):
                got.closed += 1
                await asyncio.sleep(RECONNECT_S)

    await for_seconds(seconds, worker, until=lambda: got.answers > 0)


async def large_deletes(target: Target, seconds: float, got: Got) -> None:
    """Three hundred connections with 20,000 unknown names of 188 characters each, until one has had an answer.

    These are 1.1 GB before the first answer may come: on a busy machine that takes longer than an attack lasts.
    """
    names = [f"{number:05}".ljust(188, "x") for number in range(DELETE_NAMES)]
    request = delete_topics(names, client_id=target.client_id)

    async def worker() -> None:
        while True:
            try:
                async with connected(target.address) as client:
                    got.connections += 1
                    while True:
                        await client.pour(request)
                        await client.answer()
                        got.count(len(request))
            except (*Lost, OSError):
                got.closed += 1
                await asyncio.sleep(RECONNECT_S)

    await for_seconds(seconds, *[worker] * DELETE_CONNECTIONS, until=lambda: got.answers > 0)


def _count(request: bytes, answer: bytes, partitions: int, got: Got) -> None:
    for error in errors_of_topics(request, answer):
        if error == NONE:
            got.count(partitions)
        else:
            got.note(f"error {error}")


ATTACKS = (
    Attack(
        "creates_and_deletes",
        creates_and_deletes,
        unit="partitions",
        quotas={"controller_mutation_rate": 10_000},  # nothing is refused: is all of it charged?
        broker_nodes=2,
        good=GoodLoad(value_bytes=0),
    ),
    Attack(
        "growth_beside_deletion",
        growth_beside_deletion,
        unit="partitions",
        quotas={"controller_mutation_rate": 10_000},
        broker_nodes=2,
        good=GoodLoad(value_bytes=0),
    ),
    Attack(
        "creates_of_default",
        creates_of_default,
        unit="partitions",
        quotas={"controller_mutation_rate": 1},
    ),
    Attack(
        "creates_by_metadata",
        creates_by_metadata,
        unit="partitions",
        quotas={"controller_mutation_rate": 0.5},
    ),
    # Where a mute ends soon: what minutes show in a few seconds.
    Attack(
        "permissive_creates",
        permissive,
        unit="partitions",
        quotas={"controller_mutation_rate": 1},
        limits={"mute_time_max": "2s"},
    ),
    Attack("large_deletes", large_deletes, quotas={"controller_mutation_rate": 10_000}),
)
