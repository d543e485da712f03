"""Requests that cost many minutes of their quota, from a client that does not wait as it is told."""

import pytest
from tests.adversary.attacks.produces import LARGE_BYTES
from tests.adversary.attacks.table import ATTACKS
from tests.adversary.field import Field
from tests.adversary.target import Way

SECONDS = 9.0


@pytest.mark.parametrize("way", [Way.SAMPLED_RATE, Way.TOKEN_BUCKET])
async def test_no_request_comes_through_in_the_middle_of_a_mute(field: Field, way: Way) -> None:
    attack = ATTACKS["large_produces_short_mutes"]

    plain = await field.run(attack, Way.BROKER, SECONDS)
    gated = await field.run(attack, way, SECONDS)

    assert plain.got.answers >= 1
    assert gated.got.answers >= 1
    assert gated.got.used <= 1.1 * plain.got.used
    assert gated.got.used < 2 * LARGE_BYTES
