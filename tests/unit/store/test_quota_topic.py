"""The topic of quotas, looked for at brokers of which one hangs."""

import asyncio

import pytest
from tests.unit.admin.brokers import two_brokers

from kvota.client import Cluster
from kvota.model.errors import UnreachableError
from kvota.store import quota_topic
from kvota.store.quota_topic import QuotaTopic


async def test_a_broker_that_hangs_costs_one_answers_time_and_then_another_one_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two_brokers() as brokers, asyncio.timeout(30):
        topic = QuotaTopic("quotas", lambda: Cluster(brokers.bootstrap_servers))
        assert not await topic.find()
        brokers.hung = {1}
        monkeypatch.setattr(quota_topic, "_ANSWER_S", 0.1)
        with pytest.raises(UnreachableError, match=r"has not answered metadata in 0\.1 s"):
            await topic.find()

        monkeypatch.undo()
        assert not await topic.find()
        await topic.close()
