"""One direction of one connection: bytes arrive in order, in pieces of any size, after a while."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.simulation.timeline import Timeline

# Pieces are drawn from these; None: all there is, -1: half of it, -2: all but its end.
_PIECES: dict[str, tuple[int | None, ...]] = {
    "whole": (None,),
    "mixed": (1, 2, 4, 7, 9, 13, 14, 40, 999, 20_000, None, None),
    "tiny": (1, 1, 1, 2, 3, 5),
    "large": (16_383, 16_384, 17_100, 150_000, None),
    "halves": (-1,),
    "tails": (-2,),
}
# How long a piece takes: usual networks, and a slow one.
_DELAYS_US = ((0, 40, 300, 900, 5_000), (0, 300), (5_000, 150_000, 900_000))
STYLES = tuple(_PIECES)
# Byte by byte, but not through all of a large frame.
_TINY_PIECES_MAX = 120


def nothing(*_args: object) -> None:
    """Nobody listens."""


@dataclass(slots=True)
class Stall:
    """A sender that stands still, or sends byte by byte, and then goes on.

    Attributes:
        after_bytes: when so much has arrived.
        single_bytes: so many come one by one then.
        pause_us: before each of them.
    """

    after_bytes: int
    single_bytes: int
    pause_us: int


class Pipe:
    """Bytes on their way.

    Attributes:
        stall: of its sender; None: it does not.
        on_data: the receiver; gets each piece.
        on_end: the receiver learns that no more comes.
        on_full: the sender learns that the receiver does not keep up (True), or does again (False).
        sent: how many bytes were given to it.
    """

    def __init__(self, timeline: Timeline, rng: Random, *, style: str, room_bytes: int) -> None:
        self.on_data: Callable[[bytes], None] = nothing
        self.on_end: Callable[[], None] = nothing
        self.on_full: Callable[[bool], None] = nothing
        self.stall: Stall | None = None
        self.sent = 0
        self._timeline = timeline
        self._rng = rng
        self._pieces = _PIECES[style]
        self._pieces_left = _TINY_PIECES_MAX
        self._delays_us = rng.choice(_DELAYS_US)
        self._room_bytes = room_bytes
        self._waiting = bytearray()
        self._paused = False
        self._full = False
        self._finished = False
        self._ended = False
        self._scheduled = False

    # ------------------------------------------------------------------ the sender's side

    def send(self, data: bytes | bytearray) -> None:
        if self._finished:
            return
        self.sent += len(data)
        self._waiting += data
        self._schedule()
        if len(self._waiting) > self._room_bytes and not self._full:
            self._full = True
            self.on_full(True)

    def finish(self) -> None:
        """No more comes; what is on its way still arrives."""
        self._finished = True
        self._schedule()

    def tear(self) -> None:
        """The sender is gone: of what is on its way an unknown part still arrives."""
        if not self._finished:
            del self._waiting[self._rng.randrange(len(self._waiting) + 1) :]
            self.finish()

    # ------------------------------------------------------------------ the receiver's side

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._schedule()

    def leave(self) -> None:
        """The receiver is gone: nobody hears any more."""
        self.on_data = self.on_end = nothing
        self._paused = False
        self._schedule()

    # ------------------------------------------------------------------ on the way

    def _schedule(self) -> None:
        if self._scheduled or self._paused or self._ended:
            return
        if self._waiting or self._finished:
            self._scheduled = True
            self._timeline.after_us(self._delay_us(), self._arrive)

    def _delay_us(self) -> int:
        stall = self.stall
        if stall is not None and not stall.after_bytes:
            return stall.pause_us
        return self._rng.choice(self._delays_us)

    def _arrive(self) -> None:
        self._scheduled = False
        if self._paused:
            return
        if self._waiting:
            size = self._stalled_bytes(self._piece_bytes() or len(self._waiting))
            piece = bytes(self._waiting[:size])
            del self._waiting[:size]
            if self._full and len(self._waiting) <= self._room_bytes // 2:
                self._full = False
                self.on_full(False)
            self.on_data(piece)
        elif self._finished and not self._ended:
            self._ended = True
            self.on_end()
        self._schedule()

    def _stalled_bytes(self, size: int) -> int:
        """As much of a piece as comes before its sender stands still, or a byte while it nearly does."""
        stall = self.stall
        if stall is None:
            return size
        if stall.after_bytes:
            size = min(size, stall.after_bytes, len(self._waiting))
            stall.after_bytes -= size
            return size
        stall.single_bytes -= 1
        if stall.single_bytes == 0:
            self.stall = None
        return 1

    def _piece_bytes(self) -> int | None:
        self._pieces_left -= 1
        if self._pieces_left < 0:
            return None
        size = self._rng.choice(self._pieces)
        if size == -1:
            return len(self._waiting) // 2
        if size == -2:  # most of it at once, and its end in small pieces
            most = len(self._waiting) - self._rng.randrange(120)
            return most if most > 0 else self._rng.randint(1, 30)
        return size
