"""The places for connections: as many as limits.connections_max, each taken by a driver."""

from collections.abc import Iterator

from kvota.gateway.driver import Driver


class Places:
    """Who is connected, in the order in which they came.

    Attributes:
        closed: true when nobody is let in any more.
    """

    def __init__(self, *, connections_max: int) -> None:
        self._connections_max = connections_max
        self._taken: dict[Driver, None] = {}
        self.closed = False

    def __len__(self) -> int:
        return len(self._taken)

    def __iter__(self) -> Iterator[Driver]:
        """Those who are connected now; they may leave meanwhile."""
        return iter(list(self._taken))

    def take(self, driver: Driver) -> str:
        """Take a connection in; returns a reason when it must be refused."""
        if len(self._taken) >= self._connections_max and not self._make_room():
            return f"all {self._connections_max} connections are in use (limits.connections_max)"
        if self.closed:
            return "the gateway is stopping"
        self._taken[driver] = None
        return ""

    def leave(self, driver: Driver) -> None:
        """A connection is over, or was never taken in."""
        self._taken.pop(driver, None)

    def _make_room(self) -> bool:
        """Close the oldest connection that has not sent one whole head of a request, if there is any.

        Connections that are silent thus cannot keep out those that have something to say.
        """
        for driver in self:
            if not driver.has_asked:
                driver.close("it had asked nothing yet when all connections were in use")
                self.leave(driver)
                return True
        return False
