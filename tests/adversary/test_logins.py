"""Requests that come in one segment with a login, from a user who comes again and again."""

import pytest
from tests.adversary.attacks.logins import PARTITIONS, RECORD_BYTES, REFUSED_MIN
from tests.adversary.attacks.table import ATTACKS
from tests.adversary.field import Field
from tests.adversary.target import Way

SECONDS = 5.0
# By Kafka's arithmetic each new connection has one request: short, for that is hundreds of megabytes.
BESIDE_S = 2.0
# Of a new counter's first request, and of those that were on their way beside it.
ADMITTED_AT_ONCE = 4
# Hundreds where nothing else runs; who is kept waiting until the end has a few.
GOOD_ANSWERS_MIN = 20


@pytest.mark.parametrize(
    "name", ["produces_with_plain", "produces_with_scram", "produces_in_disguise"]
)
async def test_a_user_who_comes_again_has_no_new_quota(field: Field, name: str) -> None:
    found = await field.run(ATTACKS[name], Way.TOKEN_BUCKET, SECONDS)

    # The first request alone is worth a minute and a half of the quota.
    assert 0 < found.got.used <= 1.1 * RECORD_BYTES
    assert set(found.charged()) == {"mallory", "good"}
    assert found.good.answers > GOOD_ANSWERS_MIN


@pytest.mark.parametrize("name", ["produces_with_plain", "produces_with_scram"])
async def test_by_kafkas_arithmetic_it_has_no_more_than_the_plain_broker_gives(
    field: Field, name: str
) -> None:
    plain = await field.run(ATTACKS[name], Way.BROKER, BESIDE_S)
    gated = await field.run(ATTACKS[name], Way.SAMPLED_RATE, BESIDE_S)

    # For each connection: how many there are in a second is a matter of the machine.
    given, by_plain = (found.got.used / found.got.connections for found in (gated, plain))
    assert 0 < given <= 1.1 * by_plain
    charged = gated.charged()
    assert set(charged) == {"mallory", "good"}
    assert charged["mallory"] >= gated.got.used


async def test_topics_made_with_a_login_are_charged_to_who_logs_in(field: Field) -> None:
    attack = ATTACKS["creates_with_plain"]

    plain = await field.run(attack, Way.BROKER, BESIDE_S)
    gated = await field.run(attack, Way.SAMPLED_RATE, BESIDE_S)

    assert gated.got.used <= min(1.1 * plain.got.used, ADMITTED_AT_ONCE * PARTITIONS)
    assert gated.got.notes["refused"] >= REFUSED_MIN
    assert gated.charged()["mallory"] == gated.got.used
