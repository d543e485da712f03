"""Room that is announced and not used: others get theirs all the same."""

import pytest
from tests.adversary.attacks.table import ATTACKS
from tests.adversary.field import Field
from tests.adversary.target import Way

SECONDS = 8.0
# Longer than who is straight at the broker meanwhile, at the worst.
KEPT_WAITING_MS_MAX = 3_000


@pytest.mark.parametrize("name", ["announced_and_not_sent", "announced_and_sent_slowly"])
async def test_who_announces_much_does_not_keep_large_requests_of_others_waiting(
    field: Field, name: str
) -> None:
    found = await field.run(ATTACKS[name], Way.SAMPLED_RATE, SECONDS, beside_gateway=True)

    # Who does not send is closed; who sends slowly is left, for others have room of their own.
    assert found.got.closed > 0 or name == "announced_and_sent_slowly"
    assert found.good.reconnects == 0
    assert found.kept_waiting_ms < KEPT_WAITING_MS_MAX
    assert found.growth_mib is not None
    assert found.growth_mib < 100
