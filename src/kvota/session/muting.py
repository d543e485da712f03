"""How long a connection stays muted: the cap of one mute, and the deadline behind it."""


class Muting:
    """The uncapped deadline of one connection, on a monotonic clock in ms.

    One mute lasts ``cap_ms`` at most, so that clients do not time out; the deadline is not cut. After a
    capped mute one request is read, then what is left of the deadline goes on.
    """

    __slots__ = ("_cap_ms", "_deadline_ms", "_since_ms")

    def __init__(self, *, cap_ms: int) -> None:
        self._cap_ms = cap_ms
        self._deadline_ms = 0
        self._since_ms: int | None = None

    def mute(self, throttle_ms: int, *, now_ms: int) -> int:
        """Add a throttle (a longer one that is already running stays); returns when to look again."""
        self._deadline_ms = max(self._deadline_ms, now_ms + throttle_ms)
        if self._since_ms is None:
            self._since_ms = now_ms
        return min(self._deadline_ms, self._since_ms + self._cap_ms)

    def end(self, *, now_ms: int) -> int:
        """End this mute; returns what is left of the deadline, 0 when all has been waited for."""
        self._since_ms = None
        return max(0, self._deadline_ms - now_ms)
