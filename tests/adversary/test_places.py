"""Places that are taken: others get theirs all the same."""

import pytest
from tests.adversary.attacks.places import FILLING, NOT_HELD_MAX, PLACES, VALUE_BYTES
from tests.adversary.attacks.table import ATTACKS
from tests.adversary.field import Field
from tests.adversary.target import Way

SECONDS = 10.0
# Behind the moment in which the places are held: longer than anybody may be kept waiting.
FILLING_SECONDS = 5.0
GROWTH_MIB_MAX = 100
# Who is in line has sent two requests; one read may bring both, and then both are kept.
IN_LINE_GROWTH_MIB_MAX = 2 * VALUE_BYTES * PLACES / 2**20 + 50
# A few times as long as it takes on a busy machine; who is kept out waits for as long as the attack lasts.
SERVED_WITHIN_S = 4.0
# Who is connected already: longer than who is straight at the broker meanwhile, at the worst.
KEPT_WAITING_MS_MAX = 3_000


async def test_connections_that_were_closed_in_a_mute_keep_no_places(field: Field) -> None:
    found = await field.run(
        ATTACKS["closed_connections"], Way.SAMPLED_RATE, SECONDS, beside_gateway=True
    )

    assert found.got.connections > 2_000
    assert found.kept_waiting_ms < SERVED_WITHIN_S * 1000
    assert found.growth_mib is not None
    assert found.growth_mib < GROWTH_MIB_MAX


@pytest.mark.parametrize("way", [Way.SAMPLED_RATE, Way.TOKEN_BUCKET])
async def test_connections_that_are_closed_in_a_mute_or_in_line_make_room_for_others(
    field: Field, way: Way
) -> None:
    found = await field.run(ATTACKS["closed_in_a_mute"], way, SECONDS, beside_gateway=True)

    assert found.got.connections >= PLACES
    assert found.got.notes["newcomers_served"] > 0
    assert found.got.notes["newcomer_waited_s"] < SERVED_WITHIN_S
    assert found.kept_waiting_ms < KEPT_WAITING_MS_MAX


@pytest.mark.parametrize(
    ("name", "way"),
    [
        *((attack.name, Way.SAMPLED_RATE) for attack in FILLING),
        ("places_muted", Way.TOKEN_BUCKET),  # in line
    ],
)
async def test_who_takes_all_places_and_stays_keeps_nobody_out(
    field: Field, name: str, way: Way
) -> None:
    found = await field.run(ATTACKS[name], way, FILLING_SECONDS, beside_gateway=True)

    # All places were taken, and each newcomer was served at once, on the connection that it had made.
    assert found.got.notes.get("held_at_most", PLACES) >= PLACES - NOT_HELD_MAX
    assert found.got.connections > PLACES
    if name == "places_at_work":
        # The machine is taken by 400 clients that ask without a pause: an answer takes each of them some 0.3 s,
        # so a newcomer's login and request may come to more than 1 s, at its place as it is.
        assert found.good.answers > 5
        assert found.good.p50_ms < SERVED_WITHIN_S * 1000
    else:
        assert found.good.answers > 10
        assert found.kept_waiting_ms < SERVED_WITHIN_S * 1000
    assert found.good.reconnects <= found.good.answers + 1
    assert found.growth_mib is not None
    growth_mib_max = IN_LINE_GROWTH_MIB_MAX if way is Way.TOKEN_BUCKET else GROWTH_MIB_MAX
    assert found.growth_mib < growth_mib_max
