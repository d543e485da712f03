"""Who has not logged in spends nobody's quota, though he says the client id that has one."""

import pytest
from tests.adversary.attacks.strangers import STRANGERS
from tests.adversary.attacks.table import ATTACKS
from tests.adversary.field import Field
from tests.adversary.target import Way

SECONDS = 6.0


@pytest.mark.parametrize("way", [Way.SAMPLED_RATE, Way.TOKEN_BUCKET])
@pytest.mark.parametrize("name", ["strangers", "strangers_unanswered"])
async def test_strangers_spend_nothing_of_a_quota_that_users_share(
    field: Field, name: str, way: Way
) -> None:
    found = await field.run(ATTACKS[name], way, SECONDS)

    assert found.got.connections >= 2 * STRANGERS
    assert found.got.answers > 50
    assert set(found.charged()) == {"good"}
