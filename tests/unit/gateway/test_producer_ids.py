"""The quota on producer ids on a gateway with sockets: what an observer sees, and who has left a mute."""

import asyncio
import logging

import pytest
from tests.unit.gateway.world import Worlds, until

from kvota.gateway.producer_id_glancing import SHOWN_MAX
from kvota.metrics.counter_key import CounterKey
from kvota.model.client_quotas import PRODUCER_IDS_KEY, KeyChange
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import CLUSTER_NODE_ID, QuotaType
from kvota.testing import frames
from kvota.testing.producer_frames import Of, of_producer
from kvota.testing.stage import ALL_TYPES

EVERYBODY = KeyChange(QuotaEntity(user=DEFAULT), PRODUCER_IDS_KEY, 1.0)
COUNTED = ALL_TYPES | {QuotaType.PRODUCER_ID}
KEY = CounterKey(QuotaType.PRODUCER_ID, "user=ANONYMOUS", CLUSTER_NODE_ID)


async def test_an_observer_sees_ids_and_who_asks_for_them(worlds: Worlds) -> None:
    world = await worlds(enforced=COUNTED)
    world.gateway.shared.change_producer_id_rates([EVERYBODY])
    client = await world.connect(1)
    client.send(frames.request(22, 4))
    await client.frame()
    await client.ask(of_producer(Of(1000)))
    await client.ask(of_producer(Of(2000)))

    future = world.gateway.glance([KEY], uses=False)
    seen = await asyncio.wait_for(asyncio.wrap_future(future), 10)

    limit, rate, tokens, _, throttle_ms, _ = seen.peeks
    assert (limit, tokens) == (pytest.approx(1 / 3600), pytest.approx(0, abs=0.01))
    assert rate > 0
    assert throttle_ms > 3_500_000
    ids = seen.producer_ids
    assert (ids.users, dict(ids.distinct_ids), ids.refused_partitions) == (1, {"ANONYMOUS": 1}, 1)
    assert [(one.user, one.idempotent, one.transactional) for one in ids.inits] == [
        ("ANONYMOUS", 1, 0)
    ]
    assert seen.muted == {QuotaType.PRODUCER_ID: 1}
    in_all = await asyncio.wrap_future(world.gateway.glance([], uses=True))
    assert in_all.producer_ids.distinct_ids_in_all == 1


async def test_of_many_users_so_many_are_shown(worlds: Worlds) -> None:
    world = await worlds(enforced=COUNTED)
    shared = world.gateway.shared
    now_ms = 1_700_000_000_000
    for number in range(SHOWN_MAX + 100):
        shared.producer_ids.ids.admit(f"user {number}", 1.0, 1, now_ms)
        shared.init_producer_ids.add(f"user {number}", now_ms, is_transactional=False)

    keys = [CounterKey(QuotaType.PRODUCER_ID, "user=user%207", CLUSTER_NODE_ID)]
    seen = await asyncio.wrap_future(world.gateway.glance(keys, uses=False))

    assert list(seen.producer_ids.distinct_ids) == ["user 7"]
    assert len(seen.producer_ids.inits) == SHOWN_MAX
    assert seen.producer_ids.other_inits.idempotent == 100


async def test_what_was_sent_behind_a_refused_batch_does_not_go_on_without_its_client(
    worlds: Worlds,
) -> None:
    world = await worlds(enforced=COUNTED)
    world.gateway.shared.change_producer_id_rates([EVERYBODY])
    client = await world.connect(1)
    await client.ask(of_producer(Of(1000)))
    client.send(of_producer(Of(2000)) + of_producer(Of(1000, 1)))
    await client.frame()
    assert world.drivers
    client.writer.close()
    await until(lambda: not world.drivers)
    assert len(world.brokers[0].frames) == 1


async def test_a_storm_of_requests_for_producer_ids_is_said(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = await worlds(enforced=COUNTED)
    world.gateway.shared.change_producer_id_rates([EVERYBODY])
    client = await world.connect(1)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            client.send(frames.request(22, 4))
            await client.frame()
        await until(lambda: "has asked for 3 producer ids within a minute" in caplog.text)
