"""A thousand simulated worlds; ``tests.simulation.world`` says what is drawn and what is checked."""

import pytest
from tests.simulation.world import World

# Chosen for what happens in them: logins, mutations, mutes, quotas that change.
REPEATED = (3, 8, 145, 913)


@pytest.mark.timeout(120)
def test_every_world_keeps_every_invariant(seeds: range) -> None:
    for seed in seeds:
        try:
            World(seed).run()
        except Exception as error:
            error.add_note(f"to repeat it: pytest tests/simulation --seed {seed}")
            raise


@pytest.mark.parametrize("seed", REPEATED)
def test_a_seed_repeats_exactly(seed: int) -> None:
    first, again = World(seed), World(seed)
    first.run()
    again.run()

    assert first.rows.rows
    assert again.transcript() == first.transcript()
