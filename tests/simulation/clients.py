"""The clients of a world: each sends what was drawn for it, as it likes, and reads answers in order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.simulation.asks import FETCHES, Ask
from tests.simulation.pipe import Pipe
from tests.simulation.timeline import Timeline
from tests.simulation.watch import Watch

from kvota.testing.frames import PRODUCE, throttle_of
from kvota.testing.share_frames import SHARE_FETCH

# From here on an answer's header has tags.
_FLEXIBLE_FETCH_FROM = 12


def _throttle_ms(ask: Ask, answer: bytes) -> int:
    """How long a Produce, Fetch or ShareFetch answer asks the client to wait."""
    if ask.key == PRODUCE:
        return throttle_of(answer, PRODUCE, ask.version)
    if ask.key not in FETCHES:
        return 0
    # By hand: no other codec reads past the tag that nobody knows in a streamed answer.
    at = 9 if ask.key == SHARE_FETCH or ask.version >= _FLEXIBLE_FETCH_FROM else 8
    return int.from_bytes(answer[at : at + 4], "big")


@dataclass(frozen=True, kw_only=True)
class Manners:
    """How a client behaves.

    Attributes:
        depth: how many requests it sends ahead of their answers.
        logs_in_ahead: its login, too, goes out with what follows.
        honours_throttle: it waits as long as answers say.
        half_closes: it says that it sends no more while answers are still to come.
        leaves_after: it is gone once it has sent so many bytes, at whatever byte; None: it stays.
        pause_us: between an answer and the next request.
    """

    depth: int
    logs_in_ahead: bool
    honours_throttle: bool
    half_closes: bool
    leaves_after: int | None
    pause_us: tuple[int, ...] = (0, 0, 400, 30_000, 1_500_000)


class Client:
    """One client with one connection.

    Args:
        asks: what it will send. The first ``logins`` are usually sent one by one, each after the answer
            before.
        gone: what becomes of the connection when it leaves.
    """

    def __init__(
        self,
        timeline: Timeline,
        rng: Random,
        watch: Watch,
        asks: Sequence[Ask],
        manners: Manners,
        *,
        logins: int,
        gone: Callable[[], None],
    ) -> None:
        self._timeline = timeline
        self._rng = rng
        self._watch = watch
        self._plan = list(asks)
        self._manners = manners
        self._logins = logins
        self._gone = gone
        self._in_flight: list[Ask] = []
        self._received = bytearray()
        self._not_before_us = 0
        self._waits = False
        self._over = False

    def connect(self, outgoing: Pipe, incoming: Pipe) -> None:
        """Connected: ``outgoing`` to the gateway, ``incoming`` from it."""
        self._outgoing, self._incoming = outgoing, incoming
        incoming.on_data = self._read
        incoming.on_end = self._closed
        self._send()

    # ------------------------------------------------------------------ sending

    def _send(self) -> None:
        """As many requests as may be under way, in one piece: the network cuts them."""
        self._waits = False
        if self._over:
            return
        early_us = self._not_before_us - self._timeline.now_us
        if early_us > 0:
            self._send_later(early_us)
            return
        together = b""
        while self._plan and len(self._in_flight) < self._depth:
            ask = self._plan.pop(0)
            self._logins -= 1
            self._watch.asks.append(ask)
            together += ask.frame
            if ask.is_answered:
                self._in_flight.append(ask)
        leaves_after = self._manners.leaves_after
        if leaves_after is not None and self._outgoing.sent + len(together) > leaves_after:
            self._leave(together[: leaves_after - self._outgoing.sent])
            return
        if together:
            self._outgoing.send(together)
        if not self._plan and (self._manners.half_closes or not self._in_flight):
            self._outgoing.finish()

    @property
    def _depth(self) -> int:
        waits = self._logins > 0 and not self._manners.logs_in_ahead
        return 1 if waits else self._manners.depth

    def _send_later(self, us: int) -> None:
        if not self._waits:
            self._waits = True
            self._timeline.after_us(us, self._send)

    # ------------------------------------------------------------------ receiving

    def _read(self, data: bytes) -> None:
        self._received += data
        while self._in_flight and len(self._received) >= 4:
            size = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < size:
                return
            answer = bytes(self._received[:size])
            del self._received[:size]
            self._answered(self._in_flight.pop(0), answer)

    def _answered(self, ask: Ask, answer: bytes) -> None:
        if self._manners.honours_throttle:
            wait_us = _throttle_ms(ask, answer) * 1000
            self._not_before_us = max(self._not_before_us, self._timeline.now_us + wait_us)
        self._send_later(self._rng.choice(self._manners.pause_us))

    # ------------------------------------------------------------------ the end

    def _leave(self, last: bytes) -> None:
        self._over = True
        self._watch.client_gone = True
        self._outgoing.send(last)
        self._outgoing.tear()
        self._incoming.leave()
        # A reset reaches the gateway sooner or later; before that it may still read.
        self._timeline.after_us(self._rng.choice((0, 700, 2_000_000)), self._gone)

    def _closed(self) -> None:
        self._over = True
        self._outgoing.finish()
