"""Room and places that are taken and not used."""

import pytest
from tests.adversary.attacks.newcomers import CONNECTIONS_MAX
from tests.adversary.attacks.table import ATTACKS
from tests.adversary.field import Field
from tests.adversary.target import Way

SECONDS = 8.0


@pytest.mark.parametrize("name", ["announced_and_not_sent", "announced_and_sent_slowly"])
async def test_who_announces_much_does_not_keep_large_requests_of_others_waiting(
    field: Field, name: str
) -> None:
    found = await field.run(ATTACKS[name], Way.SAMPLED_RATE, SECONDS)

    # Who does not send is closed; who sends slowly is left, for others have room of their own.
    assert found.got.closed > 0 or name == "announced_and_sent_slowly"
    assert found.good.answers > 20
    assert found.good.reconnects == 0
    assert found.growth_mib is not None
    assert found.growth_mib < 100


@pytest.mark.parametrize("way", [Way.SAMPLED_RATE, Way.TOKEN_BUCKET])
async def test_connections_that_are_closed_in_a_mute_or_in_line_make_room_for_others(
    field: Field, way: Way
) -> None:
    found = await field.run(ATTACKS["closed_in_a_mute"], way, SECONDS)

    assert found.got.connections >= CONNECTIONS_MAX
    assert found.got.notes["newcomers_served"] > 0
    assert found.good.answers > 20
