"""A thousand simulated worlds; ``tests.simulation.world`` says what is drawn and what is checked."""

import pytest
from tests.simulation.world import World


@pytest.mark.timeout(120)
def test_every_world_keeps_every_invariant(seeds: range) -> None:
    for seed in seeds:
        try:
            World(seed).run()
        except Exception as error:
            error.add_note(f"to repeat it: pytest tests/simulation --seed {seed}")
            raise
