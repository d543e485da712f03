"""A user who comes through the bootstrap port and through the node's port has one quota, not two.

The gateways of this folder bootstrap at ``localhost``, and the broker advertises 127.0.0.1.
"""

import pytest
from tests.adversary.attacks.doors import CONNECTIONS, REQUEST_BYTES
from tests.adversary.attacks.table import ATTACKS
from tests.adversary.field import Field
from tests.adversary.target import Way

SECONDS = 8.0


@pytest.mark.parametrize("way", [Way.SAMPLED_RATE, Way.TOKEN_BUCKET])
@pytest.mark.parametrize("name", ["two_doors", "two_doors_asked"])
async def test_two_doors_are_one_quota(field: Field, name: str, way: Way) -> None:
    attack = ATTACKS[name]

    plain = await field.run(attack, Way.BROKER, SECONDS)
    gated = await field.run(attack, way, SECONDS)

    assert plain.got.answers > CONNECTIONS
    assert gated.got.answers > CONNECTIONS
    assert gated.got.used <= 1.1 * plain.got.used + CONNECTIONS * REQUEST_BYTES
