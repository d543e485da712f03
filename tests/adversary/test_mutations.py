"""Topic mutations that cannot be refused, or that are none by name: what holds is the mute behind them, and the charge."""

from tests.adversary.attacks.mutations import DEFAULT_PARTITIONS, PERMISSIVE_PARTITIONS
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


async def test_what_metadata_has_created_is_charged_as_by_a_broker(field: Field) -> None:
    attack = ATTACKS["creates_by_metadata"]

    plain = await field.run(attack, Way.BROKER, SECONDS)
    gated = await field.run(attack, Way.SAMPLED_RATE, SECONDS)

    # Kafka checks, then spends: the last topic is whole.
    assert DEFAULT_PARTITIONS <= gated.got.used <= 1.1 * plain.got.used + DEFAULT_PARTITIONS
    assert gated.charged()["ANONYMOUS"] >= gated.got.used
