"""REQUEST: what the gateway's own loop spends on a connection, as percent of one thread.

Where this quota is in force for anybody, it stands before the method that takes the broker's bytes, and its driver tells
it how long each step has taken: from the first byte that is looked at to the last that was handed on. Elsewhere
nothing of it is there. What has been spent is charged when an answer begins, one row for each answer or for all
that came with one read; what that answer itself takes is charged with the next one. So does a broker, whose network
thread's time weighs on later requests.

Source: Kafka 4.3.1 ``ClientRequestQuotaManager``, ``KafkaApis`` and ``RequestHandlerHelper`` (KIP-124).
"""

from struct import Struct

from kvota.engine import Lane
from kvota.engine.thread_share import counted, percent_seconds
from kvota.model.decision_sink import NO_ANSWER, ChargeMemo, outcome_of
from kvota.model.errors import ProtocolError
from kvota.model.quota_type import QuotaType
from kvota.session.answers import Answers
from kvota.session.caller import Caller
from kvota.session.due import Due, Entry
from kvota.session.requests import Requests
from kvota.session.topology import UNKNOWN_NODE
from kvota.wire import throttle_field
from kvota.wire.apis import APIS, PRODUCE
from kvota.wire.headers import ANSWER_HEAD
from kvota.wire.questions import OWN_CORRELATION
from kvota.wire.varint import Frame

# What finds no answer is charged all the same: what the gateway answers itself, or works on in many steps.
UNANSWERED_NS = 10_000_000

_REQUEST = QuotaType.REQUEST
_ANSWER_HEAD = ANSWER_HEAD.unpack_from
# Key, version, and behind the correlation id the length of the client id.
_REQUEST_HEAD = Struct(">4xhh4xh").unpack_from
_ROUTED = frozenset({Due.PASS, Due.PRODUCE, Due.FETCH, Due.CHARGED})

_ApiVersion = tuple[int, int]
_UNSEEN: _ApiVersion = (-1, -1)


class RequestTime:
    """The time of one connection, and its charges.

    Args:
        caller: whose connection it is.
        requests: takes the client's bytes.
        answers: takes the broker's bytes.

    Attributes:
        lane: its counter, once something was charged.
        spent_ns: what has not been charged yet.
    """

    __slots__ = (
        "_answers",
        "_caller",
        "_client_id",
        "_count",
        "_due",
        "_is_between",
        "_lane_version",
        "_last_api",
        "_memos",
        "_own_answers",
        "_requests",
        "_user",
        "lane",
        "spent_ns",
    )

    def __init__(self, caller: Caller, requests: Requests, answers: Answers) -> None:
        self._caller = caller
        self._requests = requests
        self._answers = answers
        self._client_id = b""
        self._user = ""
        self._memos: dict[_ApiVersion, ChargeMemo] = {}
        self._lane_version = -1
        self._last_api: _ApiVersion = _UNSEEN
        self._due: tuple[int, _ApiVersion | None] = (0, None)  # the answer that has begun
        self._is_between = self._is_at_a_head
        self._count = requests.count
        self._own_answers = caller.own_answers
        self.lane: Lane | None = None
        self.spent_ns = 0

    # ------------------------------------------------------------------ what was spent

    def took_from_client(self, data: bytes | bytearray, spent_ns: int, now_us: int) -> None:
        """Bytes of the client have been taken, and all that comes of it at once."""
        if self._is_between:
            self._see_client(data)
        self._is_between = self._is_at_a_head
        self.took(spent_ns, now_us)

    def took(self, spent_ns: int, now_us: int) -> None:
        """A step has taken so long (a clock that has stepped back meanwhile: nothing)."""
        caller = self._caller
        count, own_answers = self._requests.count, caller.own_answers
        # Nobody waits for an answer: acks are 0. As on a broker no time is charged for that.
        is_exempt = count != self._count and not (
            caller.due or caller.at_work or own_answers != self._own_answers
        )
        self._count, self._own_answers = count, own_answers
        if spent_ns <= 0:
            return
        if is_exempt:
            caller.shared.exempt_ns += spent_ns
            return
        self.spent_ns += spent_ns
        if self.spent_ns >= UNANSWERED_NS and not caller.due:
            self._charge(self._last_api, now_us)

    def end(self, now_us: int) -> None:
        """The connection is over: nobody is left to be told of the rest."""
        if self.spent_ns:
            self._charge(self._last_api, now_us)

    @property
    def _is_at_a_head(self) -> bool:
        """True when the client's next bytes begin a request."""
        requests = self._requests
        return not (requests.left or requests.buffered or self._caller.sends_tokens)

    def _see_client(self, data: bytes | bytearray) -> None:
        """Whose request begins here, where its head is here."""
        if len(data) < 14:
            return
        key, version, length = _REQUEST_HEAD(data)
        client_id = data[14 : 14 + length] if length > 0 else b""
        if key in APIS:
            self._last_api = key, version
        if client_id != self._client_id:
            self._client_id = bytes(client_id)
            self.lane = None

    # ------------------------------------------------------------------ answers

    def from_upstream(self, data: Frame, now_us: int) -> Frame | None:
        """Take the broker's bytes, as ``Answers.take``; what the client gets may tell it to wait.

        Raises:
            ProtocolError: as there.
        """
        caller = self._caller
        if caller.due and not (caller.answer_left or self._answers.has_begun):
            caller.request_throttle_ms = 0
            self._answer_begins(caller.due[0], now_us)
        out = self._answers.take(data, now_us)
        if caller.request_throttle_ms and out:  # else it waits for the rest of the answer
            out = self._told(out, caller.request_throttle_ms)
            caller.request_throttle_ms = 0
        return out

    def _answer_begins(self, entry: Entry, now_us: int) -> None:
        """Charge what has been spent so far, unless the gateway itself has asked."""
        kind = entry[1]
        of_api: _ApiVersion | None
        if kind in _ROUTED:
            of_api = entry[2].key, entry[2].version
        elif kind == Due.EXCHANGE and entry[0] != OWN_CORRELATION:
            of_api = entry[2].api
        else:
            return
        self._due = entry[0], of_api
        self._caller.request_throttle_ms = self._charge(of_api or self._last_api, now_us)

    def _told(self, out: Frame, throttle_ms: int) -> Frame:
        """Tell it in the first answer of a chunk for the client, where that has a place for it."""
        correlation, of_api = self._due
        if of_api is None or len(out) < 8:
            return out
        size, found = _ANSWER_HEAD(out, 0)
        end = 4 + size
        if found != correlation or (end > len(out) and of_api[0] == PRODUCE):
            return out  # another one goes first; the end of a large one has not come
        frame = bytearray(out[:end])
        try:
            throttle_field.patch(frame, *of_api, throttle_ms)
        except ProtocolError:
            return out  # not enough of it is here
        return frame + out[end:]

    # ------------------------------------------------------------------ charging

    def _charge(self, of_api: _ApiVersion, now_us: int) -> int:
        """Charge what has been spent; returns how long the client has to be told to wait, in ms."""
        caller = self._caller
        if caller.is_stranger or of_api == _UNSEEN:
            return 0  # it may be nobody's; whoever logs in pays for the login, as on a broker
        lane = self.lane
        if (
            lane is None
            or lane.version != self._lane_version
            or lane.node_id != caller.node_id
            or self._user != caller.principal.name
        ):
            lane = self._look_up(now_us // 1000)
            if lane is None:
                return 0  # charged as soon as its counter is known
        counts, self.spent_ns = counted(self.spent_ns)
        throttle_ms = lane.charge(counts, now_us // 1000)
        memo = self._memos.get(of_api) or self._new_memo(lane, of_api)
        sink = caller.shared.sink
        value, outcome = percent_seconds(counts), outcome_of(throttle_ms)
        sink.append(memo, sink.next_seq(), now_us, value, throttle_ms, NO_ANSWER, outcome)
        if throttle_ms <= 0 or not memo.enforced:
            return 0
        caller.mute(throttle_ms, lane, memo.client_id, now_us // 1000)
        return throttle_ms

    def _look_up(self, now_ms: int) -> Lane | None:
        """The counter; None: nobody knows it yet."""
        caller = self._caller
        if caller.node_id == UNKNOWN_NODE:
            return None
        user, name = caller.principal.name, self._client_id.decode("utf-8", "replace")
        engine = caller.shared.engine
        self.lane = lane = engine.lane(_REQUEST, caller.node_id, user, name, now_ms)
        if lane is None:
            caller.ask(_REQUEST, name)
            return None
        self._lane_version = lane.version
        self._user = user
        self._memos.clear()
        return lane

    def _new_memo(self, lane: Lane, of_api: _ApiVersion) -> ChargeMemo:
        caller = self._caller
        memo = self._memos[of_api] = ChargeMemo(
            node_id=lane.node_id,
            quota_type=_REQUEST,
            connection=caller.number,
            user=self._user,
            client_id=self._client_id.decode("utf-8", "replace"),
            tags=lane.tags,
            api_key=of_api[0],
            api_version=of_api[1],
            limit=lane.limit,
            samples=lane.samples,
            sample_ms=lane.sample_ms,
            algorithm=lane.algorithm,
            enforced=_REQUEST in caller.shared.settings.enforced,
        )
        return memo
