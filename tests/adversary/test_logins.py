"""Requests that come in one segment with a login, from a user who comes again and again."""

import pytest
from tests.adversary.attacks.logins import PARTITIONS, RECORD_BYTES
from tests.adversary.attacks.table import ATTACKS
from tests.adversary.field import Field
from tests.adversary.target import Way

SECONDS = 5.0
# Of a new counter's first request, and of those that were on their way beside it.
ADMITTED_AT_ONCE = 4


@pytest.mark.parametrize(
    "name", ["produces_with_plain", "produces_with_scram", "produces_in_disguise"]
)
async def test_a_user_who_comes_again_has_no_new_quota(field: Field, name: str) -> None:
    found = await field.run(ATTACKS[name], Way.TOKEN_BUCKET, SECONDS)

    # The first request alone is worth a minute and a half of the quota.
    assert 0 < found.got.used <= 1.1 * RECORD_BYTES
    assert set(found.charged()) == {"mallory", "good"}
    assert found.good.answers > 50


async def test_topics_made_with_a_login_are_charged_to_who_logs_in(field: Field) -> None:
    found = await field.run(ATTACKS["creates_with_plain"], Way.SAMPLED_RATE, SECONDS)

    assert found.got.used <= ADMITTED_AT_ONCE * PARTITIONS
    assert found.got.notes["refused"] > 10
    assert found.charged()["mallory"] == found.got.used
