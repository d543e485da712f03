"""Client quotas by the admin client, on real clusters."""

import asyncio
from collections.abc import Callable

import pytest

from kvota.admin import (
    DEFAULT,
    AdminClient,
    BrokerError,
    ClientQuotaAlteration,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    QuotaEntity,
    UsageError,
)
from kvota.localkafka import LocalKafka

Quotas = dict[QuotaEntity, dict[str, float]]

RATE = "controller_mutation_rate"
ALICE, DEFAULT_USER = QuotaEntity(user="admin-alice"), QuotaEntity(user=DEFAULT)
ALICE_TOOL = QuotaEntity(user="admin-alice", client_id=DEFAULT)
ADDRESS = QuotaEntity(ip="10.1.2.3")


@pytest.mark.parametrize("version", ["kafka", "kafka_3_9"])
async def test_quotas_are_set_found_and_removed(
    request: pytest.FixtureRequest, version: str
) -> None:
    kafka: LocalKafka = request.getfixturevalue(version)
    user = ClientQuotaFilterComponent.of_entity("user", "admin-alice")
    default = ClientQuotaFilterComponent.of_default_entity("user")
    async with AdminClient(kafka.bootstrap_servers) as admin:
        made = await admin.alter_client_quotas(
            [
                ClientQuotaAlteration(ALICE, {RATE: 2.5, "producer_byte_rate": 1e6}),
                ClientQuotaAlteration(ALICE_TOOL, {RATE: 7.0}),
                ClientQuotaAlteration(DEFAULT_USER, {RATE: 1e9}),
                ClientQuotaAlteration(ADDRESS, {"connection_creation_rate": 12.0}),
            ]
        )
        assert list(made.all()) == [ALICE, ALICE_TOOL, DEFAULT_USER, ADDRESS]

        everything = await described(admin, lambda quotas: ADDRESS in quotas)
        assert everything[ALICE] == {RATE: 2.5, "producer_byte_rate": 1e6}
        assert everything[ADDRESS] == {"connection_creation_rate": 12.0}
        only = await admin.describe_client_quotas(ClientQuotaFilter.contains_only([user]))
        assert set(only) == {ALICE}
        also = await admin.describe_client_quotas(ClientQuotaFilter.contains([user]))
        assert set(also) == {ALICE, ALICE_TOOL}
        defaults = await admin.describe_client_quotas(ClientQuotaFilter.contains_only([default]))
        assert defaults == {DEFAULT_USER: {RATE: 1e9}}

        removal = [
            ClientQuotaAlteration(entity, dict.fromkeys(values))
            for entity, values in everything.items()
            if entity in {ALICE, ALICE_TOOL, DEFAULT_USER, ADDRESS}
        ]
        (await admin.alter_client_quotas(removal, validate_only=True)).all()
        assert ALICE in await admin.describe_client_quotas()
        (await admin.alter_client_quotas(removal)).all()
        gone = {ALICE, ALICE_TOOL, DEFAULT_USER, ADDRESS}
        await described(admin, lambda quotas: not gone & set(quotas))


async def test_each_entity_has_its_own_result(kafka: LocalKafka) -> None:
    other = QuotaEntity(client_id="admin-other")
    async with AdminClient(kafka.bootstrap_servers) as admin:
        results = await admin.alter_client_quotas(
            [
                ClientQuotaAlteration(ALICE, {"no_such_rate": 1.0}),
                ClientQuotaAlteration(other, {RATE: 3.0}),
            ]
        )

        assert list(results.values) == [other]
        refused = results.exception(ALICE)
        assert isinstance(refused, BrokerError)
        assert refused.code == 42
        assert "Invalid configuration key no_such_rate" in str(refused)
        assert "user-principal 'admin-alice'" in str(refused)
        with pytest.raises(BrokerError):
            results.all()
        (await admin.alter_client_quotas([ClientQuotaAlteration(other, {RATE: None})])).all()


async def test_an_entity_that_is_named_twice_alters_nothing(kafka: LocalKafka) -> None:
    twice = [ClientQuotaAlteration(ALICE, {RATE: rate}) for rate in (1.0, 2.0)]
    async with AdminClient(kafka.bootstrap_servers) as admin:
        with pytest.raises(UsageError, match="altered twice"):
            await admin.alter_client_quotas(twice)

        assert ALICE not in await admin.describe_client_quotas()


async def described(admin: AdminClient, is_there: Callable[[Quotas], bool]) -> Quotas:
    """A broker follows its controller after a moment."""
    async with asyncio.timeout(20):
        quotas = await admin.describe_client_quotas()
        while not is_there(quotas):
            await asyncio.sleep(0.05)
            quotas = await admin.describe_client_quotas()
    return quotas
