"""Many Produces on their way at once, from connections that ignore the throttle."""

import pytest
from tests.adversary.attacks.produces import CONNECTIONS, PIPELINED_BYTES
from tests.adversary.attacks.table import ATTACKS
from tests.adversary.field import Field
from tests.adversary.target import Way

SECONDS = 8.0
# What a connection may be given before its first mute, and at the end of each: one request.
_REQUESTS_BYTES = CONNECTIONS * PIPELINED_BYTES


@pytest.mark.parametrize("way", [Way.SAMPLED_RATE, Way.TOKEN_BUCKET])
async def test_pipelining_gives_no_more_than_the_plain_broker_gives(field: Field, way: Way) -> None:
    attack = ATTACKS["pipelined_produces"]

    plain = await field.run(attack, Way.BROKER, SECONDS)
    gated = await field.run(attack, way, SECONDS)

    assert plain.got.answers > CONNECTIONS
    assert gated.got.answers > CONNECTIONS
    assert gated.got.used <= 1.1 * plain.got.used + _REQUESTS_BYTES
    assert gated.good.answers > 50
    assert gated.growth_mib is not None
    assert gated.growth_mib < 100
