"""The admin client under ``controller_mutation_rate``: of a broker itself, and of a gateway before it (KIP-599)."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import pytest
from tests.integration.tapped_gateway import tapped_gateway

from kvota.admin import (
    AdminClient,
    ClientQuotaAlteration,
    NewPartitions,
    NewTopic,
    QuotaEntity,
    ThrottlingQuotaExceededError,
)
from kvota.localkafka import LocalKafka

# Eleven windows of a second are kept, so 22 partitions at once; the topic that makes it less than 0 is let through.
RATE, AT_ONCE = 2.0, 23
KEY = "controller_mutation_rate"
# Each case has a client of its own, so a full bucket.
CASES = ("waits", "refused", "late", "mixed")


def client_id(place: str, case: str) -> str:
    return f"admin-{place}-{case}"


@pytest.fixture(scope="module")
def servers(
    kafka: LocalKafka, kafka_3_9: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Where to ask, with the same quotas in force: two brokers, and a gateway before the first."""
    quotas = "".join(
        f'[[quota]]\nclient_id = "{client_id("gateway", case)}"\n{KEY} = {RATE}\n' for case in CASES
    )
    with tapped_gateway(tmp_path_factory.mktemp("admin"), kafka, quotas=quotas) as tapped:
        found = {
            "kafka": kafka.bootstrap_servers,
            "kafka_3_9": kafka_3_9.bootstrap_servers,
            "gateway": tapped.process.bootstrap_servers,
        }
        for place in ("kafka", "kafka_3_9"):
            asyncio.run(limit(place, found[place]))
        yield found


async def limit(place: str, bootstrap_servers: str) -> None:
    entities = {QuotaEntity(client_id=client_id(place, case)) for case in CASES}
    async with AdminClient(bootstrap_servers) as admin:
        alterations = [ClientQuotaAlteration(entity, {KEY: RATE}) for entity in entities]
        (await admin.alter_client_quotas(alterations)).all()
        async with asyncio.timeout(20):
            while not entities <= set(await admin.describe_client_quotas()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@pytest.fixture(params=["kafka", "kafka_3_9", "gateway"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def admin_of(servers: dict[str, str], place: str) -> AsyncIterator[dict[str, AdminClient]]:
    clients = {
        case: AdminClient(servers[place], client_id=client_id(place, case)) for case in CASES
    }
    yield clients
    for client in clients.values():
        await client.close()


async def test_a_burst_is_created_as_its_bucket_allows(
    admin_of: dict[str, AdminClient], place: str
) -> None:
    admin = admin_of["waits"]
    names = [f"burst-{uuid4().hex[:8]}" for _ in range(AT_ONCE + 4)]
    begin = time.monotonic()
    made = await admin.create_topics([NewTopic(name, 1, 1) for name in names])
    took_s = time.monotonic() - begin

    assert list(made.all()) == names
    assert took_s >= 4 / RATE - 0.05
    assert set(names) <= set(await admin.list_topics())


async def test_without_retry_the_wait_is_told_and_the_others_are_created(
    admin_of: dict[str, AdminClient], place: str
) -> None:
    admin = admin_of["refused"]
    first, second, third = (f"refused-{uuid4().hex[:8]}" for _ in range(3))
    whole = [NewTopic(first, AT_ONCE + 9, 1), NewTopic(second, 1, 1)]
    made = await admin.create_topics(whole, retry_on_quota_violation=False)

    # The bucket had 22, so it lacks 10, less what has come meanwhile.
    refused = made.exception(second)
    assert isinstance(refused, ThrottlingQuotaExceededError)
    assert 10 / RATE * 1000 - 2_000 < refused.throttle_time_ms <= 10 / RATE * 1000
    assert list(made.values) == [first]

    late = await admin.create_topics([NewTopic(third, 1, 1)], timeout_ms=300)
    assert late.exception(third) is not None
    known = set(await admin_of["mixed"].list_topics())
    assert first in known
    assert not {second, third} & known


async def test_when_time_is_up_the_rest_of_the_wait_is_told(
    admin_of: dict[str, AdminClient], place: str
) -> None:
    admin = admin_of["late"]
    first, second = (f"late-{uuid4().hex[:8]}" for _ in range(2))
    whole = [NewTopic(first, AT_ONCE + 19, 1), NewTopic(second, 1, 1)]
    made = await admin.create_topics(whole, timeout_ms=1_500)

    # It lacks 20, so ten seconds from the answer on, of which most of 1.5 s is over.
    refused = made.exception(second)
    assert isinstance(refused, ThrottlingQuotaExceededError)
    assert 10 / RATE * 1000 < refused.throttle_time_ms < 20 / RATE * 1000 - 200
    assert list(made.values) == [first]


async def test_growths_and_deletions_wait_for_the_same_bucket(
    admin_of: dict[str, AdminClient], place: str
) -> None:
    admin = admin_of["mixed"]
    big, small = (f"mixed-{uuid4().hex[:8]}" for _ in range(2))
    (await admin.create_topics([NewTopic(big, 1, 1), NewTopic(small, 1, 1)])).all()
    await known(admin, big, small)
    begin = time.monotonic()
    (await admin.create_partitions({big: NewPartitions(AT_ONCE)})).all()  # 22 more: 2 too many
    (await admin.create_partitions({small: NewPartitions(2)})).all()
    (await admin.delete_topics([small])).all()

    assert time.monotonic() - begin >= 1 / RATE


async def known(admin: AdminClient, *names: str) -> None:
    """A broker follows its controller after a moment."""
    async with asyncio.timeout(20):
        while (await admin.describe_topics(names)).errors:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
