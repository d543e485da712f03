"""Fetches that ask for more before what was read is paid for: on one connection, on many, on a new one each time."""

import pytest
from tests.adversary.attacks.fetches import MAX_BYTES
from tests.adversary.attacks.table import ATTACKS
from tests.adversary.field import Field
from tests.adversary.target import Way

SECONDS = 8.0
# What a full bucket holds and what may be owed, by default.
_AHEAD_S = 1.0 + 15.0


@pytest.mark.parametrize("name", ["pipelined_fetches", "connection_per_fetch", "parallel_fetches"])
async def test_fetches_give_no_more_than_the_plain_broker_gives(field: Field, name: str) -> None:
    attack = ATTACKS[name]

    plain = await field.run(attack, Way.BROKER, SECONDS)
    gated = await field.run(attack, Way.SAMPLED_RATE, SECONDS)

    assert plain.got.answers > 0
    assert gated.got.answers > 0
    assert gated.got.used <= 1.1 * plain.got.used + MAX_BYTES
    assert gated.good.answers > 50
    assert gated.growth_mib is not None
    assert gated.growth_mib < 100


@pytest.mark.parametrize("name", ["pipelined_fetches", "connection_per_fetch", "parallel_fetches"])
async def test_fetches_give_no_more_than_a_bucket_promises(field: Field, name: str) -> None:
    attack = ATTACKS[name]

    gated = await field.run(attack, Way.TOKEN_BUCKET, SECONDS)

    assert attack.quota is not None
    assert gated.got.answers > 0
    assert gated.got.used <= attack.quota * (gated.seconds + _AHEAD_S) + MAX_BYTES
    assert gated.good.answers > 50
