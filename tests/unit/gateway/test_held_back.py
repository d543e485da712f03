"""Connections over their address's rate: kept unread for a while, then closed; in shadow mode let in."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.gateway.world import World, heartbeat, heartbeat_answer

from kvota.gateway import held_back
from kvota.gateway.settings import ConnectionRateSettings
from kvota.model.client_quotas import ClientQuotas
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_window import QuotaWindow

Worlds = Callable[..., Awaitable[World]]
QUOTAS = ClientQuotas({QuotaEntity(ip=DEFAULT): {"connection_creation_rate": 2.0}})
# Two connections at once; whoever is over is kept for 100 ms at most.
WINDOW = QuotaWindow(11, 100)


@pytest.fixture(autouse=True)
def no_second_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes to connect: so the third is one too many."""
    now_ns = time.time_ns()
    monkeypatch.setattr("kvota.gateway.client_side.time_ns", lambda: now_ns)


def limited(world: World, *, is_enforced: bool) -> None:
    world.store.quotas = QUOTAS
    world.gateway.put_in_force(
        ConfiguredQuotas(),
        enforced=frozenset(),
        windows={},
        buckets={},
        connection_rates=ConnectionRateSettings(window=WINDOW, is_enforced=is_enforced),
    )


async def test_who_comes_too_fast_is_closed_and_others_go_on(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds()
    limited(world, is_enforced=True)
    clients = [await world.connect() for _ in range(5)]
    for client in clients:
        client.send(heartbeat(1))

    assert [await client.frame() for client in clients[:2]] == [heartbeat_answer(1)] * 2
    for client in clients[2:]:
        assert await client.rest() == b""
    assert len(world.drivers) == 2
    assert "may begin 2 connections a second (connection_creation_rate)" in caplog.text


async def test_in_shadow_mode_all_are_let_in_and_it_is_said(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds()
    limited(world, is_enforced=False)

    for client in [await world.connect() for _ in range(5)]:
        assert await client.ask(heartbeat(1)) == heartbeat_answer(1)

    assert "would be refused" in caplog.text


async def test_of_very_many_the_rest_is_closed_at_once(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_back, "HELD_MAX", 0)
    world = await worlds()
    limited(world, is_enforced=True)
    begin = asyncio.get_running_loop().time()
    clients = [await world.connect() for _ in range(5)]

    for client in clients[2:]:
        assert await client.rest() == b""
    assert asyncio.get_running_loop().time() - begin < 5  # not a sample later than it must


async def test_the_end_of_the_gateway_waits_for_none_of_them(worlds: Worlds) -> None:
    world = await worlds()
    limited(world, is_enforced=True)
    clients = [await world.connect() for _ in range(4)]

    await world.stop()

    for client in clients:
        assert await client.rest() == b""
