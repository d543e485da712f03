"""Answers that nobody takes wait in the broker or in the sockets, not in the gateway's memory."""

import pytest
from tests.adversary.attacks.table import ATTACKS
from tests.adversary.attacks.unread import CONNECTIONS
from tests.adversary.field import Field
from tests.adversary.target import Way

SECONDS = 10.0
# Of each connection 16 KiB and one read, or 200 requests that are due.
GROWTH_MIB_MAX = 130


@pytest.mark.parametrize("name", ["unread_answers", "behind_a_long_poll"])
async def test_who_takes_no_answers_takes_little_memory(field: Field, name: str) -> None:
    found = await field.run(ATTACKS[name], Way.SAMPLED_RATE, SECONDS)

    assert found.got.answers == CONNECTIONS
    assert found.growth_mib is not None
    assert found.growth_mib < GROWTH_MIB_MAX
    assert found.good.answers > 50
    assert found.good.reconnects == 0
