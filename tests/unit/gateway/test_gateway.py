"""What the gateway as a whole offers to others: other quotas, another look at who waits."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from tests.unit.gateway.world import (
    World,
    Worlds,
    heartbeat,
    heartbeat_answer,
    reasons_of,
    until,
)

from kvota.gateway.driver import Driver
from kvota.gateway.journal import Journal
from kvota.gateway.settings import ConnectionRateSettings
from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_type import QuotaType
from kvota.session.connection import Connection
from kvota.session.pausing import Reason
from kvota.testing.frames import produce, throttle_of
from kvota.testing.stage import ALL_TYPES, quotas

Looked = list[Connection]
BUCKETS = {QuotaType.PRODUCE: BucketSettings()}


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Looked:
    """The machines that have looked again."""
    looked: Looked = []
    monkeypatch.setattr(Connection, "look_again", lambda machine, _: looked.append(machine))
    return looked


class Numbered:
    """Takes a place, and notes when it is looked at."""

    has_asked = True
    is_unread = False
    host = "192.0.2.1"

    def __init__(self, number: int, order: list[int]) -> None:
        self._number = number
        self._order = order

    def look_again(self) -> None:
        self._order.append(self._number)


def take_places(world: World, places: int) -> list[int]:
    """Fills so many places; returns the numbers of those who are looked at, as it grows."""
    order: list[int] = []
    for number in range(places):
        world.gateway._places.take(cast("Driver", Numbered(number, order)), Journal(lambda: 0.0))
    return order


RATES = ConnectionRateSettings()


def put_in_force(world: World, table: ConfiguredQuotas) -> None:
    world.gateway.put_in_force(
        table, enforced=ALL_TYPES, windows={}, buckets={}, connection_rates=RATES
    )


async def test_other_quotas_are_told_to_every_connection(worlds: Worlds, looked: Looked) -> None:
    world = await worlds()
    clients = [await world.connect() for _ in range(5)]
    for client in clients:
        await client.ask(heartbeat())

    put_in_force(world, quotas(PRODUCE=1_000))
    await until(lambda: looked)

    assert looked == [driver.machine for driver in world.drivers]
    assert len(looked) == 5


async def test_a_muted_client_goes_on_when_its_quota_is_lifted(worlds: Worlds) -> None:
    world = await worlds(table=quotas(PRODUCE=1_000))
    client = await world.connect()
    assert throttle_of(await client.ask(produce(records=b"r" * 1_000_000)), 0, 9) > 60_000
    client.send(heartbeat(2))

    put_in_force(world, quotas(PRODUCE=100_000_000))

    assert await client.frame() == heartbeat_answer(2)


LET_GO: dict[str, Callable[[World], None]] = {
    "no longer enforced": lambda world: world.gateway.put_in_force(
        quotas(PRODUCE=1_000),
        enforced=frozenset(),
        windows={},
        buckets=BUCKETS,
        connection_rates=RATES,
    ),
    "another algorithm": lambda world: world.gateway.put_in_force(
        quotas(PRODUCE=1_000), enforced=ALL_TYPES, windows={}, buckets={}, connection_rates=RATES
    ),
    "no quota": lambda world: world.gateway.put_in_force(
        quotas(), enforced=ALL_TYPES, windows={}, buckets=BUCKETS, connection_rates=RATES
    ),
}


@pytest.mark.parametrize("change", LET_GO)
async def test_who_is_muted_and_who_waits_in_line_go_on_when_what_holds_them_is_taken_back(
    worlds: Worlds, change: str
) -> None:
    world = await worlds(table=quotas(PRODUCE=1_000))
    world.gateway.shared.engine.replace_countings({}, BUCKETS)
    muted, waiting = await world.connect(), await world.connect()
    assert throttle_of(await muted.ask(produce(records=b"r" * 1_000_000)), 0, 9) == 30_000
    muted.send(heartbeat(2))
    waiting.send(produce(correlation=3))
    await until(lambda: any(driver.machine.is_in_line for driver in world.drivers))

    LET_GO[change](world)

    # Long before the mute would have ended by itself.
    await until(lambda: not any(reasons_of(driver) & Reason.MUTED for driver in world.drivers))
    assert await muted.frame() == heartbeat_answer(2)
    assert int.from_bytes((await waiting.frame())[4:8], "big") == 3


async def test_a_mute_that_another_look_shortens_ends_when_it_says(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Connection, "look_again", lambda machine, _: machine.pausing.replace_mute(50)
    )
    world = await worlds()
    client = await world.connect()
    await client.ask(heartbeat(1))
    (driver,) = world.drivers
    driver.machine.pausing.mute(20_000)
    driver.look()
    client.send(heartbeat(2))
    began = asyncio.get_running_loop().time()

    world.gateway.look_again()

    assert await client.frame() == heartbeat_answer(2)
    assert asyncio.get_running_loop().time() - began >= 0.045


async def test_a_connection_that_has_ended_meanwhile_is_not_looked_at(
    worlds: Worlds, looked: Looked
) -> None:
    world = await worlds()
    for _ in range(2):
        await world.connect()
    await until(lambda: world.open_connections == 2)
    gone, here = world.drivers

    world.gateway.look_again()
    gone.close("", by="client")
    await until(lambda: looked)

    assert looked == [here.machine]


async def test_another_factor_looks_only_at_who_is_kept_back(
    worlds: Worlds, looked: Looked
) -> None:
    world = await worlds()
    for _ in range(3):
        await world.connect()
    await until(lambda: world.open_connections == 3)
    _, kept_back, _ = world.drivers
    kept_back.machine.pausing.mute(20_000)

    world.gateway.look_again_at_paused()
    await until(lambda: looked)

    assert looked == [kept_back.machine]


async def test_thousands_of_connections_are_looked_at_some_at_a_time(worlds: Worlds) -> None:
    world = await worlds()
    order = take_places(world, 950)
    looked_at: list[int] = []

    world.gateway.look_again()
    while len(order) < 950:
        await asyncio.sleep(0)
        looked_at.append(len(order))
    world.gateway._places._taken.clear()

    assert looked_at == [200, 400, 600, 800, 950]


async def test_who_waits_for_a_look_keeps_the_place_when_another_is_asked_for(
    worlds: Worlds,
) -> None:
    world = await worlds()
    order = take_places(world, 500)

    world.gateway.look_again()
    await asyncio.sleep(0)
    world.gateway.look_again()
    await until(lambda: not world.gateway._to_look_again)
    world.gateway._places._taken.clear()

    assert order == [*range(500), *range(200)]


async def test_a_look_at_nobody_is_no_work(worlds: Worlds) -> None:
    world = await worlds()

    world.gateway.look_again()

    assert not world.gateway._to_look_again
