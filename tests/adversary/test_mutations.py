"""Topic mutations in a version that cannot be refused: the mute behind them is all that holds."""

from tests.adversary.attacks.mutations import PERMISSIVE_PARTITIONS
from tests.adversary.attacks.table import ATTACKS
from tests.adversary.field import Field
from tests.adversary.target import Way

SECONDS = 8.0


async def test_no_mutation_comes_through_in_the_middle_of_a_mute(field: Field) -> None:
    attack = ATTACKS["permissive_creates"]

    plain = await field.run(attack, Way.BROKER, SECONDS)
    gated = await field.run(attack, Way.SAMPLED_RATE, SECONDS)

    assert gated.got.answers >= 1
    assert gated.got.used <= 1.1 * plain.got.used
    assert gated.charged()["ANONYMOUS"] >= gated.got.used >= PERMISSIVE_PARTITIONS
