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
# A topic behind which 30 partitions are missing: for longer than a busy broker takes to create it.
BIG, OWED_MS = AT_ONCE + 29, 15_000
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
        async with asyncio.timeout(60):
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
    await listed(admin, *names)


async def test_without_retry_the_wait_is_told_and_the_others_are_created(
    admin_of: dict[str, AdminClient], place: str
) -> None:
    admin = admin_of["refused"]
    first, second, third = (f"refused-{uuid4().hex[:8]}" for _ in range(3))
    whole = [NewTopic(first, BIG, 1), NewTopic(second, 1, 1)]
    begin_s = time.monotonic()
    made = await admin.create_topics(whole, retry_on_quota_violation=False)
    took_ms = (time.monotonic() - begin_s) * 1000

    # The bucket had 22, so it lacks 30, less what has come meanwhile.
    refused = made.exception(second)
    assert isinstance(refused, ThrottlingQuotaExceededError)
    assert OWED_MS - took_ms - 500 < refused.throttle_time_ms <= OWED_MS
    assert list(made.values) == [first]

    late = await admin.create_topics([NewTopic(third, 1, 1)], timeout_ms=300)
    assert late.exception(third) is not None
    assert not {second, third} & await listed(admin_of["mixed"], first)


async def test_when_time_is_up_the_rest_of_the_wait_is_told(
    admin_of: dict[str, AdminClient], place: str
) -> None:
    admin = admin_of["late"]
    first, second = (f"late-{uuid4().hex[:8]}" for _ in range(2))
    whole = [NewTopic(first, BIG, 1), NewTopic(second, 1, 1)]
    begin_s = time.monotonic()
    made = await admin.create_topics(whole, timeout_ms=8_000)
    took_ms = (time.monotonic() - begin_s) * 1000

    # Of what is owed most of 8 s is over: it takes a busy broker that long neither to create the first one.
    refused = made.exception(second)
    assert isinstance(refused, ThrottlingQuotaExceededError)
    assert OWED_MS - took_ms - 500 < refused.throttle_time_ms < OWED_MS - 200
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


async def listed(admin: AdminClient, *names: str) -> set[str]:
    """All topics that there are, when the broker has heard of these."""
    async with asyncio.timeout(60):
        while not set(names) <= set(there := await admin.list_topics()):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        return set(there)


async def known(admin: AdminClient, *names: str) -> None:
    """A broker follows its controller after a moment."""
    async with asyncio.timeout(60):
        while (await admin.describe_topics(names)).errors:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
