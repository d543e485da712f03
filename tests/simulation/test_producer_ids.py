"""Many worlds of producers and crash loops in front of two gateways: nothing reported as delivered is lost, and the rate holds."""

import pytest
from tests.simulation.producer_ids import World

WORLDS = 150


@pytest.mark.timeout(120)
def test_what_is_reported_as_delivered_is_stored_and_the_rate_holds() -> None:
    refusals = restarts = 0
    for seed in range(WORLDS):
        world = World(seed)
        try:
            world.run()
        except Exception as error:
            error.add_note(f"tests.simulation.producer_ids.World({seed})")
            raise
        refusals, restarts = refusals + world.refusals, restarts + world.restarts
    assert refusals > 10 * WORLDS
    assert restarts > WORLDS
