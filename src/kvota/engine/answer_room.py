"""The room that one counter has for Fetch answers: what is on its way, who waits, what is too much.

What a Fetch will bring is not known before its answer is here. So there are two looks at it: on the way up a
request reserves what it is likely to bring, which saves work; when the head of its answer is here ``judge``
decides, as a broker does, whether the answer is delivered. What holds, holds by the second look alone.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kvota.engine.sampled_rate import SampledRate
from kvota.engine.waiting_line import WaitingLine
from kvota.model.quota_type import Algorithm

# A broker that has the data answers sooner; one that has none waits for it, and then nothing is reserved.
RESERVED_MS_MAX = 300
# Of the recent answers of a counter each counts a quarter.
_RECENT_SHARE = 0.25
# A larger excess is a batch that is larger than what was asked for, and no overhead.
_OVERHEAD_SHARE_MAX = 0.125
_INT32_MAX = 2**31 - 1
# The interpreter finds an enum's members the slow way.
_TOKEN_BUCKET = Algorithm.TOKEN_BUCKET


class CountedLane(Protocol):
    """What is asked of a ``Lane``."""

    limit: float | None
    algorithm: Algorithm
    is_blocked: bool
    window_ms: int
    window_bytes: int
    admit: Callable[[float, int], int]
    allowance: Callable[[int], int]
    refuse: Callable[[float, int], int]
    peek: Callable[[int], int]

    @property
    def counter(self) -> object:
        """An algorithm with its contents."""
        ...

    def turn_in_ms(self, now_ms: int) -> int:
        """How long it takes until no more than ``debt_max`` is owed."""
        ...


class Verdict(NamedTuple):
    """What becomes of one answer.

    Attributes:
        throttle_ms: for the row: that of the charge, which was taken back where it does not count.
        wait_ms: how long the client is muted; 0 or below: it may go on.
        is_delivered: false: the client gets an empty answer in its place.
        is_charged: false: nothing was counted.
    """

    throttle_ms: int
    wait_ms: int
    is_delivered: bool = True
    is_charged: bool = True


# The usual one; it is never changed, so there need be only one.
_DELIVERED = Verdict(0, 0)


class Owed(NamedTuple):
    """What is still to be paid for an answer larger than an empty window.

    Attributes:
        size_bytes: of what has been delivered.
        since_ms: when.
    """

    size_bytes: float
    since_ms: int


NOTHING_OWED = Owed(0.0, 0)


class Reservation:
    """Room for one answer that is on its way."""

    __slots__ = ("made_ms", "size_bytes")

    def __init__(self, size_bytes: int, made_ms: int) -> None:
        self.size_bytes = size_bytes
        self.made_ms = made_ms


class AnswerRoom:
    """What all connections that share a counter of FETCH know of its answers.

    Attributes:
        line: who waits for room, first come, first served.
        recent_bytes: a mean of the recent answers: what to expect of a connection of which nothing is known.
        overhead_bytes: by how much answers were larger than what their requests had been lowered to: names,
            heads. Without it an answer that fills all the room there is would be over the quota each time.
    """

    __slots__ = (
        "_owed",
        "_reserved_bytes",
        "_reserved_for",
        "line",
        "overhead_bytes",
        "recent_bytes",
    )

    def __init__(self, owed: Owed = NOTHING_OWED) -> None:
        """``owed`` is what ``owed`` was before the counter was put away."""
        self.line = WaitingLine()
        self.recent_bytes = owed.size_bytes  # as large was the last one
        self.overhead_bytes = 0
        self._reserved_for: OrderedDict[Reservation, None] = OrderedDict()
        self._reserved_bytes = 0
        self._owed = owed

    @property
    def owed(self) -> Owed:
        """What is still to be paid; the time may have paid it already."""
        return self._owed

    # ------------------------------------------------------------------ on the way up

    def free_bytes(self, lane: CountedLane, now_ms: int) -> int:
        """What an answer may bring that nobody else's is expected to."""
        if self._owed.size_bytes and self.unpaid_ms(lane, now_ms):
            return 0
        free_bytes = lane.allowance(now_ms)
        if self._reserved_for:
            free_bytes -= self.reserved_bytes(now_ms)
        return max(0, free_bytes)

    def reserved_bytes(self, now_ms: int) -> int:
        """What answers are expected to bring that are on their way; it lapses where a broker waits."""
        while self._reserved_for:
            oldest = next(iter(self._reserved_for))
            # Where the clock has stepped back its age is not known.
            if 0 <= now_ms - oldest.made_ms < RESERVED_MS_MAX:
                break
            self._forget(oldest)
        return self._reserved_bytes

    def reserve(self, size_bytes: int, now_ms: int) -> Reservation:
        """Keep so much room for an answer, until it is here; for ``RESERVED_MS_MAX`` at most."""
        reservation = Reservation(size_bytes, now_ms)
        self._reserved_for[reservation] = None
        self._reserved_bytes += size_bytes
        return reservation

    def end(self, reservation: Reservation) -> None:
        """The answer is here, or will never be; the first of the line is woken. Twice is once."""
        if reservation in self._reserved_for:
            self._forget(reservation)
            if self.line:
                self.line.wake_first()

    def _forget(self, reservation: Reservation) -> None:
        del self._reserved_for[reservation]
        self._reserved_bytes -= reservation.size_bytes

    # ------------------------------------------------------------------ when it is here

    def has_come(self, value: int, asked_bytes: int | None) -> None:
        """An answer of so many bytes is here; its request had been lowered to ``asked_bytes``, if at all."""
        self.recent_bytes += (value - self.recent_bytes) * _RECENT_SHARE
        if asked_bytes is not None and value - asked_bytes <= asked_bytes * _OVERHEAD_SHARE_MAX:
            self.overhead_bytes = max(self.overhead_bytes, value - asked_bytes)

    def judge(self, lane: CountedLane, value: int, now_ms: int) -> Verdict:
        """Charge an answer and say that it is delivered; or take the charge back.

        Under ``sampled_rate`` as Kafka: record, check, and where it violates take it back. An answer that is
        larger than an empty window, which a broker would never deliver, is delivered once the one
        before it is paid for; until then nothing is. Under ``token_bucket`` it is delivered where no more
        than ``debt_max`` is owed.
        """
        if lane.limit is None:
            return Verdict(lane.admit(value, now_ms), 0)
        if lane.algorithm is _TOKEN_BUCKET:
            return self._judge_debt(lane, value, now_ms)
        throttle_ms = lane.admit(value, now_ms)
        unpaid_ms = self.unpaid_ms(lane, now_ms) if self._owed.size_bytes else 0
        if not unpaid_ms and throttle_ms <= 0:
            return Verdict(throttle_ms, 0) if throttle_ms else _DELIVERED
        is_too_large = value > lane.window_bytes and not lane.is_blocked
        if is_too_large and not unpaid_ms:
            # By Kafka's formula a window's worth of it would cost nothing each time. All that the window holds
            # is paid with it; a throttle that Kafka's narrowing has cut is not its price.
            wait_ms = throttle_ms + lane.window_ms
            price_ms = value * 1000 / lane.limit
            price_ms = price_ms if price_ms > wait_ms + 1 else wait_ms
            self._owed = Owed(lane.limit * price_ms / 1000, now_ms)
            return Verdict(throttle_ms, wait_ms)
        assert isinstance(lane.counter, SampledRate)
        lane.counter.record(-value, now_ms)
        # One that is too large is delivered as soon as the one before it is paid for.
        return _emptied(throttle_ms, unpaid_ms if is_too_large else max(throttle_ms, unpaid_ms))

    def deliver(self, lane: CountedLane, value: int, now_ms: int) -> Verdict:
        """Charge an answer that is delivered whatever it costs: all of it is paid for before there is room again.

        By Kafka's formula a window's worth of what is over would be forgotten each time.
        """
        if lane.limit is None:
            return Verdict(lane.admit(value, now_ms), 0)
        throttle_ms = lane.admit(value, now_ms)
        if lane.algorithm is _TOKEN_BUCKET:
            self._owed = NOTHING_OWED  # from here on the bucket knows
            return Verdict(throttle_ms, throttle_ms)
        unpaid_ms = self.unpaid_ms(lane, now_ms)
        if lane.is_blocked or (throttle_ms <= 0 and not unpaid_ms):
            return Verdict(throttle_ms, throttle_ms)
        over_ms = throttle_ms + (lane.window_ms if value > lane.window_bytes else 0)
        wait_ms = max(over_ms, unpaid_ms + round(value * 1000 / lane.limit))
        self._owed = Owed(lane.limit * wait_ms / 1000, now_ms)
        return Verdict(throttle_ms, wait_ms)

    def _judge_debt(self, lane: CountedLane, value: int, now_ms: int) -> Verdict:
        self._owed = NOTHING_OWED  # from here on the bucket knows
        if lane.is_blocked or lane.turn_in_ms(now_ms):
            throttle_ms = lane.refuse(value, now_ms)
            return _emptied(throttle_ms, lane.peek(now_ms))
        throttle_ms = lane.admit(value, now_ms)
        return Verdict(throttle_ms, throttle_ms)

    def unpaid_ms(self, lane: CountedLane, now_ms: int) -> int:
        """How long it takes until an answer larger than an empty window is paid for; 0: it is."""
        left_ms = self.peek_unpaid_ms(lane, now_ms)
        if not left_ms:
            if lane.limit is not None and lane.algorithm is not _TOKEN_BUCKET:
                self._owed = NOTHING_OWED
        elif now_ms < self._owed.since_ms:
            # Where the clock has stepped back: from now on, and no longer.
            self._owed = self._owed._replace(since_ms=now_ms)
        return left_ms

    def peek_unpaid_ms(self, lane: CountedLane, now_ms: int) -> int:
        """The same; changes nothing."""
        size_bytes, since_ms = self._owed
        if not size_bytes or lane.limit is None or lane.algorithm is _TOKEN_BUCKET:
            return 0
        owed_ms = size_bytes * 1000 / max(lane.limit, 0.001)
        left_ms = min(since_ms, now_ms) + round(owed_ms) - now_ms
        return min(max(left_ms, 0), _INT32_MAX)


def _emptied(throttle_ms: int, wait_ms: int) -> Verdict:
    return Verdict(throttle_ms, max(1, wait_ms), is_delivered=False, is_charged=False)
