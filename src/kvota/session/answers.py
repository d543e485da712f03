"""Broker → client: which answer belongs to which request, what it costs, what in it must change.

As in ``session.requests`` the state between chunks is "bytes left of the running answer", and
``take`` is the hot path. What needs more than a step is worked on in several: what has arrived behind it is
held, and the broker is not read on, until others have had their turn (``Do.BREATHE``, ``go_on``).
"""

from collections.abc import Callable
from functools import partial
from struct import Struct

from kvota.model.errors import ProtocolError
from kvota.session.answer_heads import bad_answer_head, needed_of_answer
from kvota.session.answers_in_steps import produce_answered, take_in_steps
from kvota.session.caller import Caller
from kvota.session.commands import Do
from kvota.session.due import Due, Entry
from kvota.session.fetch_answers import charge_fetch, charge_share_fetch
from kvota.session.pausing import Reason
from kvota.session.route import Route
from kvota.session.step_work import StepWork
from kvota.session.streamed_answer import StreamedAnswer
from kvota.session.streamed_fetch import StreamedFetch, StreamedShareFetch
from kvota.session.streamed_produce import StreamedProduce
from kvota.session.whole_answer import FREE_ANSWER_BYTES, WholeAnswer
from kvota.wire import addresses, fetch, produce, share_fetch
from kvota.wire.headers import ANSWER_HEAD
from kvota.wire.steps import Steps
from kvota.wire.varint import Frame

_HEAD = ANSWER_HEAD.unpack_from
_INT32 = Struct(">i")
_READ_INT32 = _INT32.unpack_from
_WRITE_INT32 = _INT32.pack_into

# What an answer costs that is looked into, and one that is changed, beside its bytes.
_LOOK_US, _CHANGE_US, _CHANGED_BYTES_PER_US = 10, 15, 10
# So many bytes never come: what is held is looked at when its turn has come.
_UNTIL_ITS_TURN = 1 << 62

_PLAIN_TAIL = produce.PLAIN_TAIL
# Plain ints: the interpreter compares an enum's members the slow way.
_LOCAL, _TOKEN, _EXCHANGE, _SHARE_FETCH = map(
    int, (Due.LOCAL, Due.TOKEN, Due.EXCHANGE, Due.SHARE_FETCH)
)
_FETCHES = frozenset({Due.FETCH, Due.SHARE_FETCH})
# Behind a place where the chunk ends: nothing of it is left, and what goes on of it is in ``_out``.
_STOPPED = b"", 0, 0

# The chunk, where the next answer begins in it, and from where on it goes on as it has come: what is before
# that is in ``_out``, perhaps changed. -1: it goes on as it is.
_Place = tuple[Frame, int, int]


class Answers:
    """The answers of one connection, on their way to the client.

    Attributes:
        is_held: there is more to do with what has arrived; the broker is not read before ``go_on``.
        whole: the memory for an answer that must be whole.
    """

    __slots__ = (
        "_append",
        "_buffered",
        "_caller",
        "_drops",
        "_due",
        "_need",
        "_out",
        "_pausing",
        "_spent",
        "_streamed",
        "_work",
        "is_held",
        "whole",
    )

    def __init__(self, caller: Caller, wake: Callable[[], None]) -> None:
        self._caller = caller
        self._due = caller.due
        self._pausing = caller.pausing
        self._append = caller.shared.sink.append
        self._buffered = bytearray()
        self._need = 0  # so many bytes must be buffered before it is worth to look at them
        self._out = bytearray()  # of the running chunk, what goes on in place of its beginning
        self._streamed: StreamedAnswer | None = None
        self._drops = False  # the running answer: the client has got another one in its place
        self._work: Steps[Frame] | None = None  # on the first answer that is due
        self._spent = StepWork()
        self.whole = WholeAnswer(caller, wake)
        self.is_held = False

    def take(  # noqa: C901, PLR0912, PLR0915  (hot path: one loop, see the module's docstring)
        self, data: Frame, now_us: int
    ) -> Frame | None:
        """Take the broker's bytes; returns what to forward to the client, or None.

        Raises:
            ProtocolError: the broker's bytes do not fit what was asked, or must not be forwarded.
        """
        pos, begin = 0, -1
        caller, due = self._caller, self._due
        if caller.answer_left:
            data, pos, begin = self._rest_of_answer(data)
        elif self._need:
            self._buffered += data
            if len(self._buffered) < self._need:
                return None
            data = self._unbuffered()
        end = len(data)
        while pos < end:
            if end - pos < 8 and not (end - pos >= 4 and due and due[0][1] == _TOKEN):
                need = 4 if end - pos < 4 and caller.sends_tokens else 8
                data, pos, begin = self._keep(data, pos, begin, need)
                break
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
                    raise bad_answer_head(size, correlation, entry[0])
            frame_end = pos + 4 + size
            if (
                kind == 1  # Due.PRODUCE
                and frame_end <= end
                and (data[frame_end - 9 : frame_end] == _PLAIN_TAIL or entry[2].version < 9)
            ):
                due.popleft()
                _, _, route, memo, seq, ts_us, value, throttle_ms = entry
                at = upstream_ms = 0
                if route.version >= 9:
                    at = frame_end - 5
                elif route.version:
                    at = frame_end - 4
                    upstream_ms = _READ_INT32(data, at)[0]
                self._append(
                    memo, seq, ts_us, value, throttle_ms, upstream_ms, 1 if throttle_ms > 0 else 0
                )
                if throttle_ms > upstream_ms and memo.enforced and at:
                    data = data if isinstance(data, bytearray) else bytearray(data)
                    _WRITE_INT32(data, at, route.answered_ms(memo, throttle_ms, upstream_ms))
                pos = frame_end
            elif kind == 0:  # Due.PASS
                due.popleft()
                pos = frame_end
                if pos > end:
                    caller.answer_left = pos - end
                    break
            else:
                data, pos, begin = self._take_rarer(data, pos, begin, frame_end, now_us)
                end = len(data)
            if due and due[0][1] == _LOCAL and not caller.answer_left:
                begin = self._insert_local(data, pos, begin)
        if self._pausing.reasons:
            self._paused(now_us)
        return data or None if begin < 0 else self._forwarded(data, begin)

    @property
    def kept_bytes(self) -> int:
        """Of an answer that is half here."""
        return len(self._buffered)

    # ------------------------------------------------------------------ chunks

    def _forwarded(self, data: Frame, begin: int) -> Frame | None:
        """What goes on of a chunk of which something was changed."""
        out, self._out = self._out, bytearray()
        out += data[begin:]
        return out or None

    def _goes_on(self, data: Frame, pos: int, begin: int) -> None:
        """The chunk up to ``pos`` goes on as it is."""
        self._out += data[max(begin, 0) : pos]

    def _keep(self, data: Frame, pos: int, begin: int, need: int) -> _Place:
        """Buffer ``data[pos:]`` until ``need`` bytes of it are here; forward what is before it."""
        self._buffered += data[pos:]
        self._need = need
        self._goes_on(data, pos, begin)
        return _STOPPED

    def _unbuffered(self) -> bytearray:
        data, self._buffered = self._buffered, bytearray()
        self._need = 0
        return data

    def _rest_of_answer(self, data: Frame) -> _Place:
        """The running answer goes on."""
        caller = self._caller
        if self.is_held:  # it was read all the same
            self._buffered += data
            return b"", 0, -1
        here = min(caller.answer_left, len(data))
        caller.answer_left -= here
        place = data, here, -1
        if self._drops:
            self._drops = caller.answer_left > 0
            place = data, here, here
        elif self._streamed is not None:
            place = self._stream(self._streamed, data, 0, -1, here)
        data, pos, begin = place
        if not caller.answer_left and self._due and self._due[0][1] == _LOCAL:
            begin = self._insert_local(data, pos, begin)
        return data, pos, begin

    def _insert_local(self, data: Frame, pos: int, begin: int) -> int:
        """Put the gateway's own answers in at ``pos``, where their turn has come; returns ``begin``."""
        self._goes_on(data, pos, begin)
        while self._due and self._due[0][1] == _LOCAL:
            self._out += self._due.popleft()[2]
        return pos

    def _paused(self, now_us: int) -> None:
        """The broker has answered something while the connection is paused."""
        caller = self._caller
        caller.answered_us = now_us
        in_flight_max = caller.shared.settings.in_flight_max
        if self._pausing.reasons & Reason.IN_FLIGHT and len(self._due) <= in_flight_max // 2:
            caller.commands.append((Do.RESUME, Reason.IN_FLIGHT))

    # ------------------------------------------------------------------ in steps

    def _hold(self, data: Frame, pos: int) -> None:
        """Others come first: what of the chunk is not looked at yet waits for ``go_on``."""
        self._buffered += data[pos:]
        self._need = _UNTIL_ITS_TURN
        self.is_held = True
        self._caller.commands.append((Do.BREATHE, None))

    def go_on(self, now_us: int) -> Frame | None:
        """Others have had their turn; returns what to forward to the client.

        Raises:
            ProtocolError: as ``take``.
        """
        if not self.is_held:
            return None
        self.is_held = False
        if self._work is not None:
            try:
                next(self._work)
            except StopIteration as done:
                self._work = None
                self._due.popleft()
                self.whole.leave()
                self._out += done.value
                self._insert_local(b"", 0, 0)
            else:
                self._hold(b"", 0)
                return None
        before, self._out = self._out, bytearray()
        before += self.take(self._unbuffered(), now_us) or b""
        return before or None

    def _take_in_steps(
        self, steps: Steps[Frame], frame: Frame, entry: Entry, place: _Place, frame_end: int
    ) -> tuple[_Place, bool]:
        """Take an answer that is here whole; one step is done now, the others (if any) later.

        Returns:
            Where the next one begins, and whether it was changed.
        """
        data, pos, begin = place
        self._due.popleft()
        try:
            next(steps)
        except StopIteration as done:
            instead = done.value
        except ProtocolError:
            self._due.appendleft(entry)  # so that its charges are recorded as unanswered
            raise
        else:
            self._due.appendleft(entry)  # it keeps its place before what the gateway answers itself
            self._work = steps
            self._goes_on(data, pos, begin)
            self._hold(data, frame_end)
            return _STOPPED, True
        self.whole.leave()
        if instead is frame:
            return (data, frame_end, begin), False
        if frame is data and begin < 0:
            return (instead, len(instead), -1), True
        self._goes_on(data, pos, begin)
        self._out += instead
        return (data, frame_end, frame_end), True

    # ------------------------------------------------------------------ one answer

    def _take_rarer(self, data: Frame, pos: int, begin: int, frame_end: int, now_us: int) -> _Place:
        """Take an answer that is neither a plain Produce's nor passed on as it is; perhaps only its beginning."""
        entry = self._due[0]
        size, available = frame_end - pos - 4, len(data) - pos
        need = needed_of_answer(entry, size, available, self._caller.shared)
        if need:
            if need <= FREE_ANSWER_BYTES:
                return self._keep(data, pos, begin, need)
            if entry[1] == _EXCHANGE and entry[2].has_front:
                return self._take_front(data, pos, begin, frame_end)
            self.whole.take(need)
            return self._keep(data, pos, begin, need)
        if entry[1] in _FETCHES:
            place, is_changed = self._take_fetch((data, pos, begin), frame_end, entry, now_us)
        elif available < size + 4:
            return self._begin_produce(data, pos, begin, frame_end)
        else:
            is_all = not pos and frame_end == len(data)
            frame = data if is_all else bytes(data[pos:frame_end])
            steps = take_in_steps(self._caller, frame, entry, now_us)
            place, is_changed = self._take_in_steps(
                steps, frame, entry, (data, pos, begin), frame_end
            )
        work_us = _CHANGE_US + size // _CHANGED_BYTES_PER_US if is_changed else _LOOK_US
        data, pos, begin = place
        if pos < len(data) and self._spent.is_enough(work_us, now_us):
            self._goes_on(data, pos, begin)
            self._hold(data, pos)
            return _STOPPED
        return place

    def _take_front(self, data: Frame, pos: int, begin: int, frame_end: int) -> _Place:
        """A large answer of which only the beginning matters: behind that it goes on while it arrives."""
        here = len(data) - pos
        front = None
        if here >= FREE_ANSWER_BYTES:
            front = self._due[0][2].front(self._caller, data[pos:])
        if front is None:
            need = min(max(FREE_ANSWER_BYTES, 2 * here), addresses.METADATA_FRONT_BYTES_MAX)
            return self._keep(data, pos, begin, need)
        self._due.popleft()
        self._goes_on(data, pos, begin)
        instead, replaced_bytes = front
        self._out += instead
        self._caller.answer_left = frame_end - len(data)
        return data, len(data), pos + replaced_bytes

    def _begin_produce(self, data: Frame, pos: int, begin: int, frame_end: int) -> _Place:
        """A large Produce answer of which not all is here: it goes on while it arrives, but for its end."""
        entry = self._due[0]
        route: Route = entry[2]
        self._caller.answer_left = frame_end - len(data)
        answered = partial(produce_answered, self._caller, entry)
        self._streamed = StreamedProduce(route.version, frame_end - pos, answered)
        return self._stream(self._streamed, data, pos, begin, len(data))

    def _take_fetch(
        self, place: _Place, frame_end: int, entry: Entry, now_us: int
    ) -> tuple[_Place, bool]:
        """Charge an answer of which at least the head is here; patch, hide or drop what must be."""
        data, pos, begin = place
        route: Route = entry[2]
        is_shared = entry[1] == _SHARE_FETCH
        if is_shared:
            instead = b""
            data = charge_share_fetch(self._caller, data, pos, frame_end, entry, now_us)
        else:
            data, instead = charge_fetch(self._caller, data, pos, frame_end, entry, now_us)
        here = min(frame_end, len(data))
        is_walked = not instead and route.has_endpoints
        if is_walked and here == frame_end:
            if is_shared:
                is_walked = not data.endswith(share_fetch.PLAIN_TAIL, pos, here)
            else:
                is_walked = not fetch.tail_has_no_endpoints(data[here - fetch.TAIL_BYTES : here])
            if is_walked:
                frame = data if not pos and here == len(data) else bytes(data[pos:here])
                address_of = self._caller.address_of
                steps = addresses.rewrite_in_steps(frame, route.key, route.version, address_of)
                return self._take_in_steps(steps, frame, entry, (data, pos, begin), here)
        self._due.popleft()
        self._caller.answer_left = frame_end - here
        if instead:
            self._drops = frame_end > here
            self._goes_on(data, pos, begin)
            self._out += instead
            return (data, here, here), True
        if not is_walked:
            return (data, here, begin), False
        self._streamed = (StreamedShareFetch if is_shared else StreamedFetch)(route.version)
        return self._stream(self._streamed, data, pos, begin, here), False

    def _stream(
        self, streamed: StreamedAnswer, data: Frame, pos: int, begin: int, here: int
    ) -> _Place:
        """The next part of a streamed answer, ``data[pos:here]``, goes on but for its end."""
        part = data if not pos and here == len(data) else data[pos:here]
        is_last = self._caller.answer_left == 0
        goes_on, used_bytes = streamed.feed(part, is_last=is_last)
        if used_bytes == len(part) and is_last:
            self._streamed = None
        if goes_on is data and begin < 0:
            return data, here, -1
        self._goes_on(data, pos, begin)
        self._out += goes_on
        if used_bytes < len(part):
            self._caller.answer_left += len(part) - used_bytes
            self._hold(data, pos + used_bytes)
            return _STOPPED
        return data, here, here

    def close(self) -> None:
        """The connection is over."""
        self._buffered.clear()
        self._work = None
        self.whole.close()
