"""Room and places that are taken and not used: others get theirs all the same."""

from tests.adversary.attacks.table import ATTACKS
from tests.adversary.field import Field
from tests.adversary.target import Way

SECONDS = 10.0


async def test_who_announces_much_and_sends_a_byte_now_and_then_keeps_nobody_waiting(
    field: Field,
) -> None:
    found = await field.run(ATTACKS["slow_announcers"], Way.SAMPLED_RATE, SECONDS)

    assert found.got.closed > 0
    assert found.good.answers > 20


async def test_connections_that_were_closed_in_a_mute_keep_no_places(field: Field) -> None:
    found = await field.run(ATTACKS["closed_connections"], Way.SAMPLED_RATE, SECONDS)

    assert found.got.connections > 2_000
    assert found.good.answers > 50
    assert found.growth_mib is not None
    assert found.growth_mib < 100
