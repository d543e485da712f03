"""The one Fetch that a connection has in hand: what it is likely to bring, and its place among those who wait.

A broker reads what a Fetch asks for, and where that is over the quota it throws it away and says how long to
wait: recorded, checked, taken back. The gateway does so, too, when the answer is here
(``fetch_answers``). What would be thrown away is better not asked for: so a Fetch waits for room first
(docs/decisions/0009). That there is more to read is seen from two answers of one size; a client that has
read all there is gets smaller ones, and does not wait.
"""

from collections.abc import Callable
from struct import Struct

from kvota.engine import AnswerRoom, Lane, Reservation, Turn
from kvota.model.decision_sink import ChargeMemo
from kvota.session.waking import nobody
from kvota.wire import fetch
from kvota.wire.error_code import ErrorCode

_INT32 = Struct(">i")
_READ_INT32 = _INT32.unpack_from
_WRITE_INT32 = _INT32.pack_into
_READ_TWO_INT32 = Struct(">ii").unpack_from

# A Fetch waits no longer than this for room, counted from the answer before (a mute is part of it):
# above Kafka's default window of 11 s, and half of the 30 s after which clients give up.
FETCH_WAIT_MS_MAX = 15_000
# A waiting Fetch is looked at this often, where the samples are longer.
LOOK_AGAIN_MS = 1_000
# Larger requests that wait share this much memory; who finds none waits no longer.
FREE_FETCH_BYTES = 16_384
WAITING_FETCHES_BYTES_MAX = 32 * 2**20
# Who expects no more passes those who wait: a consumer that has read all there is.
QUIET_BYTES = 1_024


class WaitingFetches:
    """The memory of large Fetches that wait, of all connections of a gateway.

    Attributes:
        limit_bytes: how much it may be.
        used_bytes: how much it is.
    """

    __slots__ = ("limit_bytes", "used_bytes")

    def __init__(self, *, limit_bytes: int = WAITING_FETCHES_BYTES_MAX) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Take so much if it is there."""
        if self.used_bytes + size_bytes > self.limit_bytes:
            return False
        self.used_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """It waits no more."""
        self.used_bytes -= size_bytes


class FetchRoom:
    """One connection's part of the room that its counter has.

    Attributes:
        is_under_way: a Fetch has gone up, and the head of its answer is not here yet: no other one goes up.
    """

    __slots__ = (
        "_answered_us",
        "_answers",
        "_asked_bytes",
        "_before_bytes",
        "_has_refused",
        "_held_bytes",
        "_last_bytes",
        "_reservation",
        "_reserved_in",
        "_turn",
        "_waiting_fetches",
        "_waits_in",
        "_wake",
        "is_under_way",
    )

    def __init__(self, wake: Callable[[], None], waiting_fetches: WaitingFetches) -> None:
        self._wake = wake
        self._waiting_fetches = waiting_fetches
        self._held_bytes = 0  # of the request that waits, where it is a large one
        self._answers = 0
        self._last_bytes = self._before_bytes = 0  # of the last two answers
        self._answered_us = 0
        self._has_refused = False
        self._asked_bytes: int | None = None  # of the Fetch under way, where that was lowered
        self._reservation: Reservation | None = None
        self._reserved_in: AnswerRoom | None = None
        self._turn: Turn | None = None
        self._waits_in: AnswerRoom | None = None
        self.is_under_way = False

    # ------------------------------------------------------------------ what is expected

    def expected_bytes(self, lane: Lane) -> int:
        """How large the next answer is likely to be.

        Of a connection of which little is known: as the counter's recent answers were, never what it asks for.
        """
        likely_bytes, before_bytes = self._last_bytes, self._before_bytes
        likely_bytes = min(likely_bytes, before_bytes)
        if self._answers < 2:
            likely_bytes = int(lane.answer_room().recent_bytes)
            if self._answers:
                likely_bytes = min(likely_bytes, self._last_bytes)
        if likely_bytes > lane.window_bytes and not lane.is_blocked:
            return lane.window_bytes
        return likely_bytes

    @property
    def last_bytes(self) -> int:
        """How large the last answer was that may have brought records."""
        return self._last_bytes

    def go_up(self, lane: Lane, size_bytes: int, asked_bytes: int | None, now_us: int) -> None:
        """A Fetch goes up that is expected to bring so much; ``asked_bytes``: lowered to that."""
        if self._turn is not None or self._held_bytes:
            self.leave()
        self.is_under_way = True
        self._asked_bytes = asked_bytes
        if size_bytes > 0:
            self._reserved_in = room = lane.answer_room()
            self._reservation = room.reserve(size_bytes, now_us // 1000)

    def has_come(self, lane: Lane, value: int, now_us: int) -> None:
        """The head of an answer is here: so many bytes."""
        self.end()
        asked_bytes, self._asked_bytes = self._asked_bytes, None
        lane.answer_room().has_come(value, asked_bytes)
        self._answers += 1
        self._before_bytes, self._last_bytes = self._last_bytes, value
        self._answered_us = now_us
        self._has_refused = False

    def has_come_without_records(self, now_us: int) -> None:
        """The head of an answer is here that was to bring none: it says nothing of the next one."""
        self.end()
        self._asked_bytes = None
        self.has_been_answered(now_us)

    def has_been_answered(self, now_us: int) -> None:
        """The client has an answer: another wait may begin."""
        self._answered_us = now_us
        self._has_refused = False

    def end(self) -> None:
        """Nothing is under way any more, and nothing is reserved."""
        self.is_under_way = False
        room, reservation = self._reserved_in, self._reservation
        self._reserved_in = self._reservation = None
        if room is not None and reservation is not None:
            room.end(reservation)

    # ------------------------------------------------------------------ waiting

    def left_to_wait_ms(self, now_us: int, at_most_ms: int = FETCH_WAIT_MS_MAX) -> int:
        """For how long a Fetch without room may still be kept back; 0: no longer."""
        if not self._answered_us:  # its first one
            self._answered_us = now_us
        waited_ms = (now_us - self._answered_us) // 1000
        if waited_ms < 0:  # a clock that has stepped back ends the wait
            return 0
        return max(0, at_most_ms - waited_ms)

    def is_first_refusal(self) -> bool:
        """True once for each wait, however often it is looked at: a wait has one row."""
        is_first = not self._has_refused
        self._has_refused = True
        return is_first

    def may_wait(self, request_bytes: int) -> bool:
        """True when there is memory for the request while it waits."""
        if request_bytes <= FREE_FETCH_BYTES or self._held_bytes:
            return True
        if not self._waiting_fetches.take(request_bytes):
            return False
        self._held_bytes = request_bytes
        return True

    def stand_in_line(self, lane: Lane) -> bool:
        """Wait behind the others; true when it is the first now."""
        room = lane.answer_room()
        if self._waits_in is not room:
            self.leave()
            self._waits_in = room
            self._turn = room.line.join(self._wake)
        assert self._turn is not None
        return room.line.is_first(self._turn)

    def must_stand_behind(self, lane: Lane) -> bool:
        """True when others have waited for longer."""
        room = lane.room
        if room is None or not room.line:
            return False
        return self._turn is None or not room.line.is_first(self._turn)

    @property
    def is_waiting(self) -> bool:
        """True while a Fetch waits for room."""
        return self._turn is not None

    def leave(self) -> None:
        """Nothing waits any more; the next one of the line is woken."""
        held_bytes, self._held_bytes = self._held_bytes, 0
        if held_bytes:
            self._waiting_fetches.give_back(held_bytes)
        room, turn = self._waits_in, self._turn
        self._waits_in = self._turn = None
        if room is not None and turn is not None:
            room.line.leave(turn)

    def let_pass(self) -> None:
        """Something else keeps the request back: where it is the first, the others go before it."""
        room, turn = self._waits_in, self._turn
        if room is not None and turn is not None and room.line.is_first(turn):
            self.leave()

    def close(self) -> None:
        """Never wake again: with a method of the driver the two would be a cycle."""
        self.leave()
        self.end()
        self._wake = nobody


def look_again_ms(missing_bytes: int, memo: ChargeMemo) -> int:
    """When to look again for the missing bytes, under the limit that a row would name.

    Kafka's formula, (sum + expected) / limit - window. It knows no samples' ends, so it may wait twice
    as long as there is need: look again after a sample at the latest.
    """
    assert memo.limit is not None, "without a limit there is room"
    wait_ms = int(min(missing_bytes * 1000 / max(memo.limit, 0.001), LOOK_AGAIN_MS)) + 1
    return min(wait_ms, memo.sample_ms, LOOK_AGAIN_MS)


def asks_for(data: bytes | bytearray, offset: int) -> int:
    """The request's max_bytes."""
    asked: int = _READ_INT32(data, offset)[0]
    return asked


def is_incremental(
    data: bytes | bytearray, max_bytes_at: int, frame_end: int, version: int
) -> bool:
    """True for a Fetch that goes on with a session: an answer to it that the broker does not know ends that.

    ``max_bytes_at`` is where its max_bytes stands, in ``data``.
    """
    offset = fetch.session_offset(version)
    if offset < 0:
        return False
    at = max_bytes_at + offset - fetch.max_bytes_offset(version)
    if at + 8 > frame_end:
        return False
    session_id, epoch = _READ_TWO_INT32(data, at)
    return bool(session_id != 0 and epoch > 0)


def lower_max_bytes(data: bytes | bytearray, offset: int, allowed_bytes: int) -> bytearray:
    """A Fetch request that asks for no more than the window still allows, but for one byte at least.

    min_bytes stands before max_bytes and is lowered with it, as a broker does; the broker answers one
    whole batch however small the limit.
    """
    patched = data if isinstance(data, bytearray) else bytearray(data)
    most = max(allowed_bytes, 1)
    _WRITE_INT32(patched, offset, most)
    if _READ_INT32(patched, offset - 4)[0] > most:
        _WRITE_INT32(patched, offset - 4, most)
    return patched


def empty_answer(correlation: int, version: int, throttle_ms: int, *, session_id: int = 0) -> bytes:
    """What a broker answers to a consumer over its quota: no topics, and how long to wait."""
    return fetch.empty_answer(
        correlation,
        version,
        throttle_ms=min(throttle_ms, 2**31 - 1),
        error_code=ErrorCode.NONE,
        session_id=session_id,
    )
