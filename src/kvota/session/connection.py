"""One client connection: which bytes go on, what they cost, and when to stop reading.

``from_client`` and ``from_upstream`` take received bytes and return the bytes to forward; everything
rarer is a command in ``commands``. State per direction is only "bytes left of the running frame", so a
received chunk is forwarded as it is; it is copied only where something in it must change.

This file is the hot path: a request with its answer has about 3 µs of Python in all, hence the plain
tuples, the inlined head reading and the few long functions.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct

from kvota.model.decision_sink import ADMITTED, NO_ANSWER, REJECTED, THROTTLED, ChargeMemo
from kvota.model.errors import ProtocolError
from kvota.session import rare
from kvota.session.commands import Command, Do
from kvota.session.in_flight import Due
from kvota.session.principal import PrincipalWatch
from kvota.session.route import QUOTA_TYPE_OF_KEY, Kind, Route
from kvota.session.shared import Shared
from kvota.session.streamed_fetch import StreamedFetch
from kvota.wire import addresses, fetch, produce
from kvota.wire.apis import API_VERSIONS, APIS

# size, key and version as one number, correlation id, length of the client id
_REQUEST_HEAD = Struct(">iIih").unpack_from
_ANSWER_HEAD = Struct(">ii").unpack_from
_INT32 = Struct(">i")
_READ_INT32 = _INT32.unpack_from
_WRITE_INT32 = _INT32.pack_into

REQUEST_HEAD_BYTES = 14
REQUEST_SIZE_MIN = 10
# A frame that has not arrived whole is forwarded only when this much of it is here: who announces much
# and sends little costs the broker nothing (it allocates what is announced).
EVIDENCE_BYTES = 16_384
# Answers up to this size wait until they are whole, larger ones are streamed.
HELD_ANSWER_BYTES_MAX = 131_072
# Answers that must be read whole (metadata, groups): far above any real one, below harm.
WHOLE_ANSWER_BYTES_MAX = 256 * 2**20

# Each name has a counter for an hour and stands in every batch of rows; real ones are below 100 bytes.
CLIENT_ID_BYTES_MAX = 1_024

# A Fetch waits no longer than this for room, counted from the answer before (a mute is part of it):
# above Kafka's default window of 11 s, and half of the 30 s after which clients give up.
FETCH_WAIT_MS_MAX = 15_000
# So often it is looked at, where the samples are longer.
LOOK_AGAIN_MS = 1_000
# Reasons not to go on with the client's bytes.
MUTED, WAITING, BUDGET, FULL, DRAINING = 1, 2, 4, 8, 16

# Plain ints: the interpreter compares an enum's members the slow way.
_PASS, _PRODUCE, _FETCH, _LOCAL, _RAW = map(
    int, (Due.PASS, Due.PRODUCE, Due.FETCH, Due.LOCAL, Due.SASL_RAW)
)
# A Produce answer without errors, tags and throttle: an empty list, three lengths, throttle, tags.
_PLAIN_TAIL = b"\x01" + bytes(8)
_NO_ACKS = b"\x00\x00"


class Connection:
    """The machine of one client connection; see the module's docstring.

    Args:
        shared: what all connections of the gateway have in common.
        number: of this connection, unique within the gateway's run.
        dialled: address of the broker this connection is for.
        node_id: that broker's, or a number below -1 while it is not known.
        wake: called when the announced-bytes budget has room again.
    """

    __slots__ = (
        "_budget",
        "_budget_taken",
        "_engine",
        "_hold",
        "_in_flight",
        "_in_flight_max",
        "_left",
        "_need",
        "_one_ms",
        "_one_until_us",
        "_raw_sasl",
        "_routes",
        "_sink",
        "_streamed",
        "_upstream_hold",
        "_upstream_left",
        "_upstream_need",
        "_wake",
        "commands",
        "dialled",
        "node_id",
        "number",
        "principal",
        "requests",
        "shared",
        "stall",
        "upstream_versions",
    )

    def __init__(
        self,
        shared: Shared,
        *,
        number: int,
        dialled: tuple[str, int],
        node_id: int,
        wake: Callable[[], None],
    ) -> None:
        self.shared = shared
        self.number = number
        self.dialled = dialled
        self.node_id = node_id
        self.principal = PrincipalWatch()
        self.commands: list[Command] = []
        self.requests = 0
        self.stall = 0
        self.upstream_versions: dict[int, tuple[int, int]] = {}
        self._wake = wake
        self._engine = shared.engine
        self._sink = shared.sink
        self._budget = shared.budgets.of(dialled)
        self._budget_taken = 0
        self._routes: dict[int, Route] = {}
        self._in_flight_max = shared.settings.in_flight_max
        self._in_flight: deque[tuple] = deque()  # type: ignore[type-arg]  # shapes: in_flight.Due
        self._left = 0
        self._hold = bytearray()
        self._need = 0
        self._one_until_us = 0
        self._one_ms = 0
        self._raw_sasl = False
        self._upstream_left = 0
        self._upstream_hold = bytearray()
        self._upstream_need = 0
        self._streamed: StreamedFetch | None = None

    # ------------------------------------------------------------------ what the driver asks

    @property
    def holds_reading(self) -> bool:
        """True when no more client bytes should be read for now."""
        return self.stall != 0 and self._left == 0

    @property
    def incomplete(self) -> bool:
        """True while a frame has begun and not ended, and it is not held back by a mute and the like.

        The rest of a frame is due in a mute, too. One that waits for room in the budget counts: it
        does not wait for ever.
        """
        return self._left > 0 or (not self.stall & ~BUDGET and bool(self._hold))

    @property
    def arrived_bytes(self) -> int:
        """Of the frame that is not here whole."""
        return self._budget_taken - self._left if self._left else len(self._hold)

    @property
    def is_inside_frame(self) -> bool:
        """True while the broker has the head of a frame and not its end."""
        return self._left > 0

    @property
    def keeps_others_waiting(self) -> bool:
        """True while a frame of ours takes room in the budget that others wait for."""
        return self._budget_taken > 0 and self._budget.is_waited_for

    @property
    def idle(self) -> bool:
        """True when nothing is due from the broker and no frame is half relayed."""
        return not self._in_flight and self._left == 0 and not self._upstream_left

    @property
    def in_flight_count(self) -> int:
        """Requests forwarded and not yet answered."""
        return len(self._in_flight)

    def resume(self, reason: int, now_us: int) -> bytes | bytearray | None:
        """Take one reason to stall away; returns held bytes that may now be forwarded."""
        self.stall &= ~reason
        if self.stall or not self._hold:
            return None
        self._need = min(self._need, len(self._hold))
        return self.from_client(b"", now_us)

    def room(self, now_us: int) -> bytes | bytearray | None:
        """The budget has room: go on; returns held bytes that may now be forwarded."""
        try:
            return self.resume(BUDGET, now_us)
        finally:
            self.pass_room_on()

    def pass_room_on(self) -> None:
        """Whoever has no use for room in the budget (ended, muted) lets the next one know."""
        if not self._budget_taken:
            self._budget.give_back(0)

    def let_one_pass(self, remaining_ms: int, now_us: int) -> bytes | bytearray | None:
        """After a capped mute: read one request, then go on with the ``remaining_ms`` still due."""
        self._one_ms = remaining_ms
        self._one_until_us = now_us + remaining_ms * 1000
        return self.resume(MUTED, now_us)

    def close(self) -> None:
        """The client is gone: free what is held for it, record what was charged and not answered.

        Room for a frame that is half with the broker is given back by ``upstream_gone``.
        """
        if not self._left:
            self._give_back_budget()
        for entry in self._in_flight:
            if entry[1] == _PRODUCE:
                _, _, _, memo, seq, ts_us, value, throttle_ms = entry
                self._append(memo, seq, ts_us, value, throttle_ms, NO_ANSWER)
            elif entry[1] == Due.MUTATION:
                entry[2].abandon()
        self._in_flight.clear()
        self._hold.clear()
        self._upstream_hold.clear()
        self._wake = _nobody

    def upstream_gone(self) -> None:
        """The broker has closed, or was never reached: no frame of ours takes its memory any more."""
        self._give_back_budget()

    # ------------------------------------------------------------------ client → broker

    def from_client(  # noqa: C901, PLR0911, PLR0912, PLR0915  (hot path: one loop, see the module's docstring)
        self, data: bytes | bytearray, now_us: int
    ) -> bytes | bytearray | None:
        """Take received bytes; returns what to forward upstream, or None.

        Raises:
            ProtocolError: the bytes are no Kafka requests, or over a limit; the connection must close.
        """
        pos = self._left
        end = len(data)
        if pos:
            if end < pos:
                self._left = pos - end
                return data
            self._left = 0
            if self._budget_taken:
                self._give_back_budget()
            if end == pos:
                return data
        elif self._need:
            hold = self._hold
            hold += data
            if self.stall or len(hold) < self._need:
                return None
            data = bytes(hold)
            hold.clear()
            self._need = 0
            end = len(data)
            if self._budget_taken:
                # It was for a frame that had to be whole, and now is, or is asked for again.
                self._give_back_budget()

        routes = self._routes
        ahead: bytearray | None = None  # goes up in place of data[:begin], where the two differ
        begin = 0
        while pos < end:
            if self.stall:
                return self._hold_back(data, pos, 1, ahead, begin)
            if self._raw_sasl:
                behind = self._raw_token(data, pos)
                if behind < 0:
                    return self._hold_back(data, pos, -behind, ahead, begin)
                pos = behind
                continue
            available = end - pos
            if available < REQUEST_HEAD_BYTES:
                self._check_size_early(data, pos, available)
                return self._hold_back(data, pos, REQUEST_HEAD_BYTES, ahead, begin)
            size, key_version, correlation, client_id_length = _REQUEST_HEAD(data, pos)
            route = routes.get(key_version)
            if route is None:
                self._check_size_early(data, pos, available)
                route = self._new_route(key_version)
            if not REQUEST_SIZE_MIN <= size <= route.size_max:
                raise ProtocolError(_size_problem(size, route))
            kind = route.kind
            frame_end = pos + 4 + size
            if frame_end > end:
                need = self._needed(route, size, available)
                if need:
                    return self._hold_back(data, pos, need, ahead, begin)
            # max() costs a call here
            body = pos + 14 + (client_id_length if client_id_length > 0 else 0)  # noqa: FURB136
            if not -1 <= client_id_length <= CLIENT_ID_BYTES_MAX or body > end or body > frame_end:
                raise ProtocolError(_client_id_problem(client_id_length, route))
            self.requests += 1
            if kind == 1:  # Kind.PRODUCE
                client_id = data[pos + 14 : body]
                if client_id != route.client_id or route.lane_version != route.lane.version:
                    self._resolve(route, client_id, now_us)
                if data[body : body + 2] == route.no_transaction:
                    no_acks = data[body + 2 : body + 4] == _NO_ACKS
                else:
                    no_acks = rare.acks(data, pos, frame_end, client_id_length, route) == 0
                throttle_ms = route.charge(size, now_us // 1000)
                seq = self._sink.next_seq()
                if no_acks:  # answered by nobody: the mute is the only signal
                    self._append(route.memo, seq, now_us, size, throttle_ms, NO_ANSWER)
                else:
                    self._in_flight.append(
                        (correlation, _PRODUCE, route, route.memo, seq, now_us, size, throttle_ms)
                    )
                if throttle_ms > 0 and route.enforced:
                    self.stall |= MUTED
                    self.commands.append((Do.MUTE, throttle_ms))
            elif kind == 2:  # Kind.FETCH
                client_id = data[pos + 14 : body]
                if client_id != route.client_id or route.lane_version != route.lane.version:
                    self._resolve(route, client_id, now_us)
                if route.enforced:
                    if self._one_until_us > now_us:
                        ahead = ahead or bytearray()
                        ahead += data[begin:pos]
                        begin = pos = frame_end
                        self._answer_empty(route, correlation, now_us)
                        continue
                    offset = route.max_bytes_offset
                    if offset >= 0:
                        if route.flexible and body + offset < frame_end and data[body]:
                            body = rare.behind_header_tags(data, body, frame_end) - 1
                        offset += body
                        if offset + 4 > frame_end:
                            raise ProtocolError(_size_problem(size, route))
                        allowed = route.allowance(now_us // 1000)
                        if _READ_INT32(data, offset)[0] > allowed:
                            if allowed < route.expected_bytes and self._waits_for_room(
                                route, size, allowed, now_us
                            ):
                                self.requests -= 1  # it is read once more
                                return self._hold_back(data, pos, size + 4, ahead, begin)
                            data = rare.lower_max_bytes(data, offset, allowed)
                self._in_flight.append((correlation, _FETCH, route, client_id))
            elif kind == 0:  # Kind.PASS
                self._in_flight.append((correlation, _PASS))
            elif kind == 3:  # Kind.REWRITE
                self._in_flight.append((correlation, Due.REWRITE, route.key, route.version))
            else:
                ahead = ahead or bytearray()
                ahead += data[begin:pos]
                ahead += rare.request(self, route, correlation, bytes(data[pos:frame_end]), now_us)
                begin = frame_end
            if self._one_until_us:
                self._remute(now_us)
            pos = frame_end
        if pos > end:
            self._left = pos - end
        if len(self._in_flight) > self._in_flight_max:
            self.stall |= FULL
        if ahead is None:
            return data
        ahead += data[begin:]
        return ahead or None

    def _hold_back(
        self, data: bytes | bytearray, pos: int, need: int, ahead: bytearray | None, begin: int
    ) -> bytes | bytearray | None:
        """Keep ``data[pos:]`` until ``need`` bytes of it are here; forward what is before it."""
        self._hold += data[pos:]
        self._need = need
        if len(self._in_flight) > self._in_flight_max:
            self.stall |= FULL
        if ahead is None:
            return data[:pos] if pos else None
        ahead += data[begin:pos]
        return ahead or None

    def _waits_for_room(self, route: Route, size: int, allowed: int, now_us: int) -> bool:
        """True while a Fetch is not sent on, because the window has no room for its answer.

        A broker reads what a Fetch asks for, and where that is over the quota it throws it away and
        says how long to wait: recorded, checked, taken back. What has come through a gateway cannot
        be thrown away, so the wait comes first. That there is more to read is seen from two answers
        of one size; who has read all there is gets smaller ones, and does not wait.
        """
        waited_ms = (now_us - route.answered_us) // 1000
        # Long enough; or the clock has stepped back; or much memory would wait, too.
        if not 0 <= waited_ms < FETCH_WAIT_MS_MAX or size > EVIDENCE_BYTES:
            return False
        memo = route.memo
        assert memo is not None
        assert memo.limit is not None
        missing_bytes = route.expected_bytes - allowed
        if route.refused_us != route.answered_us:  # one row, however often it is looked at
            route.refused_us = route.answered_us
            throttle_ms = route.refuse(route.expected_bytes, now_us // 1000)
            seq = self._sink.next_seq()
            self._sink.append(
                memo, seq, now_us, route.expected_bytes, throttle_ms, NO_ANSWER, REJECTED
            )
        # Kafka's formula, (sum + expected) / limit - window. It knows no samples' ends, so it may wait
        # twice as long as there is need: look again after a sample at the latest.
        wait_ms = int(missing_bytes * 1000 / max(memo.limit, 0.001)) + 1
        self._mute(min(wait_ms, memo.sample_ms, LOOK_AGAIN_MS, FETCH_WAIT_MS_MAX - waited_ms))
        return True

    def _remute(self, now_us: int) -> None:
        """Go on with the mute after one request, unless its end has come meanwhile."""
        if now_us < self._one_until_us:
            self.stall |= MUTED
            self.commands.append((Do.MUTE, 0))
        self._one_until_us = 0

    def _check_size_early(self, data: bytes | bytearray, pos: int, available: int) -> None:
        """Refuse an impossible size or key before waiting for more of it."""
        if available >= 4:
            size = _READ_INT32(data, pos)[0]
            if not REQUEST_SIZE_MIN <= size <= self.shared.settings.request_bytes_max:
                msg = (
                    f"a request of {size} bytes is announced; between {REQUEST_SIZE_MIN} and "
                    f"{self.shared.settings.request_bytes_max} are possible"
                )
                raise ProtocolError(msg + _likely(bytes(data[pos : pos + 4])))
        if available >= 8:
            key_version = int.from_bytes(data[pos + 4 : pos + 8], "big")
            if key_version not in self._routes:
                self._new_route(key_version)

    def _new_route(self, key_version: int) -> Route:
        key, version = key_version >> 16, key_version & 0xFFFF
        quota_type = QUOTA_TYPE_OF_KEY.get(key)
        settings = self.shared.settings
        route = Route(
            key,
            version,
            enforced=quota_type in settings.enforced,
            size_max=settings.request_bytes_max,
        )
        if key != API_VERSIONS or version <= APIS[API_VERSIONS].version_max:
            self._routes[key_version] = route  # not one for each version there may be some day
        return route

    def redialled(self, address: tuple[str, int], node_id: int) -> None:
        """Another broker than planned has been reached, or a name for this one is now known."""
        taken_bytes = self._budget_taken
        self._give_back_budget()
        self.dialled = address
        self.node_id = node_id
        self._budget = self.shared.budgets.of(address)
        self._budget.add(taken_bytes)
        self._budget_taken = taken_bytes
        self.forget_routes()

    def forget_routes(self) -> None:
        """The user or the node has changed: every charge is looked up anew."""
        for route in self._routes.values():
            route.lane_version = -1

    def _needed(self, route: Route, size: int, available: int) -> int:
        """Of a frame that is not here whole: how much of it must be, 0 when it may go on."""
        need = min(size + 4, EVIDENCE_BYTES)
        if available < need:
            return need
        # The budget is the broker's memory where the frame goes on at once, else our own.
        if not self._budget.take(size):
            self.stall |= BUDGET
            self._budget.wait(size, self._wake)
            return need
        self._budget_taken = size
        return 0 if route.kind in {Kind.PASS, Kind.PRODUCE} else size + 4

    def _give_back_budget(self) -> None:
        taken, self._budget_taken = self._budget_taken, 0
        if taken:
            self._budget.give_back(taken)

    def _resolve(self, route: Route, client_id: bytes | bytearray, now_us: int) -> None:
        """Look up whose quota this is: on first use, and when the table, user or node changed."""
        route.resolve(
            self._engine,
            client_id,
            user=self.principal.name,
            node_id=self.node_id,
            connection=self.number,
            now_ms=now_us // 1000,
        )

    def _append(
        self,
        memo: ChargeMemo | None,
        seq: int,
        ts_us: int,
        value: float,
        throttle_ms: int,
        upstream_ms: int,
    ) -> None:
        assert memo is not None
        self._sink.append(
            memo,
            seq,
            ts_us,
            value,
            throttle_ms,
            upstream_ms,
            THROTTLED if throttle_ms > 0 else ADMITTED,
        )

    def _raw_token(self, data: bytes | bytearray, pos: int) -> int:
        """One SASL token without Kafka's header (handshake v0).

        Returns the position behind it, or minus the number of bytes that must be here for it.
        """
        available = len(data) - pos
        if available < 4:
            return -4
        size: int = _READ_INT32(data, pos)[0]
        if not 0 <= size <= rare.SASL_TOKEN_BYTES_MAX:
            msg = f"a SASL token of {size} bytes is announced"
            raise ProtocolError(msg)
        if available < 4 + size:
            return -4 - size
        login = self.principal.token(bytes(data[pos + 4 : pos + 4 + size]))
        self._in_flight.append((0, _RAW, login))
        self.wait()
        return pos + 4 + size

    def learn_own_node(self) -> None:
        """An answer has named brokers: this connection's may be among them."""
        if self.node_id < -1:
            known = self.shared.topology.node_at(*self.dialled)
            if known is not None:
                self.redialled(self.dialled, known)

    def wait(self) -> None:
        """Nothing else of this connection goes on: a mutation or a login is under way."""
        self.stall |= WAITING

    def go_on(self, *, raw_sasl: bool) -> None:
        """What waited goes on: as bare tokens (a login after SaslHandshake v0), or as Kafka's frames."""
        self._raw_sasl = raw_sasl
        self.commands.append((Do.RESUME, WAITING))

    def admission_over(self, mute_ms: int) -> None:
        """The mutation is answered: mute if it must be, and go on with what waits."""
        if mute_ms > 0:
            self._mute(mute_ms)
        self.commands.append((Do.RESUME, WAITING))

    def _mute(self, throttle_ms: int) -> None:
        """Read no more. A held frame takes its budget anew, unless much of it is here: that is memory."""
        self.stall |= MUTED
        self.commands.append((Do.MUTE, throttle_ms))
        if self._budget_taken and not self._left and len(self._hold) <= EVIDENCE_BYTES:
            self._give_back_budget()

    def _answer_empty(self, route: Route, correlation: int, now_us: int) -> None:
        """Answer a Fetch read in the middle of a long mute as a broker does: empty, with the wait."""
        # A clock that steps back must not turn a mute into hours.
        left_ms = min((self._one_until_us - now_us + 999) // 1000, self._one_ms)
        self.answer_locally(
            correlation, rare.empty_fetch_answer(correlation, route.version, left_ms)
        )
        self._remute(now_us)

    def answer_locally(self, correlation: int, answer: bytes) -> None:
        """Send our own answer when everything asked before has been answered."""
        if self._in_flight or self._upstream_left:
            self._in_flight.append((correlation, _LOCAL, answer))
        else:
            self.commands.append((Do.SEND_CLIENT, answer))

    def expect(self, entry: tuple) -> None:  # type: ignore[type-arg]  # shapes: in_flight.Due
        """An answer of this kind is due behind everything asked so far."""
        self._in_flight.append(entry)

    # ------------------------------------------------------------------ broker → client

    def from_upstream(  # noqa: C901, PLR0911, PLR0912, PLR0915  (hot path: one loop)
        self, data: bytes | bytearray, now_us: int
    ) -> bytes | bytearray | None:
        """Take the broker's bytes; returns what to forward to the client, or None.

        Raises:
            ProtocolError: the broker's bytes do not fit what was asked, or must not be forwarded.
        """
        pos = self._upstream_left
        end = len(data)
        if pos:
            here = min(pos, end)
            self._upstream_left = pos - here
            if self._streamed is not None:
                streamed = self._stream(data if here == end else data[:here])
                data = streamed if here == end else bytes(streamed) + data[here:]
                end = len(data)
                here = len(streamed)
            if self._upstream_left:
                return data or None
            pos = here
            if self._in_flight and self._in_flight[0][1] == _LOCAL:
                data, pos = self._insert_local(data, pos)
                end = len(data)
            if pos == end:
                if self.stall & FULL:
                    self._resume_if_room()
                return data or None
        elif self._upstream_need:
            hold = self._upstream_hold
            hold += data
            if len(hold) < self._upstream_need:
                return None
            data = bytes(hold)
            hold.clear()
            self._upstream_need = 0
            end = len(data)

        in_flight = self._in_flight
        while pos < end:
            available = end - pos
            if available < 8 and not (in_flight and in_flight[0][1] == _RAW and available >= 4):
                return self._hold_answer(data, pos, 4 if available < 4 and self._raw_sasl else 8)
            if not in_flight:
                msg = "the broker sent an answer to nothing"
                raise ProtocolError(msg)
            entry = in_flight[0]
            kind = entry[1]
            if kind == _RAW:
                size = _READ_INT32(data, pos)[0]
            else:
                size, correlation = _ANSWER_HEAD(data, pos)
                if correlation != entry[0]:
                    msg = f"the broker answered request {correlation}, {entry[0]} was due"
                    raise ProtocolError(msg)
            frame_end = pos + 4 + size
            if size < 4 and kind != _RAW:
                msg = f"the broker announced an answer of {size} bytes"
                raise ProtocolError(msg)
            if kind == 1:  # Due.PRODUCE
                if frame_end > end:
                    return self._hold_answer(data, pos, size + 4)
                _, _, route, memo, seq, ts_us, value, throttle_ms = entry
                version = route.version
                if version >= 9:
                    at = frame_end - 5
                    if data[frame_end - 9 : frame_end] == _PLAIN_TAIL:
                        upstream_ms = 0
                    else:
                        data, at, end, frame_end = self._walk_produce(data, pos, frame_end, route)
                        upstream_ms = _READ_INT32(data, at)[0]
                elif version:
                    at = frame_end - 4
                    upstream_ms = _READ_INT32(data, at)[0]
                else:
                    at, upstream_ms = 0, 0
                in_flight.popleft()  # not before: what cannot be read is recorded as unanswered
                self._sink.append(
                    memo, seq, ts_us, value, throttle_ms, upstream_ms, 1 if throttle_ms > 0 else 0
                )
                if throttle_ms > upstream_ms and route.enforced and at:
                    data = data if isinstance(data, bytearray) else bytearray(data)
                    _WRITE_INT32(data, at, throttle_ms)
            elif kind == 2:  # Due.FETCH
                route = entry[2]
                if frame_end > end and (available < 64 or frame_end - pos <= HELD_ANSWER_BYTES_MAX):
                    return self._hold_answer(
                        data, pos, size + 4 if frame_end - pos <= HELD_ANSWER_BYTES_MAX else 64
                    )
                in_flight.popleft()
                data = self._fetch_answer(data, pos, frame_end, route, entry[3], now_us)
                if len(data) != end:  # addresses were rewritten, the frame's size may differ
                    frame_end += len(data) - end
                    end = len(data)
                if frame_end > end:
                    self._upstream_left = frame_end - end
                    return data
            elif kind == 0:  # Due.PASS
                in_flight.popleft()
                if frame_end > end:
                    self._upstream_left = frame_end - end
                    return data
            else:
                if not 0 <= size <= WHOLE_ANSWER_BYTES_MAX:
                    msg = f"the broker announced an answer of {size} bytes"
                    raise ProtocolError(msg)
                if frame_end > end:
                    return self._hold_answer(data, pos, size + 4)
                in_flight.popleft()
                frame = bytes(data[pos:frame_end])
                try:
                    instead = rare.answer(self, entry, frame, now_us)
                except ProtocolError:
                    in_flight.appendleft(entry)  # so that its charges are recorded as unanswered
                    raise
                if instead is not frame:
                    data = bytes(data[:pos]) + instead + bytes(data[frame_end:])
                    end = len(data)
                    frame_end = pos + len(instead)
            pos = frame_end
            if in_flight and in_flight[0][1] == _LOCAL:
                data, pos = self._insert_local(data, pos)
                end = len(data)
        if self.stall & FULL:
            self._resume_if_room()
        return data or None

    def _resume_if_room(self) -> None:
        if len(self._in_flight) <= self.shared.settings.in_flight_max // 2:
            self.commands.append((Do.RESUME, FULL))

    def _hold_answer(
        self, data: bytes | bytearray, pos: int, need: int
    ) -> bytes | bytearray | None:
        self._upstream_hold += data[pos:]
        self._upstream_need = need
        return data[:pos] if pos else None

    def _insert_local(self, data: bytes | bytearray, pos: int) -> tuple[bytes | bytearray, int]:
        """Put our own answers in at ``pos``, where their turn has come."""
        own = b""
        while self._in_flight and self._in_flight[0][1] == _LOCAL:
            own += self._in_flight.popleft()[2]
        return bytes(data[:pos]) + own + bytes(data[pos:]), pos + len(own)

    def _walk_produce(
        self, data: bytes | bytearray, pos: int, frame_end: int, route: Route
    ) -> tuple[bytes | bytearray, int, int, int]:
        """A Produce answer with a throttle time, tags or endpoints: find the field, hide addresses."""
        frame = bytes(data[pos:frame_end])
        if route.has_endpoints:
            frame = addresses.rewrite(
                frame, route.key, route.version, self.shared.topology.address_of
            )
        data = bytes(data[:pos]) + frame + bytes(data[frame_end:])
        at = pos + produce.throttle_offset(frame, route.version)
        return data, at, len(data), pos + len(frame)

    def _fetch_answer(
        self,
        data: bytes | bytearray,
        pos: int,
        frame_end: int,
        route: Route,
        client_id: bytes | bytearray,
        now_us: int,
    ) -> bytes | bytearray:
        """Charge an answer of which at least the head is here; patch and hide what must be."""
        end = len(data)
        size = frame_end - pos - 4
        tags = 0
        at = pos + 8
        if route.flexible:
            tags = 1 if data[at : at + 1] == b"\0" else rare.behind_header_tags(data, at, end) - at
            at += tags
        if at + 4 > frame_end or at + 4 > end:
            msg = f"Fetch v{route.version}: an answer of {size} bytes"
            raise ProtocolError(msg)
        upstream_ms = _READ_INT32(data, at)[0] if route.version else 0
        if route.lane_version != route.lane.version or route.client_id != client_id:
            self._resolve(route, client_id, now_us)
        value = size - tags  # Kafka charges 4 + the body, without the header's tags
        throttle_ms = route.charge(value, now_us // 1000)
        self._append(route.memo, self._sink.next_seq(), now_us, value, throttle_ms, upstream_ms)
        if route.enforced:
            route.expected_bytes = min(value, route.answer_bytes, route.window_bytes)
            route.answer_bytes = value
            route.answered_us = now_us
        if throttle_ms > 0 and route.enforced:
            if throttle_ms > upstream_ms and route.version:
                data = data if isinstance(data, bytearray) else bytearray(data)
                _WRITE_INT32(data, at, throttle_ms)
            # What is larger than an empty window no broker delivers; by Kafka's formula a window of it
            # would cost nothing each time.
            self._mute(throttle_ms + (route.window_ms if value > route.window_bytes else 0))
        if not route.has_endpoints:
            return data
        if frame_end <= end:
            if fetch.tail_has_no_endpoints(data[frame_end - 6 : frame_end]):
                return data
            frame = bytes(data[pos:frame_end])
            instead = addresses.rewrite(
                frame, route.key, route.version, self.shared.topology.address_of
            )
            return bytes(data[:pos]) + instead + bytes(data[frame_end:])
        self._streamed = StreamedFetch(route.version)
        self._upstream_left = frame_end - end
        streamed = self._stream(data[pos:] if pos else data)
        return bytes(data[:pos]) + streamed if pos else streamed

    def _stream(self, part: bytes | bytearray) -> bytes | bytearray:
        assert self._streamed is not None
        is_last = self._upstream_left == 0
        told = self._streamed.feed(part, is_last=is_last)
        if is_last:
            self._streamed = None
        return told


def _size_problem(size: int, route: Route) -> str:
    return (
        f"API key {route.key} v{route.version}: a request of {size} bytes is announced; between "
        f"{REQUEST_SIZE_MIN} and {route.size_max} are possible"
    )


def _likely(first: bytes) -> str:
    """What speaks here, where it is a usual mistake."""
    if first[:2] == b"\x16\x03":
        return ". This is TLS: the gateway takes security.protocol PLAINTEXT or SASL_PLAINTEXT"
    return ". This is HTTP" if first in {b"GET ", b"POST", b"HEAD"} else ""


def _client_id_problem(length: int, route: Route) -> str:
    return (
        f"API key {route.key} v{route.version}: a client id of {length} bytes; at most "
        f"{CLIENT_ID_BYTES_MAX} are taken, and not more than the request has"
    )


def _nobody() -> None:
    """Woken after the end of the connection; with its own bound method the two would be a cycle."""
