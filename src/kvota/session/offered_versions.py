"""What brokers offer: connections whose brokers offer the same share what is kept of it."""

from kvota.wire.api_versions import Versions

# A cluster that is being upgraded has two kinds of brokers.
KINDS_MAX = 4


class OfferedVersions:
    """Of one gateway. A broker offers some 70 APIs, which are 7 KB for each connection that keeps its own."""

    def __init__(self) -> None:
        self._kinds: list[Versions] = []

    def shared(self, versions: Versions) -> Versions:
        """Return the same versions, as they are kept for others."""
        for kind in self._kinds:
            if kind == versions:
                return kind
        self._kinds = [versions, *self._kinds[: KINDS_MAX - 1]]
        return versions
