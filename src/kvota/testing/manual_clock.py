"""Time that passes by hand: the wall clock, which may be set, and the monotonic one, which may not."""

START_MS = 1_700_000_000_000


class ManualClock:
    """A ``kvota.model.clock.Clock`` for tests.

    >>> clock = ManualClock()
    >>> clock.advance(1_500)
    >>> clock.step_wall(-60_000)
    >>> clock.now_ms() - START_MS, clock.monotonic_ms()
    (-58500, 1500)
    """

    __slots__ = ("_monotonic_us", "_wall_us")

    def __init__(self, *, start_ms: int = START_MS) -> None:
        self._wall_us = start_ms * 1000
        self._monotonic_us = 0

    def now_us(self) -> int:
        """Unix microseconds."""
        return self._wall_us

    def now_ms(self) -> int:
        """Unix milliseconds."""
        return self._wall_us // 1000

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back."""
        return self._monotonic_us // 1000

    def monotonic_us(self) -> int:
        """The same in microseconds."""
        return self._monotonic_us

    def advance(self, ms: int) -> None:
        """Let time pass on both clocks."""
        self.advance_us(ms * 1000)

    def advance_us(self, us: int) -> None:
        """Let time pass on both clocks.

        Raises:
            ValueError: time does not go back; only the wall clock can be set back.
        """
        if us < 0:
            msg = f"time cannot pass by {us} µs; step_wall sets the wall clock back"
            raise ValueError(msg)
        self._wall_us += us
        self._monotonic_us += us

    def step_wall(self, ms: int) -> None:
        """Somebody sets the wall clock by so much, back where it is negative; no time passes."""
        self._wall_us += ms * 1000
