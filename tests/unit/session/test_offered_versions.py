"""What brokers offer is kept once for all connections."""

from kvota.session.offered_versions import KINDS_MAX, OfferedVersions


def offered(highest: int) -> dict[int, tuple[int, int]]:
    return dict.fromkeys(range(70), (0, highest))


def test_connections_share_what_their_brokers_offer() -> None:
    kept = OfferedVersions()
    old, new = kept.shared(offered(1)), kept.shared(offered(2))

    assert kept.shared(offered(1)) is old
    assert kept.shared(offered(2)) is new
    assert (old, new) == (offered(1), offered(2))


def test_of_many_kinds_the_newest_are_shared() -> None:
    kept = OfferedVersions()
    first = kept.shared(offered(1))
    later = [kept.shared(offered(highest)) for highest in range(2, 2 + KINDS_MAX)]

    again = [kept.shared(offered(highest)) for highest in range(2, 2 + KINDS_MAX)]
    assert all(kind is before for kind, before in zip(again, later, strict=True))
    assert kept.shared(offered(1)) is not first
