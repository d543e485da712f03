"""Broker → client: which answer belongs to which request, what it costs, what in it must change.

As in ``session.requests`` the state between chunks is "bytes left of the running answer", and
``take`` is the hot path.
"""

from collections.abc import Callable
from functools import partial
from struct import Struct

from kvota.model.errors import ProtocolError
from kvota.session.budget import BudgetShare
from kvota.session.caller import Caller
from kvota.session.charged_produce import append_rows
from kvota.session.commands import Do
from kvota.session.due import Due, Entry
from kvota.session.fetch_answers import charge_fetch
from kvota.session.pausing import Reason
from kvota.session.route import Route
from kvota.session.streamed_answer import StreamedAnswer
from kvota.session.streamed_fetch import StreamedFetch
from kvota.session.streamed_produce import StreamedProduce
from kvota.wire import addresses, fetch, produce
from kvota.wire.headers import ANSWER_HEAD

_HEAD = ANSWER_HEAD.unpack_from
_INT32 = Struct(">i")
_READ_INT32 = _INT32.unpack_from
_WRITE_INT32 = _INT32.pack_into

# Fetch and Produce answers up to this size wait until they are whole, larger ones are streamed.
BUFFERED_FETCH_BYTES_MAX = 131_072
# A walk over so much of an answer, or over so many of its parts, is enough for one step.
_WALKED_BYTES_MAX, _WALKED_PARTS_MAX = 16_384, 500
# Of a larger one this much must be here: its head, with tags, its throttle time, its error and its session.
_FETCH_HEAD_BYTES = 72
# Answers that must be read whole (Metadata of 1.5 million partitions): a copy of more would hold up others.
WHOLE_ANSWER_BYTES_MAX = 64 * 2**20
# Of these, larger ones than this share a budget; others are here with one read.
_FREE_ANSWER_BYTES = 262_144

_PLAIN_TAIL = produce.PLAIN_TAIL
_STREAMED = frozenset({Due.FETCH, Due.PRODUCE})
# Plain ints: the interpreter compares an enum's members the slow way.
_LOCAL, _TOKEN = int(Due.LOCAL), int(Due.TOKEN)


class Answers:
    """The answers of one connection, on their way to the client.

    Attributes:
        waits_for_room: others fill the memory for whole answers; the broker is not read meanwhile.
    """

    __slots__ = (
        "_append",
        "_buffered",
        "_caller",
        "_drops",
        "_due",
        "_need",
        "_pausing",
        "_room",
        "_streamed",
        "waits_for_room",
    )

    def __init__(self, caller: Caller, wake: Callable[[], None]) -> None:
        self._caller = caller
        self._due = caller.due
        self._pausing = caller.pausing
        self._append = caller.shared.sink.append
        self._buffered = bytearray()
        self._need = 0  # so many bytes must be buffered before it is worth to look at them
        self._streamed: StreamedAnswer | None = None
        self._drops = False  # the running answer: the client has got another one in its place
        self._room = BudgetShare(caller.shared.whole_answers, wake)
        self.waits_for_room = False

    def take(  # noqa: C901, PLR0911, PLR0912, PLR0915  (hot path: one loop, see the module's docstring)
        self, data: bytes | bytearray, now_us: int
    ) -> bytes | bytearray | None:
        """Take the broker's bytes; returns what to forward to the client, or None.

        Raises:
            ProtocolError: the broker's bytes do not fit what was asked, or must not be forwarded.
        """
        pos = 0
        caller, due = self._caller, self._due
        if caller.answer_left:
            data, pos = self._rest_of_answer(data)
        elif self._need:
            self._buffered += data
            if len(self._buffered) < self._need:
                return None
            data = bytes(self._buffered)
            self._buffered.clear()
            self._need = 0
            if self._room.taken_bytes or self.waits_for_room:
                self._leave_room()
        end = len(data)
        while pos < end:
            available = end - pos
            if available < 8 and not (available >= 4 and due and due[0][1] == _TOKEN):
                return self._keep(data, pos, 4 if available < 4 and caller.sends_tokens else 8)
            if not due:
                msg = "the broker sent an answer to nothing"
                raise ProtocolError(msg)
            entry = due[0]
            kind = entry[1]
            if kind == _TOKEN:
                size = _READ_INT32(data, pos)[0]
            else:
                size, correlation = _HEAD(data, pos)
                if correlation != entry[0] or size < 4:
                    raise _bad_head(size, correlation, entry[0])
            frame_end = pos + 4 + size
            if kind == 1:  # Due.PRODUCE
                if frame_end > end:
                    need = _needed(kind, size, available)
                    if need:
                        return self._keep(data, pos, need)
                    return self._begin_produce(data, pos, frame_end, entry)
                _, _, route, memo, seq, ts_us, value, throttle_ms = entry
                if route.version >= 9:
                    at = frame_end - 5
                    upstream_ms = 0
                    if data[frame_end - 9 : frame_end] != _PLAIN_TAIL:
                        data, frame_end, at = self._walk_produce(data, pos, frame_end, route)
                        end = len(data)
                        upstream_ms = _READ_INT32(data, at)[0]
                elif route.version:
                    at = frame_end - 4
                    upstream_ms = _READ_INT32(data, at)[0]
                else:
                    at = upstream_ms = 0
                due.popleft()  # not before: what cannot be read is recorded as unanswered
                self._append(
                    memo, seq, ts_us, value, throttle_ms, upstream_ms, 1 if throttle_ms > 0 else 0
                )
                if throttle_ms > upstream_ms and memo.enforced and at:
                    data = data if isinstance(data, bytearray) else bytearray(data)
                    _WRITE_INT32(data, at, route.answered_ms(memo, throttle_ms, upstream_ms))
            elif kind == 0:  # Due.PASS
                due.popleft()
                if frame_end > end:
                    caller.answer_left = frame_end - end
                    return data
            else:
                need = _needed(kind, size, available)
                if need:
                    if need > _FREE_ANSWER_BYTES:
                        self._take_room(need)
                    return self._keep(data, pos, need)
                data = self._take_rarer(data, pos, frame_end, entry, now_us)
                if caller.answer_left:
                    return data
                frame_end += len(data) - end  # something in it was replaced, its size may differ
                end = len(data)
            pos = frame_end
            if due and due[0][1] == _LOCAL:
                data, pos = self._insert_local(data, pos)
                end = len(data)
        if self._pausing.reasons:
            self._paused(now_us)
        return data or None

    # ------------------------------------------------------------------ chunks

    def _keep(self, data: bytes | bytearray, pos: int, need: int) -> bytes | bytearray | None:
        """Buffer ``data[pos:]`` until ``need`` bytes of it are here; forward what is before it."""
        self._buffered += data[pos:]
        self._need = need
        return data[:pos] if pos else None

    def _take_room(self, need: int) -> None:
        """An answer that is kept until it is whole: without room for it the broker is read no further."""
        if not self._room.take(need, self._caller.user) and not self.waits_for_room:
            self.waits_for_room = True
            self._caller.commands.append((Do.READ_UPSTREAM, False))

    def _leave_room(self) -> None:
        """It is whole (what had been read before the broker was left may have been all of it)."""
        self._room.leave()
        self.woken()

    def woken(self) -> None:
        """There may be room now."""
        if self.waits_for_room and (
            not self._need or self._room.take(self._need, self._caller.user)
        ):
            self.waits_for_room = False
            self._caller.commands.append((Do.READ_UPSTREAM, True))

    def pass_on(self) -> None:
        """Who was woken and has no use for the room lets the next one have it."""
        self._room.pass_on()

    def _rest_of_answer(self, data: bytes | bytearray) -> tuple[bytes | bytearray, int]:
        """The running answer goes on: the chunk as the client gets it, and where the next begins."""
        caller = self._caller
        here = min(caller.answer_left, len(data))
        caller.answer_left -= here
        if self._drops:
            self._drops = caller.answer_left > 0
            data, here = data[here:], 0
        elif self._streamed is not None:
            rest = data[here:]
            data = self._stream(data[:here] if rest else data)
            here = len(data)
            if rest:
                data = bytes(data) + rest
        if not caller.answer_left and self._due and self._due[0][1] == _LOCAL:
            return self._insert_local(data, here)
        return data, here

    def _insert_local(self, data: bytes | bytearray, pos: int) -> tuple[bytes | bytearray, int]:
        """Put the gateway's own answers in at ``pos``, where their turn has come."""
        own = b""
        while self._due and self._due[0][1] == _LOCAL:
            own += self._due.popleft()[2]
        return bytes(data[:pos]) + own + bytes(data[pos:]), pos + len(own)

    def _paused(self, now_us: int) -> None:
        """The broker has answered something while the connection is paused."""
        caller = self._caller
        caller.answered_us = now_us
        in_flight_max = caller.shared.settings.in_flight_max
        if self._pausing.reasons & Reason.IN_FLIGHT and len(self._due) <= in_flight_max // 2:
            caller.commands.append((Do.RESUME, Reason.IN_FLIGHT))

    # ------------------------------------------------------------------ one answer

    def _walk_produce(
        self, data: bytes | bytearray, pos: int, frame_end: int, route: Route
    ) -> tuple[bytes | bytearray, int, int]:
        """A Produce answer with a throttle time, tags or endpoints: hide addresses, find the field.

        Returns:
            The chunk, the answer's end in it, and where its throttle time stands.
        """
        if frame_end - pos > _WALKED_BYTES_MAX:
            self._caller.breathe()
        frame = self._without_addresses(bytes(data[pos:frame_end]), route)
        data = bytes(data[:pos]) + frame + bytes(data[frame_end:])
        return data, pos + len(frame), pos + produce.throttle_offset(frame, route.version)

    def _begin_produce(
        self, data: bytes | bytearray, pos: int, frame_end: int, entry: Entry
    ) -> bytes | bytearray:
        """A large Produce answer of which not all is here: it goes on while it arrives, but for its end."""
        route: Route = entry[2]
        self._caller.answer_left = frame_end - len(data)
        answered = partial(self._produce_answered, entry)
        self._streamed = StreamedProduce(route.version, frame_end - pos, answered)
        return bytes(data[:pos]) + self._stream(data[pos:])

    def _produce_answered(self, entry: Entry, upstream_ms: int) -> int:
        """All of it is here: record its charge; returns what the client is told."""
        route: Route = entry[2]
        _, _, _, memo, seq, ts_us, value, throttle_ms = entry
        self._due.popleft()  # not before: what cannot be read is recorded as unanswered
        self._caller.append_row(memo, seq, ts_us, value, throttle_ms, upstream_ms)
        if throttle_ms > upstream_ms and memo.enforced:
            return route.answered_ms(memo, throttle_ms, upstream_ms)
        return upstream_ms

    def _without_addresses(self, frame: bytes, route: Route) -> bytes:
        if not route.has_endpoints:
            return frame
        address_of = self._caller.shared.topology.address_of
        return addresses.rewrite(frame, route.key, route.version, address_of)

    def _take_rarer(
        self, data: bytes | bytearray, pos: int, frame_end: int, entry: Entry, now_us: int
    ) -> bytes | bytearray:
        """An answer that is neither a usual Produce's nor passed on as it is: the chunk for the client."""
        self._due.popleft()
        if entry[1] == Due.FETCH:
            return self._take_fetch(data, pos, frame_end, entry, now_us)
        frame = bytes(data[pos:frame_end])
        try:
            if entry[1] == Due.CHARGED:
                instead = self._take_charged(frame, entry)
            else:
                instead = entry[2].answered(self._caller, frame, now_us)
        except ProtocolError:
            self._due.appendleft(entry)  # so that its charges are recorded as unanswered
            raise
        if instead is frame:
            return data
        return bytes(data[:pos]) + instead + bytes(data[frame_end:])

    def _take_charged(self, frame: bytes, entry: Entry) -> bytes:
        """The answer to a Produce with several charges: the longest throttle is what the client gets."""
        _, _, route, charges = entry
        frame = self._without_addresses(frame, route)
        upstream_ms = at = 0
        if route.version:
            at = produce.throttle_offset(frame, route.version)
            upstream_ms = _READ_INT32(frame, at)[0]
        append_rows(self._caller, charges, upstream_ms)
        mute_ms = max(charge.mute_ms for charge in charges)
        if mute_ms <= upstream_ms or not at:
            return frame
        answered_ms = route.answered_ms(charges[-1].memo, mute_ms, upstream_ms)
        return frame[:at] + _INT32.pack(answered_ms) + frame[at + 4 :]

    def _take_fetch(
        self, data: bytes | bytearray, pos: int, frame_end: int, entry: Entry, now_us: int
    ) -> bytes | bytearray:
        """Charge an answer of which at least the head is here; patch, hide or drop what must be."""
        route: Route = entry[2]
        data, instead = charge_fetch(self._caller, data, pos, frame_end, entry, now_us)
        end = len(data)
        self._caller.answer_left = max(0, frame_end - end)
        if instead:
            self._drops = frame_end > end
            return bytes(data[:pos]) + instead + bytes(data[frame_end:])
        if not route.has_endpoints:
            return data
        if frame_end <= end:
            if fetch.tail_has_no_endpoints(data[frame_end - 6 : frame_end]):
                return data
            frame = self._without_addresses(bytes(data[pos:frame_end]), route)
            return bytes(data[:pos]) + frame + bytes(data[frame_end:])
        self._streamed = StreamedFetch(route.version)
        return bytes(data[:pos]) + self._stream(data[pos:])

    def _stream(self, part: bytes | bytearray) -> bytes | bytearray:
        """The next part of a streamed answer, as it goes on."""
        streamed = self._streamed
        assert streamed is not None
        is_last = self._caller.answer_left == 0
        parts = streamed.parts
        goes_on = streamed.feed(part, is_last=is_last)
        if streamed.parts - parts > _WALKED_PARTS_MAX:
            self._caller.breathe()
        if is_last:
            self._streamed = None
        return goes_on

    def close(self) -> None:
        """The connection is over."""
        self._buffered.clear()
        self._room.leave()
        self._room.close()


def _needed(kind: int, size: int, available: int) -> int:
    """How much of an answer must be here before it is looked at; 0: enough of it is."""
    if kind not in _STREAMED and not 0 <= size <= WHOLE_ANSWER_BYTES_MAX:
        msg = (
            f"the broker announced an answer of {size} bytes; of this kind "
            f"{WHOLE_ANSWER_BYTES_MAX} are taken"
        )
        raise ProtocolError(msg)
    if available >= size + 4:
        return 0
    if kind not in _STREAMED or size + 4 <= BUFFERED_FETCH_BYTES_MAX:
        return size + 4
    return 0 if available >= _FETCH_HEAD_BYTES else _FETCH_HEAD_BYTES


def _bad_head(size: int, correlation: int, due: int) -> ProtocolError:
    if correlation != due:
        return ProtocolError(f"the broker answered request {correlation}, {due} was due")
    return ProtocolError(f"the broker announced an answer of {size} bytes")
