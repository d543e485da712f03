"""How many requests of each API were taken, and their sizes; but for Produce, whose every request has a row."""


class ApiCount:
    """Of one API, over all connections of a gateway.

    Attributes:
        requests: how many.
        size_bytes: their sizes, each without its size field.
    """

    __slots__ = ("requests", "size_bytes")

    def __init__(self) -> None:
        self.requests = 0
        self.size_bytes = 0

    def add(self, size: int) -> None:
        """One more, of this size."""
        self.requests += 1
        self.size_bytes += size


class ApiCounts:
    """The counts by API key; one is made when the first connection uses it."""

    def __init__(self) -> None:
        self._of_key: dict[int, ApiCount] = {}

    def of(self, key: int) -> ApiCount:
        """The count of an API."""
        return self._of_key.setdefault(key, ApiCount())

    def all(self) -> dict[int, ApiCount]:
        """Those of which there are any."""
        return dict(self._of_key)
