"""Names and parts in numbers that nobody needs take neither memory nor the time of others."""

import pytest
from tests.adversary.attacks.floods import NAMES_AT_ONCE, NAMING
from tests.adversary.attacks.table import ATTACKS
from tests.adversary.field import Field
from tests.adversary.target import Way

SECONDS = 10.0
DELETING_SECONDS = 6.0
GROWTH_MIB_MAX = 300
# Longer than who is straight at the broker meanwhile, at the worst.
KEPT_WAITING_MS_MAX = 3_000


@pytest.mark.parametrize("way", [Way.SAMPLED_RATE, Way.TOKEN_BUCKET])
async def test_a_flood_of_client_ids_takes_little_memory(field: Field, way: Way) -> None:
    found = await field.run(ATTACKS["client_ids"], way, SECONDS, beside_gateway=True)

    assert found.got.answers > NAMING * NAMES_AT_ONCE
    assert found.got.closed == 0
    assert found.growth_mib is not None
    assert found.growth_mib < GROWTH_MIB_MAX
    assert found.good.reconnects == 0
    assert found.kept_waiting_ms < KEPT_WAITING_MS_MAX


async def test_produces_of_300_000_partitions_are_answered_and_not_kept(field: Field) -> None:
    found = await field.run(
        ATTACKS["many_partitions"], Way.SAMPLED_RATE, SECONDS, beside_gateway=True
    )

    assert found.got.answers > 0
    assert found.got.closed == 0
    assert found.growth_mib is not None
    assert found.growth_mib < GROWTH_MIB_MAX
    assert found.good.reconnects == 0
    assert found.kept_waiting_ms < KEPT_WAITING_MS_MAX


async def test_large_mutations_of_300_connections_take_little_memory_and_keep_nobody_waiting(
    field: Field,
) -> None:
    found = await field.run(
        ATTACKS["large_deletes"], Way.SAMPLED_RATE, DELETING_SECONDS, beside_gateway=True
    )

    assert found.got.answers > 0
    assert found.growth_mib is not None
    assert found.growth_mib < GROWTH_MIB_MAX
    assert found.good.reconnects == 0
    assert found.kept_waiting_ms < KEPT_WAITING_MS_MAX
