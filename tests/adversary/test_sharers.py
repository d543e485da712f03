"""A quota that users share by their client id is spent by those who log in, and send what they announce."""

import pytest
from tests.adversary.attacks.sharers import ANSWERS_MIN, STRANGERS, TIMES_MIN
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
    assert found.got.answers > ANSWERS_MIN
    assert set(found.charged()) == {"good"}


@pytest.mark.parametrize(
    ("way", "answers_min"),
    # A bucket is charged at the head: its honest client waits until the rest is overdue, and then has its turns.
    [(Way.BROKER, ANSWERS_MIN), (Way.SAMPLED_RATE, ANSWERS_MIN), (Way.TOKEN_BUCKET, 20)],
)
async def test_who_announces_much_and_sends_little_spends_little_of_a_quota_that_users_share(
    field: Field, way: Way, answers_min: int
) -> None:
    found = await field.run(ATTACKS["announced_and_shared"], way, SECONDS)

    assert found.got.connections >= TIMES_MIN
    assert found.got.answers >= answers_min
    if way is Way.SAMPLED_RATE:
        assert set(found.charged()) == {"good"}
