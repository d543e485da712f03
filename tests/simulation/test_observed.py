"""Whoever watches moves nothing: worlds in which everything is looked at all the time go as they go unseen."""

from math import isnan

import pytest
from tests.simulation.world import World

from kvota.engine.reading import PEEKED, peek_lane, read_lane
from kvota.model.quota_type import CONFIGURABLE_TYPES
from kvota.session.explaining import explain

pytestmark = pytest.mark.timeout(120)

SEEDS = range(25)


class ObservedWorld(World):
    """Each time that something has happened all counters and connections are looked at, and clients explained."""

    looks = 0

    def _check_now(self) -> None:
        super()._check_now()
        cluster = self.cluster
        engine, settings, clock = cluster.engine, cluster.shared.settings, cluster.clock
        # Now, and at times when samples have expired that nobody has touched since.
        for now_ms in (clock.now_ms(), clock.now_ms() + 11_000):
            for quota_type in CONFIGURABLE_TYPES:
                for lane in engine.counters.of_type(quota_type):
                    reading = read_lane(lane, now_ms)
                    # What a scrape shows is what status and explain show.
                    of_reading = [getattr(reading, name) for name in PEEKED]
                    peeked = [None if isnan(one) else one for one in peek_lane(lane, now_ms)]
                    assert peeked == of_reading
                    self.looks += 1
            for user, client_id in (("alice", "app"), ("bob", "id-3"), ("nobody", "")):
                explain(engine, settings, user, client_id, now_ms)
        for relay in self.relays:
            relay.machine.lanes()
            relay.machine.pausing.mute_left_ms(clock.monotonic_ms(), clock.now_us())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_world_goes_the_same_way_whether_it_is_watched_or_not(seed: int) -> None:
    unseen, seen = World(seed), ObservedWorld(seed)
    unseen.run()
    seen.run()

    assert seen.transcript() == unseen.transcript()


def test_worlds_are_watched() -> None:
    world = ObservedWorld(1)
    world.run()

    assert world.looks > 100
