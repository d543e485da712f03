"""Places under attack, on real sockets: whatever two greedy addresses do in whatever order, who is modest is let in."""

import asyncio
import contextlib
import os
import socket
import struct
from array import array
from collections.abc import Awaitable, Callable
from fcntl import ioctl
from functools import partial
from random import Random
from termios import TIOCOUTQ

import pytest
from tests.unit.gateway.world import (
    Broker,
    Client,
    World,
    Worlds,
    heartbeat,
    heartbeat_answer,
    obliging,
    until,
)

from kvota.gateway.settings import GatewayLimits, leaving_max
from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import QuotaType
from kvota.testing.frames import METADATA, fetch, produce, request
from kvota.testing.stage import quotas

pytestmark = pytest.mark.timeout(120)

GREEDY, MODEST = ("127.0.0.7", "127.0.0.8"), "127.0.0.9"
PLACES = 6
LIMITS = GatewayLimits(connections_max=PLACES, drain_ms=100)
ACTS, TRIES, TRY_S = 40, 60, 0.1
BUCKETS = {QuotaType.PRODUCE: BucketSettings(burst_ms=1_000, debt_max_ms=15_000)}
OVER = produce(records=b"r" * 100_000)  # muted, or in line, for longer than the test lasts


async def deaf_to_produce_and_fetch(broker: Broker, frame: bytes) -> bytes:
    """As a broker whose Fetches wait for records, and whose Produces wait for replicas."""
    return b"" if frame[5] in {0, 1} else await obliging(broker, frame)


class Attack:
    """Connections of greedy addresses, and what is done with them, one thing after the other."""

    def __init__(self, world: World, rng: Random) -> None:
        self._world = world
        self._rng = rng
        self._clients: list[Client] = []
        self._ended: list[Client] = []
        self._acts: list[Callable[[], Awaitable[None]]] = [
            *(self._come, self._come, self._come, self._send, self._send, self._send),
            *(self._end, self._look),
        ]

    async def act(self) -> None:
        with contextlib.suppress(OSError):  # it has been sent away
            await self._rng.choice(self._acts)()

    async def _come(self) -> None:
        for _ in range(self._rng.choice((1, 1, PLACES, 3 * PLACES))):
            client = await self._world.connect(host=self._rng.choice(GREEDY))
            self._clients.append(client)
            if self._rng.random() < 0.7:
                client.send(self._drawn())

    async def _send(self) -> None:
        for client in self._drawn_clients():
            if not client.writer.transport.is_closing():
                client.send(self._drawn())

    def _drawn_clients(self) -> list[Client]:
        return self._rng.sample(self._clients, min(4, len(self._clients)))

    def _drawn(self) -> bytes:
        """Something to say, in full or in part, once or many times."""
        frame = self._rng.choice(
            (
                *(heartbeat(), request(METADATA, 12), fetch(), OVER, produce()),
                *(produce(acks=0), produce(records=b"r" * 50_000)[:20_000], heartbeat()[:5]),
            )
        )
        return frame * self._rng.choice((1, 1, 30))

    async def _end(self) -> None:
        """In order, in the middle of things, or for one direction."""
        await asyncio.sleep(0.01)  # what was sent has gone, or its transport says that it waits
        for client in self._drawn_clients():
            transport = client.writer.transport
            self._clients.remove(client)
            self._ended.append(client)
            if transport.is_closing() or has_unsent(client):
                reset(client)  # an orderly end would come when all is written, which nobody reads
            else:
                ends = (transport.close, transport.write_eof, partial(reset, client))
                self._rng.choice(ends)()

    async def _look(self) -> None:
        """What upkeep does every other second."""
        self._world.gateway._places.look()
        self._world.sweep()

    def give_up(self) -> None:
        for client in (*self._clients, *self._ended):
            reset(client)


def number_of(client: Client) -> int:
    """Of its socket; below 0 where there is none any more."""
    socket_ = client.writer.transport.get_extra_info("socket")
    return -1 if socket_ is None else socket_.fileno()


def has_unsent(client: Client) -> bool:
    """True while something that it has sent is on this side."""
    number, count = number_of(client), array("i", [0])
    if number >= 0:
        ioctl(number, TIOCOUTQ, count)
    return bool(client.writer.transport.get_write_buffer_size() or count[0])


def reset(client: Client) -> None:
    """Gone at once, with what has not been sent."""
    number = number_of(client)
    if number >= 0:
        with socket.socket(fileno=os.dup(number)) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.writer.transport.abort()


async def let_in(world: World) -> Client:
    """A modest client that comes again until it has an answer."""
    for _ in range(TRIES):
        client = await world.connect(host=MODEST)
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            assert await client.ask(heartbeat()) == heartbeat_answer()
            return client
        await asyncio.sleep(TRY_S)
    pytest.fail(f"kept out for {TRIES} tries")


@pytest.mark.parametrize("seed", range(10))
async def test_who_is_modest_is_let_in_and_all_places_are_free_again(
    worlds: Worlds, seed: int
) -> None:
    rng = Random(seed)
    behaviour = rng.choice((obliging, deaf_to_produce_and_fetch))
    world = await worlds(behaviour=behaviour, table=quotas(PRODUCE=1_000), limits=LIMITS)
    if rng.random() < 0.5:
        world.engine.replace_countings({}, BUCKETS)
    attack = Attack(world, rng)
    for number in range(ACTS):
        await attack.act()
        assert world.open_connections <= PLACES + leaving_max(PLACES)
        if number % 8 == 7:
            (await let_in(world)).writer.close()
    attack.give_up()
    world.brokers[0].hang_up()  # who has ended only its own side waits for answers

    # What else they have left behind gives way: all places are there for others.
    modest = [await let_in(world) for _ in range(PLACES)]
    await until(lambda: world.open_connections == PLACES)
    for client in modest:
        assert await client.ask(heartbeat()) == heartbeat_answer()
    assert world.gateway._places._of_host == {MODEST: PLACES}
    assert not len(world.gateway._places._leaving)
    assert world.shared.budgets.used_bytes == 0
