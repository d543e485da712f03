"""Brokers follow their controller, and act on what they have read a little after they tell of it: waits until they do."""

import asyncio
import time
from uuid import uuid4

from tests.integration.raw_client import RawClient
from tests.unit.quota_api.written import alteration, altered

from kvota.admin import AdminClient, OffsetSpec, TopicPartition
from kvota.localkafka import LocalKafka
from kvota.testing.frames import METADATA, request, throttle_of

_IN_FORCE_S = 60.0
# Every request is over it.
_NOTHING = {"request_percentage": 1e-7}
_METADATA_VERSION = 8


def await_served(kafka: LocalKafka, topic: str, partitions: int = 1) -> None:
    """Until the leaders of its partitions take requests for them; brokers name a leader before it has made its log."""
    wanted = {TopicPartition(topic, number): OffsetSpec.LATEST for number in range(partitions)}

    async def ask() -> None:
        async with AdminClient(kafka.bootstrap_servers) as admin:
            (await admin.list_offsets(wanted)).all()

    asyncio.run(ask())


def await_quotas_in_force(address: tuple[str, int]) -> None:
    """Until a broker goes by all quotas that it describes.

    It describes them before it puts them in force, and does that in the order in which they were altered: one that is
    altered now is in force last.
    """
    client_id = f"probe-{uuid4().hex[:8]}"
    _alter(address, client_id, _NOTHING)
    try:
        end = time.monotonic() + _IN_FORCE_S
        while not is_throttled(address, client_id):
            assert time.monotonic() < end, f"{address}: request_percentage holds nobody back"
            time.sleep(0.05)
    finally:
        _alter(address, client_id, dict.fromkeys(_NOTHING))


def _alter(address: tuple[str, int], client_id: str, values: dict[str, float | None]) -> None:
    with RawClient(address) as client:
        client.send(alteration(({"client-id": client_id}, values)))
        assert [code for _, code, _ in altered(client.frame())] == [0]


def is_throttled(address: tuple[str, int], client_id: str) -> bool:
    """Whether a broker, or a gateway, holds back a request that this client sends now."""
    with RawClient(address) as client:
        client.send(request(METADATA, _METADATA_VERSION, client=client_id, topics=()))
        return throttle_of(client.frame(), METADATA, _METADATA_VERSION) > 0
