"""Client → broker: which bytes go on, what they cost, and where to stop.

The state between chunks is only "bytes left of the running frame", so a received chunk is forwarded as
it is; it is copied only where something in it must change. ``take`` is the hot path: a request with its
answer has about 3 µs of Python in all, hence plain tuples, heads read in place and one long loop.
"""

from collections.abc import Callable
from struct import Struct

from kvota.model.decision_sink import NO_ANSWER
from kvota.session.budget import BudgetShare
from kvota.session.caller import Caller
from kvota.session.charged_produce import AdmittedProduce, take_charged_produce
from kvota.session.counted_produce import CountedProduce
from kvota.session.due import Due
from kvota.session.edited_chunk import edited, joined
from kvota.session.exchanges.exchange import RequestHead
from kvota.session.exchanges.login import Token
from kvota.session.exchanges.own_node import is_known, look_up
from kvota.session.exchanges.table import EXCHANGES
from kvota.session.fetch_requests import take_fetch
from kvota.session.heads import bad_client_id, bad_first_size, bad_size, read_acks
from kvota.session.init_producer_ids import is_transactional
from kvota.session.line_place import LinePlace
from kvota.session.new_route import new_route
from kvota.session.over_limit import ProduceHead, take_over_limit
from kvota.session.pausing import Reason
from kvota.session.route import Kind, Route
from kvota.session.share_fetch_requests import take_share_fetch
from kvota.session.unfinished import Unfinished
from kvota.wire.apis import API_VERSIONS, APIS, SASL_AUTHENTICATE
from kvota.wire.headers import REQUEST_HEAD_BYTES, REQUEST_SIZE_MIN

# size, key and version as one number, correlation id, length of the client id
_HEAD = Struct(">iIih").unpack_from
_READ_INT32 = Struct(">i").unpack_from

# A frame that has not arrived whole is forwarded only when this much of it is here: a client that
# announces much and sends little costs the broker nothing (it allocates what is announced).
EVIDENCE_BYTES = 16_384
# Each name has a counter for an hour and stands in every batch of rows; real ones are below 100 bytes.
CLIENT_ID_BYTES_MAX = 1_024

# Plain ints: the interpreter compares an enum's members the slow way.
_PASS, _PRODUCE, _FETCH, _EXCHANGE = map(int, (Due.PASS, Due.PRODUCE, Due.FETCH, Due.EXCHANGE))
_IN_FLIGHT, _BUDGET, _IN_LINE = map(int, (Reason.IN_FLIGHT, Reason.BUDGET, Reason.IN_LINE))
_NO_ACKS = b"\x00\x00"
# What requests cost at the worst that are not as usual; of the last kind some have to be looked through.
_ACKS_US, _OVER_LIMIT_US, _RARER_US, _RARER_BYTES_PER_US = 5, 5, 15, 500
_CHARGED_PRODUCE, _INIT_PRODUCER_ID = int(Kind.CHARGED_PRODUCE), int(Kind.INIT_PRODUCER_ID)
_FETCH_KIND, _SHARE_FETCH_KIND = int(Kind.FETCH), int(Kind.SHARE_FETCH)
_EXCHANGE_KIND = int(Kind.EXCHANGE)
# Of these what is here goes on while the rest arrives; others must be whole.
_GO_ON_AT_ONCE = frozenset(Kind) - {Kind.FETCH, Kind.SHARE_FETCH, Kind.EXCHANGE}


class Requests:
    """The requests of one connection, on their way to the broker.

    Attributes:
        left: bytes of the running frame that have not come yet.
        swallowed_bytes: the running frame's size where it goes nowhere: the broker has none of it.
        buffered: received and not forwarded: half a head, or what waits while the connection pauses.
        count: requests taken so far.
        budget: what the running frame takes of the broker's announced-bytes budget.
        place: in the line of a counter that owes too much.
        unfinished: the running frame's charge.
    """

    __slots__ = (
        "_append_row",
        "_caller",
        "_counted",
        "_due",
        "_in_flight_max",
        "_need",
        "_next_seq",
        "_pausing",
        "_routes",
        "budget",
        "buffered",
        "count",
        "left",
        "place",
        "swallowed_bytes",
        "unfinished",
    )

    def __init__(self, caller: Caller, wake: Callable[[], None]) -> None:
        self._caller = caller
        self._pausing = caller.pausing
        self._routes = caller.routes
        self._due = caller.due
        self._next_seq = caller.shared.sink.next_seq
        self._append_row = caller.append_row
        self._in_flight_max = caller.shared.settings.in_flight_max
        self._need = 0  # so many bytes must be buffered before it is worth to look at them
        self.buffered = bytearray()
        self.budget = BudgetShare(caller.shared.budgets.of(caller.dialled), wake)
        self.place = LinePlace(caller, wake)
        self.unfinished = Unfinished(caller)
        self._counted = CountedProduce(caller, self.budget, self.place, self.unfinished)
        self.count = 0
        self.left = 0
        self.swallowed_bytes = 0

    def take(  # noqa: C901, PLR0911, PLR0912, PLR0915  (hot path: one loop, see the module's docstring)
        self, data: bytes | bytearray, now_us: int
    ) -> bytes | bytearray | None:
        """Take received bytes; returns what to forward upstream, or None.

        Raises:
            ProtocolError: the bytes are no Kafka requests, or over a limit; the connection must close.
        """
        pos = self.left
        if pos:
            data, pos = self._rest_of_frame(data, pos, now_us)
        elif self._need:
            self.buffered += data
            if self._pausing.reasons or len(self.buffered) < self._need:
                return None
            data = self._unbuffered(now_us)
            if self._caller.sends_tokens:
                return self._take_token(data, now_us)

        end = len(data)
        due, pausing, routes = self._due, self._pausing, self._routes
        in_flight_max = self._in_flight_max
        ahead: bytearray | None = None  # goes up in place of data[:begin], where the two differ
        begin = 0
        while pos < end:
            if pausing.reasons:
                return self._keep(data, pos, 1, ahead, begin, now_us)
            if end - pos < REQUEST_HEAD_BYTES:
                self._check_early(data, pos)
                return self._keep(data, pos, REQUEST_HEAD_BYTES, ahead, begin, now_us)
            size, key_version, correlation, client_id_length = _HEAD(data, pos)
            route = routes.get(key_version)
            if route is None:
                self._check_early(data, pos)
                route = routes.get(key_version) or self._new_route(key_version)
            if not REQUEST_SIZE_MIN <= size <= route.size_max:
                raise bad_size(size, route)
            kind = route.kind
            frame_end = pos + 4 + size
            if frame_end > end:
                need = self._needed(route, size, data, pos, now_us)
                if need:
                    return self._keep(data, pos, need, ahead, begin, now_us)
                if kind == 1:  # Kind.PRODUCE, of which only a part is here
                    kind = _CHARGED_PRODUCE
            body = pos + 14 + (client_id_length if client_id_length > 0 else 0)  # noqa: FURB136  (a call)
            if not -1 <= client_id_length <= CLIENT_ID_BYTES_MAX or body > end or body > frame_end:
                raise bad_client_id(client_id_length, CLIENT_ID_BYTES_MAX, route)
            if kind == 1 or (  # Kind.PRODUCE, or COUNTED_PRODUCE of a producer that is known
                kind == 5
                and frame_end <= end
                and self._counted.knows(data, body, frame_end, route, now_us)
            ):
                if pausing.passing_until_us and pausing.mute_again(now_us):
                    self.budget.give_back()  # taken anew when the mute is over
                    return self._keep(data, pos, 1, ahead, begin, now_us)
                client_id = data[pos + 14 : body]
                if client_id != route.client_id or route.lane_version != route.lane.version:
                    if not look_up(self._caller, route, client_id, now_us):
                        return self._keep(data, pos, 1, ahead, begin, now_us)
                    if route.kind != kind:
                        continue  # its producer ids are counted now, or no longer
                acks = data[body + 2 : body + 4]
                if data[body : body + 2] != route.no_transaction:
                    acks = read_acks(data, pos, frame_end, client_id_length, route)
                    self._caller.spend(_ACKS_US, now_us)
                throttle_ms = route.charge(size, now_us // 1000)
                if throttle_ms:
                    head = ProduceHead(correlation, size, acks != _NO_ACKS)
                    if not self._take_over_limit(route, head, throttle_ms, now_us):
                        return self._keep(data, pos, 1, ahead, begin, now_us)
                elif acks == _NO_ACKS:  # answered by nobody
                    self._append_row(route.memo, self._next_seq(), now_us, size, 0, NO_ANSWER)
                else:
                    seq = self._next_seq()
                    due.append((correlation, _PRODUCE, route, route.memo, seq, now_us, size, 0))
            elif kind == 0:  # Kind.PASS
                due.append((correlation, _PASS, route))
                route.count.add(size)
                if pausing.passing_until_us:
                    pausing.mute_again(now_us)
            else:
                instead = self._take_rarer(data, pos, body, route, now_us)
                if instead is None:
                    return self._keep(data, pos, size + 4, ahead, begin, now_us)
                route.count.add(size)
                if instead is not data:
                    ahead = edited(ahead, data[begin:pos], instead)
                    begin = frame_end
                if pausing.passing_until_us:
                    pausing.mute_again(now_us)
            self.count += 1
            pos = frame_end
            if len(due) > in_flight_max:
                pausing.reasons |= _IN_FLIGHT
        if pos > end:
            self.left = pos - end
        return data if ahead is None else joined(ahead, data, begin)

    def _keep(
        self,
        data: bytes | bytearray,
        pos: int,
        need: int,
        ahead: bytearray | None,
        begin: int,
        now_us: int,
    ) -> bytes | bytearray | None:
        """Buffer ``data[pos:]`` until ``need`` bytes of it are here; forward what is before it."""
        if not self.buffered and (pos or self.place.taken_us != now_us):  # else looked at again
            self.place.kept_us = now_us
        self.buffered += data[pos:]
        self._need = need
        return (data[:pos] if ahead is None else joined(ahead, data[:pos], begin)) or None

    def go_on(self, now_us: int) -> bytes | bytearray | None:
        """A reason to pause is over: take what is buffered, unless there is another one."""
        reasons = self._pausing.reasons
        if reasons:
            if not reasons & _IN_LINE:
                self.place.let_pass()
                self._caller.fetch_room.let_pass()
            return None
        self.place.resumed_us = now_us
        if not self.buffered:
            # A token is buffered first, so that ``take`` need not look for one in every chunk.
            self._need = int(self._caller.sends_tokens)
            return None
        self._need = min(self._need, len(self.buffered))
        count = self.count
        forwarded = self.take(b"", now_us)
        if self.count != count and not self._pausing.reasons & _IN_LINE:
            self.place.leave()  # what has waited went on, perhaps without a turn
        return forwarded

    def _unbuffered(self, now_us: int) -> bytes:
        self.place.taken_us = now_us
        data = bytes(self.buffered)
        self.buffered.clear()
        self._need = 0
        if len(data) >= 4 and len(data) - 4 >= _READ_INT32(data)[0] >= self.budget.taken_bytes:
            self.budget.give_back()  # it was for a frame that had to be whole, and now is
        return data  # else there is more to it: its producer ids are decided on

    def _rest_of_frame(
        self, data: bytes | bytearray, left: int, now_us: int
    ) -> tuple[bytes | bytearray, int]:
        """The running frame goes on: what is forwarded or left of the chunk, and where the next begins."""
        here = min(left, len(data))
        self.left = left - here
        if not self.left:
            self.budget.give_back()
            self.unfinished.end(now_us)
        if self.swallowed_bytes:
            if not self.left:
                self.swallowed_bytes = 0
                self._counted.tell_at_end(now_us)
            return data[here:], 0
        return data, here

    # ------------------------------------------------------------------ rarer requests

    def _take_over_limit(
        self, route: Route, head: ProduceHead, throttle_ms: int, now_us: int
    ) -> bool:
        self._caller.spend(_OVER_LIMIT_US, now_us)
        if take_over_limit(self._caller, self.place, route, head, throttle_ms, now_us):
            return True
        self.budget.give_back()  # taken anew at its turn
        return False

    def _take_rarer(
        self, data: bytes | bytearray, pos: int, body: int, route: Route, now_us: int
    ) -> bytes | bytearray | None:
        """Take a request that is neither a usual Produce nor passed on as it is.

        Returns:
            What goes up instead of the part of it that is here; ``data`` itself: it goes on as it is;
            None: it is kept back for now.
        """
        size, _, correlation, _ = _HEAD(data, pos)
        frame_end = pos + 4 + size
        work_us = _RARER_US
        if frame_end <= len(data):  # else it is not looked through, and may be kept as it is
            work_us += (frame_end - pos) // _RARER_BYTES_PER_US
        self._caller.spend(work_us, now_us)
        if route.kind == _EXCHANGE_KIND:
            passing = self._pausing.passing_until_us and route.is_permissive
            if passing and self._pausing.mute_again(now_us):
                return None
            is_ready = is_known(self._caller, route, data[pos + REQUEST_HEAD_BYTES : body])
            if not is_ready or not self._caller.has_room(route, data, pos, size, now_us):
                return None
            head = RequestHead(route.key, route.version, correlation)
            begin = EXCHANGES[route.key].begin
            return begin(self._caller, head, bytes(data[pos:frame_end]), now_us)
        if route.kind == _INIT_PRODUCER_ID:
            self._count_init(data, body, frame_end, route, now_us)
            self._due.append((correlation, _PASS, route))
            return data
        client_id = data[pos + REQUEST_HEAD_BYTES : body]
        is_new = client_id != route.client_id or route.lane_version != route.lane.version
        if is_new and not look_up(self._caller, route, client_id, now_us):
            return None
        if route.kind == _FETCH_KIND:
            instead = take_fetch(self._caller, data, pos, body, route, now_us)
        elif route.kind == _SHARE_FETCH_KIND:
            instead = take_share_fetch(self._caller, data, pos, body, route, now_us)
        else:
            instead = self._take_produce(route, data, bytes(data[pos:frame_end]), now_us)
        if instead == b"":  # answered by the gateway, or decided on in steps
            self._swallow(size, frame_end - len(data))
        return instead

    def _count_init(
        self, data: bytes | bytearray, body: int, frame_end: int, route: Route, now_us: int
    ) -> None:
        caller = self._caller
        if caller.is_stranger:
            return
        here = min(frame_end, len(data))
        with_id = is_transactional(data, body, here, flexible=route.flexible)
        inits = caller.shared.init_producer_ids
        inits.add(caller.principal.name, now_us // 1000, is_transactional=with_id)

    def _take_produce(
        self, route: Route, data: bytes | bytearray, frame: bytes, now_us: int
    ) -> bytes | bytearray | None:
        if route.ids_rate is not None:
            instead = self._counted.take(route, frame, now_us)
            if instead is frame:
                return data
        else:
            is_here = len(frame) == int.from_bytes(frame[:4], "big") + 4
            if is_here:
                self.budget.give_back()  # its producer ids were counted when it began
            produce = take_charged_produce(self._caller, self.place, route, frame, now_us)
            if isinstance(produce, AdmittedProduce):
                self.unfinished.admit(produce, now_us, is_here=is_here)
                self.place.leave()
                return data
            instead = produce
        # Else the rest of it must be here first, or all of it is memory here and is decided on at its turn.
        size = int.from_bytes(frame[:4], "big")
        if instead is None and self._pausing.reasons and self.budget.taken_bytes <= size:
            self.budget.give_back()  # taken anew at its turn
        return instead

    def _swallow(self, size: int, rest_bytes: int) -> None:
        """The running frame goes nowhere, and what still comes of it neither: its room is free."""
        self.swallowed_bytes = size if rest_bytes > 0 else 0
        if self._caller.at_work is None:
            self.budget.give_back()

    def _take_token(self, data: bytes | bytearray, now_us: int) -> bytes | bytearray | None:
        """Take one login token without Kafka's header (SaslHandshake v0).

        Raises:
            ProtocolError: it announces more bytes than any token has.
        """
        frame_bytes = Token.frame_bytes(data)
        if len(data) < frame_bytes:  # a large one takes room, as it does in a request
            route = self._new_route(SASL_AUTHENTICATE << 16)
            need = self._needed(route, frame_bytes - 4, data, 0, now_us)
            return self._keep(data, 0, need, None, 0, now_us)
        if self._pausing.reasons:
            return self._keep(data, 0, frame_bytes, None, 0, now_us)
        head = RequestHead(SASL_AUTHENTICATE, 0, 0)  # it has none
        Token.begin(self._caller, head, bytes(data[:frame_bytes]), now_us)
        if len(data) == frame_bytes:
            return data
        return self._keep(data, frame_bytes, 1, None, 0, now_us)

    # ------------------------------------------------------------------ routes, sizes

    def _check_early(self, data: bytes | bytearray, pos: int) -> None:
        """Refuse an impossible size or key before waiting for more of the head."""
        if len(data) - pos >= 4:
            size_max = self._caller.shared.settings.request_bytes_max
            if not REQUEST_SIZE_MIN <= _READ_INT32(data, pos)[0] <= size_max:
                raise bad_first_size(bytes(data[pos : pos + 4]), size_max)
        if len(data) - pos >= 8:
            key_version = int.from_bytes(data[pos + 4 : pos + 8], "big")
            if key_version not in self._routes:
                self._new_route(key_version)

    def _new_route(self, key_version: int) -> Route:
        key, version = key_version >> 16, key_version & 0xFFFF
        route = new_route(self._caller, key, version)
        if key != API_VERSIONS or version <= APIS[API_VERSIONS].version_max:
            self._routes[key_version] = route  # not one for each version there may be some day
        return route

    # ------------------------------------------------------------------ the announced-bytes budget

    def _needed(
        self, route: Route, size: int, data: bytes | bytearray, pos: int, now_us: int
    ) -> int:
        """Of a frame that is not here whole: how much of it must be, 0 when it may go on."""
        need = min(size + 4, EVIDENCE_BYTES)
        if len(data) - pos < need or not self._caller.has_room(route, data, pos, size, now_us):
            return need
        room_bytes = size
        if route.ids_rate is not None:
            room_bytes = self._counted.room_bytes(route, data, pos, size)
        # The budget is the broker's memory where the frame goes on at once, else our own.
        if not self.budget.take(room_bytes, self._caller.user):
            self._pausing.reasons |= _BUDGET
            return need
        return 0 if route.kind in _GO_ON_AT_ONCE else size + 4

    def give_back_unused_budget(self) -> None:
        """A mute has begun: a buffered frame takes its budget anew, unless much of it is memory here."""
        if self._caller.at_work is None and not self.left and len(self.buffered) <= EVIDENCE_BYTES:
            self.budget.give_back()
            self._caller.give_back_unused_room()

    def close(self) -> None:
        """The client is gone. Room for a frame that is half with the broker is given back later."""
        if not self.left:
            self.budget.give_back()
        self.budget.close()
        self._caller.whole.close()
        self.place.close()
        self.buffered.clear()
