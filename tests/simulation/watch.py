"""What one connection's driver saw, byte for byte, matched at once with what its client asked."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from tests.simulation.asks import FETCHES, Ask, Fate

from kvota.model.quota_type import QuotaType
from kvota.session.connection import Connection
from kvota.session.pausing import Reason
from kvota.testing.frames import FETCH, PRODUCE, SASL_AUTHENTICATE, decoded
from kvota.testing.manual_clock import ManualClock
from kvota.testing.stage import Rows

# The client id of the gateway's own questions, as it stands in a head.
_OWN = b"\0\5kvota"
ANONYMOUS = "ANONYMOUS"


class InvariantError(AssertionError):
    """An invariant does not hold."""


class TimedRows(Rows):
    """Keeps when each decision was made, on the monotonic clock, and before or after what."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.ticks = count()
        self.decided: list[tuple[int, int]] = []  # (tick, monotonic ms) by seq
        self._clock = clock

    def next_seq(self) -> int:
        self.decided.append((next(self.ticks), self._clock.monotonic_ms()))
        return super().next_seq()


@dataclass(slots=True, eq=False)
class Upward:
    """One frame that has begun to go up: a client's request, or a question of the gateway's own.

    Attributes:
        ask: None for a question of the gateway's own.
        tick, at_ms: when its first byte went.
        user: who was logged in then.
        size: as announced.
        topics: of a mutation: those that went up.
        answered_user: who was logged in when the head of its answer came.
        is_answered: its answer has arrived whole.
    """

    ask: Ask | None
    tick: int
    at_ms: int
    user: str
    size: int
    topics: tuple[object, ...] = ()
    answered_user: str = ANONYMOUS
    is_answered: bool = False


@dataclass(slots=True, eq=False)
class Watch:
    """One connection.

    Attributes:
        number, node_id: of the connection and of its broker.
        dialled: that broker's address, or another name of it.
        cap_ms: how long one mute lasts at most.
        lifted, lowered: quota types that have been enforced and then not; that have had a factor below 1.
        knows_node: false where the gateway has to learn which node it talks to.
        asks: what its client has sent, in order.
        upward: what has begun to go up, in order.
        answers: whole answers to the client, with (tick, monotonic ms).
        node_ids: more than one where another broker than planned was reached.
        drained: the gateway has stopped taking requests; what had gone up must be answered.
        begun_ms: when each of them began, and the one that goes to the client now.
        mutes: (tick, when, for how long) of each mute, as the machine asked for it.
        client_gone, broker_gone: somebody left in the middle of things: what was under way may be lost.
    """

    number: int
    node_id: int
    dialled: tuple[str, int]
    rows: TimedRows
    clock: ManualClock
    cap_ms: int
    lifted: Collection[QuotaType]
    lowered: Collection[QuotaType]
    knows_node: bool = True
    asks: list[Ask] = field(default_factory=list)
    upward: list[Upward] = field(default_factory=list)
    answers: list[tuple[bytes, int, int]] = field(default_factory=list)
    node_ids: set[int] = field(default_factory=set)
    client_gone: bool = False
    drained: bool = False
    broker_gone: bool = False
    mutes: list[tuple[int, int, int]] = field(default_factory=list)
    to_client: bytearray = field(default_factory=bytearray)
    user: str = ANONYMOUS
    login_failed: bool = False
    up: bytearray = field(default_factory=bytearray)  # the frame that goes up now
    down: bytearray = field(default_factory=bytearray)  # the answer that comes down now
    out: bytearray = field(default_factory=bytearray)  # the answer that goes to the client now
    begun_ms: list[int] = field(default_factory=list)
    _next_ask: int = 0
    _next_answer: int = 0
    _begun: tuple[int, int, str] = (0, 0, ANONYMOUS)

    @property
    def is_broken(self) -> bool:
        return self.client_gone or self.broker_gone

    def check_progress(self, machine: Connection) -> None:
        """What the machine says of the frame that has begun is so."""
        if machine.is_inside_frame != bool(self.up):
            raise self.fail(
                f"inside a frame: {machine.is_inside_frame}, begun: {len(self.up)} bytes"
            )
        if machine.arrived_bytes < 0:
            raise self.fail(f"{machine.arrived_bytes} bytes have arrived")
        if machine.incomplete and machine.pauses_reading and not machine.is_inside_frame:
            waits = machine.pausing.reasons
            if waits & ~(Reason.BUDGET | Reason.ROOM):
                raise self.fail(f"the client's turn, and it is not read: {waits!r}")

    def fail(self, what: str) -> InvariantError:
        return InvariantError(f"connection {self.number}: {what}")

    # ------------------------------------------------------------------ going up

    def forwarded(self, data: bytes | bytearray) -> None:
        """The gateway sends these bytes on to the broker."""
        at = 0
        while at < len(data):
            if not self.up:
                self._begun = next(self.rows.ticks), self.clock.monotonic_ms(), self.user
            size = (
                _frame_bytes(self.up + data[at : at + 4])
                if len(self.up) < 4
                else _frame_bytes(self.up)
            )
            end = len(data) if size is None else min(len(data), at + size - len(self.up))
            self.up += data[at:end]
            at = end
            if size is not None and len(self.up) == size:
                self._whole(bytes(self.up))
                self.up.clear()

    def _whole(self, frame: bytes) -> None:
        ask = self._match(frame)
        upward = Upward(ask, *self._begun, len(frame) - 4)
        if ask is not None:
            ask.fate = Fate.FORWARDED
            upward.topics = self._checked(ask, frame)
        self.upward.append(upward)

    def half_forwarded(self) -> Upward | None:
        """The request of which a part went up and no more ever will."""
        if len(self.up) < 4:
            return None
        ask = self._match(bytes(self.up), whole=False)
        if ask is None or not ask.frame.startswith(bytes(self.up)):
            raise self.fail(f"half a frame went up, and is not what the client sent: {ask}")
        return Upward(ask, *self._begun, (_frame_bytes(self.up) or 4) - 4)

    def _match(self, frame: bytes, *, whole: bool = True) -> Ask | None:
        """The request this is; those before it that did not go up must be for the gateway to answer."""
        if frame[12:19] == _OWN:
            to_come = self.asks[self._next_ask :]
            finds_node = not self.knows_node and any(
                ask.key == PRODUCE or ask.key in FETCHES for ask in to_come
            )
            if not finds_node and not any(ask.is_mutation for ask in to_come):
                raise self.fail(
                    "a question of the gateway's own, and nothing to come that is charged"
                )
            return None
        for place in range(self._next_ask, len(self.asks)):
            ask = self.asks[place]
            is_it = frame == ask.frame if ask.is_token else frame[4:12] == ask.frame[4:12]
            if is_it or (not whole and ask.frame.startswith(frame)):
                self._next_ask = place + 1
                return ask
            if not self._may_stay(ask):
                raise self.fail(f"lost or out of order: {ask}; forwarded was {frame[:14].hex()}")
            ask.fate = Fate.LOCAL
        raise self.fail(f"forwarded, and never asked: {frame[:14].hex()}, {len(frame)} bytes")

    def _may_stay(self, ask: Ask) -> bool:
        """True for requests that the gateway may answer itself; how it did is checked in the end."""
        return ask.is_mutation or ask.is_too_new or ask.key == FETCH or ask.is_refused

    def _checked(self, ask: Ask, frame: bytes) -> tuple[object, ...]:
        """What may differ from what the client sent; returns a mutation's topics."""
        if ask.is_mutation:
            topics = mutation_topics(frame, ask)
            if frame != ask.frame and not _is_subset(frame, ask, topics):
                raise self.fail(f"a mutation was changed on its way: {ask}")
            return topics
        if frame != ask.frame and not (ask.key in FETCHES and _is_lowered(frame, ask)):
            raise self.fail(f"changed on its way: {ask}")
        return ()

    # ------------------------------------------------------------------ coming down

    def fed(self, data: bytes) -> None:
        """The broker's bytes are about to be given to the machine."""
        self.down += data
        while len(self.down) >= 4:
            waiting = [one for one in self.upward[self._next_answer :] if _wants_answer(one.ask)]
            if not waiting:
                return
            waiting[0].answered_user = self.user
            size = _frame_bytes(self.down)
            if size is None or len(self.down) < size:
                return
            waiting[0].is_answered = True
            self._next_answer = self.upward.index(waiting[0]) + 1
            self._logged_in(waiting[0].ask, bytes(self.down[:size]))
            del self.down[:size]

    def forget_unread(self, due: int) -> None:
        """The connection ends before so many answers have been looked at; they may be here all the same."""
        waiting = [one for one in self.upward if _wants_answer(one.ask)]
        for upward in waiting[len(waiting) - due :]:
            upward.is_answered = False

    def _logged_in(self, ask: Ask | None, answer: bytes) -> None:
        if ask is None or ask.key != SASL_AUTHENTICATE:
            return
        if ask.is_token:
            error_code, token = 0, answer[4:]
        else:
            message = decoded(answer, SASL_AUTHENTICATE, ask.version)
            error_code, token = message.error_code.value, message.auth_bytes
        self.login_failed |= error_code != 0
        # SCRAM's first answer begins so: another token must follow.
        if not error_code and ask.user is not None and not token.startswith(b"r="):
            self.user = ask.user

    def delivered(self, data: bytes | bytearray) -> None:
        """The gateway sends these bytes to the client."""
        now_ms = self.clock.monotonic_ms()
        self.to_client += data
        self.begun_ms += [now_ms] * (not self.out)
        self.out += data
        while len(self.out) >= 4:
            size = _frame_bytes(self.out)
            if size is None or len(self.out) < size:
                return
            self.answers.append((bytes(self.out[:size]), next(self.rows.ticks), now_ms))
            del self.out[:size]
            self.begun_ms += [now_ms] * bool(self.out)


def _frame_bytes(begun: bytes | bytearray) -> int | None:
    return 4 + int.from_bytes(begun[:4], "big") if len(begun) >= 4 else None


def _wants_answer(ask: Ask | None) -> bool:
    return ask is None or ask.is_answered


def mutation_topics(frame: bytes, ask: Ask) -> tuple[object, ...]:
    """The topics of a mutation request, by an independent codec."""
    message = decoded(frame, ask.key, ask.version, is_answer=False)
    return tuple(message.topics if hasattr(message, "topics") else message.topic_names)


def _is_subset(frame: bytes, ask: Ask, topics: tuple[object, ...]) -> bool:
    """True where the request is the client's without some of its topics, the others in order."""
    left = iter(ask.topics)
    if not topics or not all(any(one == topic for one in left) for topic in topics):
        return False
    asked: Any = decoded(ask.frame, ask.key, ask.version, is_answer=False)
    name = "topics" if hasattr(asked, "topics") else "topic_names"
    message = decoded(frame, ask.key, ask.version, is_answer=False)
    head = slice(4, 14 + len((ask.client_id or "").encode()))
    return frame[head] == ask.frame[head] and replace(asked, **{name: topics}) == message


def _is_lowered(frame: bytes, ask: Ask) -> bool:
    """True where only min_bytes and max_bytes differ, and neither has grown."""
    asked = decoded(ask.frame, ask.key, ask.version, is_answer=False)
    message = decoded(frame, ask.key, ask.version, is_answer=False)
    least, most = message.min_bytes, message.max_bytes
    if not ((ask.key == FETCH) <= most <= asked.max_bytes and least <= max(asked.min_bytes, 0)):
        return False
    as_asked = replace(message, min_bytes=asked.min_bytes, max_bytes=asked.max_bytes)
    pairs = enumerate(zip(frame, ask.frame, strict=False))
    differing = [at for at, (one, other) in pairs if one != other]
    only_there = not differing or differing[-1] - differing[0] < 8
    return len(frame) == len(ask.frame) and only_there and as_asked == asked
