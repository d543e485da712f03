"""Worlds with quotas on time: in force every invariant holds, in shadow mode nothing else goes another way."""

import pytest
from tests.simulation.request_time import REQUEST, RequestTimes
from tests.simulation.world import World

pytestmark = pytest.mark.timeout(120)

SEEDS = range(40)
SHADOWED = range(20)


def timed(seed: int, *, enforced: bool) -> World:
    return World(seed, RequestTimes(seed, enforced=enforced))


def all_else(world: World) -> list[object]:
    """What has happened, but for rows of time and the numbers that they take."""
    rows = [row for row in world.rows.rows if row.memo.quota_type is not REQUEST]
    rank = {seq: place for place, seq in enumerate(sorted(row.seq for row in rows))}
    seen: list[object] = [row._replace(seq=rank[row.seq]).columns() for row in rows]
    for relay in world.relays:
        watch = relay.watch
        ups = [(up.at_ms, up.size) for up in watch.upward]
        seen += [bytes(watch.to_client), ups, [mute[1:] for mute in watch.mutes]]
    return seen


@pytest.mark.parametrize("seed", SEEDS)
def test_every_invariant_holds_where_time_is_charged(seed: int) -> None:
    timed(seed, enforced=True).run()


@pytest.mark.parametrize("seed", SHADOWED)
def test_in_shadow_mode_all_else_goes_the_same_way(seed: int) -> None:
    untimed, shadowed = World(seed), timed(seed, enforced=False)
    untimed.run()
    shadowed.run()
    if untimed.asks_a_callback:
        return  # which is asked about time, too, and what it is asked takes time

    assert all_else(shadowed) == all_else(untimed)


def test_in_these_worlds_time_is_charged_and_holds_people_back() -> None:
    rows = []
    for seed in SEEDS[:12]:
        world = timed(seed, enforced=True)
        world.run()
        rows += [row for row in world.rows.rows if row.memo.quota_type is REQUEST]
    assert sum(row.throttle_ms > 0 and row.memo.enforced for row in rows) > 50
    assert sum(row.throttle_ms == 0 for row in rows) > 50
