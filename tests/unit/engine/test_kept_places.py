"""Places are kept for a time, and not too many of them."""

from kvota.engine.kept_places import KEPT_MAX, KEPT_MS, KeptPlaces, PlaceKey

ALICE = PlaceKey("192.0.2.1", "alice", b"app")
BOB = PlaceKey("192.0.2.1", "bob", b"app")


def test_a_place_is_kept_for_a_minute() -> None:
    kept = KeptPlaces()
    kept.keep(1, ALICE, 0)
    kept.keep(2, ALICE, 1)

    assert kept.take(BOB, KEPT_MS - 1) is None
    assert kept.take(ALICE, KEPT_MS) == 2
    assert kept.take(ALICE, KEPT_MS) is None
    assert len(kept) == 0


def test_each_part_of_the_key_counts() -> None:
    kept = KeptPlaces()
    kept.keep(1, ALICE, 0)

    for key in (
        ALICE._replace(client_host="192.0.2.2"),
        ALICE._replace(user="carol"),
        ALICE._replace(client_id=b"other"),
    ):
        assert kept.take(key, 1) is None
    assert kept.take(ALICE, 1) == 1


def test_of_too_many_the_first_that_was_left_goes() -> None:
    kept = KeptPlaces()
    for ticket in range(KEPT_MAX + 10):
        kept.keep(ticket, ALICE if ticket % 2 else BOB, 0)

    assert len(kept) == KEPT_MAX
    assert [kept.take(BOB, 0), kept.take(ALICE, 0)] == [10, 11]


def test_what_is_over_goes_whoever_comes() -> None:
    kept = KeptPlaces()
    for ticket in range(100):
        kept.keep(ticket, PlaceKey("192.0.2.1", "", b"%d" % ticket), ticket)

    kept.keep(100, ALICE, KEPT_MS + 50)

    assert len(kept) == 50
    assert kept.take(PlaceKey("192.0.2.1", "", b"49"), KEPT_MS + 50) is None


def test_a_clock_that_steps_back_keeps_no_place_for_hours() -> None:
    kept = KeptPlaces()
    kept.keep(1, ALICE, 3_600_000)

    assert kept.take(ALICE, 0) is None

    kept.keep(2, ALICE, 20)
    assert kept.take(ALICE, 0) == 2  # a small step costs nobody a place
