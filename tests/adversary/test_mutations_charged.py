"""Mutations of a topic through two nodes: before Metadata has heard of it, and two at a time."""

from tests.adversary.attacks.mutations import (
    ANSWERS_MIN,
    AT_ONCE,
    CREATED_PARTITIONS,
    GROWN,
    GROWTH_ANSWERS_MIN,
)
from tests.adversary.attacks.table import ATTACKS
from tests.adversary.field import Field
from tests.adversary.target import Way

SECONDS = 8.0


async def test_every_mutation_that_succeeds_is_charged_once(field_of_two: Field) -> None:
    found = await field_of_two.run(ATTACKS["creates_and_deletes"], Way.SAMPLED_RATE, SECONDS)

    assert found.got.answers >= ANSWERS_MIN
    assert found.got.notes == {}
    assert found.carried_out is not None
    charged = found.charged()["ANONYMOUS"]
    # What was on its way at the end has been charged, carried out or not.
    done = found.carried_out.partitions
    assert found.got.used <= done <= charged <= done + AT_ONCE * CREATED_PARTITIONS


async def test_of_two_mutations_at_once_each_is_charged_whichever_is_answered_first(
    field_of_two: Field,
) -> None:
    found = await field_of_two.run(ATTACKS["growth_beside_deletion"], Way.SAMPLED_RATE, SECONDS)

    assert found.got.answers >= GROWTH_ANSWERS_MIN
    assert found.got.notes[GROWN] > 0
    assert found.carried_out is not None
    assert found.got.used <= found.carried_out.partitions <= found.charged()["ANONYMOUS"]
