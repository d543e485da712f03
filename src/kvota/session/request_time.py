"""REQUEST: what the gateway's own loop spends on a connection, as percent of one thread.

Where this quota is in force for anybody, it stands before the method that takes the broker's bytes, and its driver tells
it how long each step has taken: from the first byte that is looked at to the last that was handed on. Elsewhere
nothing of it is there. What has been spent is charged when an answer begins, as soon as it is worth a row
(``CHARGED_FROM_NS_MAX``); what that answer itself takes is charged with a later one. So does a broker, whose network
thread's time weighs on later requests. The counter is the same for all brokers: the gateway has one thread.

Source: Kafka 4.3.1 ``ClientRequestQuotaManager``, ``KafkaApis`` and ``RequestHandlerHelper`` (KIP-124).
"""

from struct import Struct

from kvota.engine import Lane
from kvota.engine.thread_share import counted, percent_seconds
from kvota.model.decision_sink import NO_ANSWER, ChargeMemo, outcome_of
from kvota.model.errors import ProtocolError
from kvota.model.quota_type import CLUSTER_NODE_ID, QuotaType
from kvota.session.answers import Answers
from kvota.session.caller import Caller
from kvota.session.due import Due, Entry
from kvota.session.pausing import Reason
from kvota.session.requests import CLIENT_ID_BYTES_MAX, Requests
from kvota.wire import throttle_field
from kvota.wire.apis import APIS, PRODUCE
from kvota.wire.headers import ANSWER_HEAD, REQUEST_HEAD_BYTES
from kvota.wire.questions import OWN_CORRELATION
from kvota.wire.varint import Frame

# What finds no answer is charged all the same: what the gateway answers itself, or works on in many steps.
UNANSWERED_NS = 10_000_000
# Less is not charged yet: a row, and a look at the counter, for a dozen requests in place of each. It is a thousandth of
# what the quota has in a window, and this at most; who is over the quota is charged with each answer.
CHARGED_FROM_NS_MAX = 1_000_000

_REQUEST = QuotaType.REQUEST
_HEAD_BYTES_MAX = REQUEST_HEAD_BYTES + CLIENT_ID_BYTES_MAX
_ANSWER_HEAD = ANSWER_HEAD.unpack_from
# Key, version, and behind the correlation id the length of the client id.
_REQUEST_HEAD = Struct(">4xhh4xh").unpack_from
_ROUTED = frozenset({Due.PASS, Due.PRODUCE, Due.FETCH, Due.SHARE_FETCH, Due.CHARGED})

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
        "_charged_from_ns",
        "_client_end",
        "_client_field",
        "_client_id",
        "_count",
        "_due",
        "_head",
        "_is_between",
        "_is_told_below",
        "_lane_version",
        "_last_api",
        "_memos",
        "_own_answers",
        "_requests",
        "_take",
        "_undecided_ns",
        "_user",
        "lane",
        "spent_ns",
    )

    def __init__(self, caller: Caller, requests: Requests, answers: Answers) -> None:
        self._caller = caller
        self._requests = requests
        self._answers = answers
        self._take = answers.take
        self._charged_from_ns = 0
        self._client_id = b""
        self._client_end = 0  # of its field in a head, which begins with its length
        self._client_field = b"none"
        self._user = ""
        self._memos: dict[_ApiVersion, ChargeMemo] = {}
        self._lane_version = -1
        self._last_api: _ApiVersion = _UNSEEN
        self._due: tuple[int, _ApiVersion | None] = (0, None)  # the answer that has begun
        self._is_between = not (requests.left or requests.buffered or caller.sends_tokens)
        self._count = requests.count
        self._own_answers = caller.own_answers
        self._head = b""  # of a request, of which more has to come
        self._undecided_ns = 0  # of a large Produce: its end shows whether it is answered
        self._is_told_below = False  # the answer that is taken now is charged, and will be told
        self.lane: Lane | None = None
        self.spent_ns = 0

    # ------------------------------------------------------------------ what was spent

    def took_from_client(self, data: bytes | bytearray, spent_ns: int, now_us: int) -> None:
        """Bytes of the client have been taken, and all that comes of it at once."""
        requests, caller = self._requests, self._caller
        if self._is_between:
            if data[12 : self._client_end] != self._client_field:
                self._see_client(data, now_us)
        elif self._head:
            head, self._head = self._head + data[:_HEAD_BYTES_MAX], b""
            if head[12 : self._client_end] != self._client_field:
                self._see_client(head, now_us)
        self._is_between = not (requests.left or requests.buffered or caller.sends_tokens)
        if self._undecided_ns or not caller.due:
            spent_ns = self._unless_exempt(spent_ns, now_us)
        if spent_ns > 0:  # as in took: a call would cost a tenth of all this
            self.spent_ns += spent_ns
            if self.spent_ns >= UNANSWERED_NS and not caller.due:
                self._charge(self._last_api, now_us)

    def _unless_exempt(self, spent_ns: int, now_us: int) -> int:
        """The time of a step behind which no answer is due; 0 where none ever will be: acks are 0.

        As on a broker no time is charged for that. Of a request whose end is not here the time is kept until it is.
        """
        count, before = self._requests.count, self._count
        self._count = count
        if count == before and not self._undecided_ns:
            return spent_ns
        spent_ns = max(0, spent_ns) + self._undecided_ns
        self._undecided_ns = 0
        if self._caller.due or self._is_answered_here:
            return spent_ns
        if self._requests.left:
            self._undecided_ns = max(1, spent_ns)
        else:
            self._caller.shared.exempt_time(spent_ns, now_us // 1000)
        return 0

    def took(self, spent_ns: int, now_us: int) -> None:
        """Any other step has taken so long (a clock that has stepped back meanwhile: nothing)."""
        self._count = self._requests.count
        if spent_ns > 0:
            self.spent_ns += spent_ns
            if self.spent_ns >= UNANSWERED_NS and not self._caller.due:
                self._charge(self._last_api, now_us)

    @property
    def _is_answered_here(self) -> bool:
        """True where the gateway has answered something itself since this was last asked, or is about to."""
        caller, before = self._caller, self._own_answers
        self._own_answers = caller.own_answers
        return caller.at_work is not None or caller.own_answers != before

    def end(self, now_us: int) -> None:
        """The connection is over: nobody is left to be told of the rest."""
        self.spent_ns += self._undecided_ns
        if counted(self.spent_ns)[0]:
            self._charge(self._last_api, now_us)

    def _see_client(self, data: bytes | bytearray, now_us: int) -> None:
        """Whose request begins here, once its head is here; what was spent for another one is charged first."""
        if len(data) < REQUEST_HEAD_BYTES:
            self._head = bytes(data)
            return
        key, version, length = _REQUEST_HEAD(data)
        if length > CLIENT_ID_BYTES_MAX:
            return  # it is refused
        client_id = bytes(data[14 : 14 + length]) if length > 0 else b""
        if len(client_id) < length:
            self._head = bytes(data)
            return
        if self.spent_ns and self._last_api != _UNSEEN:
            self._charge(self._last_api, now_us)
        if key in APIS:
            self._last_api = key, version
        self._client_end = 14 + len(client_id)
        self._client_field = bytes(data[12 : self._client_end])
        self._client_id = client_id
        self.lane = None

    # ------------------------------------------------------------------ answers

    def from_upstream(self, data: Frame, now_us: int) -> Frame | None:
        """Take the broker's bytes, as ``Answers.take``; what the client gets may tell it to wait.

        Raises:
            ProtocolError: as there.
        """
        caller = self._caller
        if self.spent_ns < self._charged_from_ns and not caller.request_throttle_ms:
            return self._take(data, now_us)
        if caller.due and not (caller.answer_left or self._answers.kept_bytes):
            caller.request_throttle_ms = 0
            self._is_told_below = self._answer_begins(caller.due[0], now_us)
        out = self._take(data, now_us)
        self._is_told_below = False
        if caller.request_throttle_ms and out:  # else it waits for the rest of the answer
            out = self._told(out, caller.request_throttle_ms)
            caller.request_throttle_ms = 0
        return out

    def _answer_begins(self, entry: Entry, now_us: int) -> bool:
        """Charge what has been spent so far, unless the gateway itself has asked: then False."""
        kind = entry[1]
        of_api: _ApiVersion | None
        if kind in _ROUTED:
            of_api = entry[2].key, entry[2].version
        elif kind == Due.EXCHANGE and entry[0] != OWN_CORRELATION:
            of_api = entry[2].api
        else:
            return False
        self._due = entry[0], of_api
        self._caller.request_throttle_ms = self._charge(of_api or self._last_api, now_us)
        return True

    def told_in(self, frame: Frame, of_api: _ApiVersion, now_us: int) -> Frame:
        """An answer that the gateway has made itself, with what its client is told; charged is what led to it."""
        if self._is_told_below or self._last_api == _UNSEEN:
            return frame
        # Where a broker's answer led to it, that has been charged when it began.
        throttle_ms, self._caller.request_throttle_ms = self._caller.request_throttle_ms, 0
        if not throttle_ms and self.spent_ns >= self._charged_from_ns:
            throttle_ms = self._charge(of_api, now_us)
        if throttle_ms <= 0:
            return frame
        told = bytearray(frame)
        throttle_field.patch(told, *of_api, throttle_ms)
        return told

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
        if throttle_ms <= 0:
            self._charged_from_ns = _charged_from_ns(lane.limit)
            return 0
        self._charged_from_ns = 0
        if not memo.enforced:
            return 0
        caller.mute(throttle_ms, lane, memo.client_id, now_us // 1000)
        return throttle_ms

    def _look_up(self, now_ms: int) -> Lane | None:
        """The counter; None: nobody knows it yet."""
        caller = self._caller
        user, name = caller.principal.name, self._client_id.decode("utf-8", "replace")
        engine = caller.shared.engine
        self.lane = lane = engine.lane(_REQUEST, CLUSTER_NODE_ID, user, name, now_ms)
        if lane is None:
            if not caller.pausing.reasons & Reason.ASKING:  # else another question comes first
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


def _charged_from_ns(limit: float | None) -> int:
    """From how much on it is charged, under a limit in percent that holds nobody back now."""
    if limit is None:
        return CHARGED_FROM_NS_MAX
    return min(CHARGED_FROM_NS_MAX, int(min(limit, 100.0) * 100_000))
