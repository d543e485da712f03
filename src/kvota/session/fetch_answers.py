"""An answer to a Fetch or ShareFetch of which at least the head is here: charged, and delivered or emptied."""

from struct import Struct

from kvota.engine import Verdict
from kvota.model.decision_sink import REJECTED, outcome_of
from kvota.model.errors import ProtocolError
from kvota.model.quota_type import Algorithm
from kvota.session.caller import Caller
from kvota.session.commands import Do
from kvota.session.due import Entry
from kvota.session.fetch_room import empty_answer
from kvota.session.heads import behind_header_tags
from kvota.session.pausing import Reason
from kvota.session.route import Route
from kvota.session.share_fetch_requests import SHARE_FETCH_WAIT_MS_MAX
from kvota.wire import fetch
from kvota.wire.error_code import ErrorCode

_INT32 = Struct(">i")
_READ_INT32 = _INT32.unpack_from
_WRITE_INT32 = _INT32.pack_into
_THROTTLE_AND_ERROR = Struct(">ih").unpack_from
# Plain ints, and one name: the interpreter finds an enum's members the slow way.
_NO_ERROR, _FETCHING = int(ErrorCode.NONE), int(Reason.FETCHING)
_TOKEN_BUCKET = Algorithm.TOKEN_BUCKET


def charge_fetch(
    caller: Caller, data: bytes | bytearray, pos: int, frame_end: int, entry: Entry, now_us: int
) -> tuple[bytes | bytearray, bytes]:
    """Charge the answer at ``pos``; its end may lie behind what is here.

    Where the quota is in force an answer that is over it is emptied, as a broker does: all of it is read and
    dropped, and the client gets one without topics, in the same session. The broker has advanced
    that session, so the client's next request fits.

    Returns:
        The chunk, with the throttle time in it where it is delivered; and what the client gets instead of
        the answer, empty where that is delivered.

    Raises:
        ProtocolError: it is too short for its fields.
    """
    _, _, route, client_id = entry
    end = min(frame_end, len(data))
    at = _body_offset(data, pos, end, route)
    head = fetch.head_of_answer(data, at, end, route.version)
    if at + 4 > end or head is None:
        msg = f"the broker announced an answer of {frame_end - pos - 4} bytes to a Fetch"
        raise ProtocolError(msg)
    upstream_ms = _READ_INT32(data, at)[0] if route.version else 0
    if route.client_id != client_id or route.lane_version != route.lane.version:
        caller.look_up_now(route, client_id, now_us)
    value = frame_end - at + 4  # Kafka charges 4 + the body, without the header's tags
    error_code, session_id = head
    request_ms = caller.request_throttle_ms if error_code == _NO_ERROR else 0
    if request_ms:
        verdict = _refused_for_time(route, value, now_us // 1000, request_ms)
    else:
        verdict = _verdict(route, value, error_code, now_us // 1000)
    sink, memo = caller.shared.sink, route.memo
    outcome = outcome_of(verdict.throttle_ms) if verdict.is_charged else REJECTED
    sink.append(memo, sink.next_seq(), now_us, value, verdict.throttle_ms, upstream_ms, outcome)
    _go_on(caller, route, value, now_us)
    if verdict.wait_ms <= 0 or not (route.enforced or request_ms):
        return data, b""
    if verdict.wait_ms > request_ms:  # else it is muted on behalf of REQUEST
        caller.mute(verdict.wait_ms, route.lane, memo.client_id, now_us // 1000)
    if not verdict.is_delivered:
        wait_ms = max(1, route.answered_ms(memo, verdict.wait_ms, upstream_ms))
        return data, empty_answer(entry[0], route.version, wait_ms, session_id=session_id)
    if verdict.throttle_ms > upstream_ms and route.version:
        data = data if isinstance(data, bytearray) else bytearray(data)
        _WRITE_INT32(data, at, route.answered_ms(memo, verdict.throttle_ms, upstream_ms))
    return data, b""


def charge_share_fetch(
    caller: Caller, data: bytes | bytearray, pos: int, frame_end: int, entry: Entry, now_us: int
) -> bytes | bytearray:
    """Charge the answer to a ShareFetch at ``pos``; its end may lie behind what is here.

    It is delivered, whatever it costs: its records are locked for this client. Who is over the quota is told so; what
    holds it back is that there is no room for the next one (``share_fetch_requests``).

    Returns:
        The chunk, with the throttle time in it.

    Raises:
        ProtocolError: it is too short for its fields.
    """
    _, _, route, client_id, is_refused = entry
    end = min(frame_end, len(data))
    at = _body_offset(data, pos, end, route)
    if at + 6 > end:
        msg = f"the broker announced an answer of {frame_end - pos - 4} bytes to a ShareFetch"
        raise ProtocolError(msg)
    upstream_ms, error_code = _THROTTLE_AND_ERROR(data, at)
    if route.client_id != client_id or route.is_outdated:
        caller.look_up_now(route, client_id, now_us)
    value, lane, now_ms = frame_end - at + 4, route.lane, now_us // 1000
    if is_refused:  # as an emptied Fetch, it does not count
        verdict = Verdict(lane.refuse(value, now_ms), 0, is_charged=False)
    elif route.enforced:
        verdict = lane.answer_room().deliver(lane, value, now_ms)
    else:
        verdict = _verdict(route, value, error_code, now_ms)
    sink, memo = caller.shared.sink, route.memo
    outcome = outcome_of(verdict.throttle_ms) if verdict.is_charged else REJECTED
    sink.append(memo, sink.next_seq(), now_us, value, verdict.throttle_ms, upstream_ms, outcome)
    if is_refused:
        caller.fetch_room.has_come_without_records(now_us)
        _resume(caller)
    else:
        _go_on(caller, route, value, now_us)
    if verdict.throttle_ms > upstream_ms and route.enforced:
        data = data if isinstance(data, bytearray) else bytearray(data)
        told_ms = min(verdict.throttle_ms, SHARE_FETCH_WAIT_MS_MAX)
        _WRITE_INT32(data, at, route.answered_ms(memo, told_ms, upstream_ms))
    return data


def _body_offset(data: bytes | bytearray, pos: int, end: int, route: Route) -> int:
    at = pos + 8
    if not route.flexible:
        return at
    plain = data[at : at + 1] == b"\0"
    return at + 1 if plain else behind_header_tags(data, at, end)


def _verdict(route: Route, value: int, error_code: int, now_ms: int) -> Verdict:
    """Deliver it or not; an error, and everything in shadow mode, is delivered."""
    lane = route.lane
    if route.enforced and error_code == _NO_ERROR:
        return lane.answer_room().judge(lane, value, now_ms)
    if lane.algorithm is _TOKEN_BUCKET and (lane.is_blocked or lane.turn_in_ms(now_ms)):
        # Nothing is spent beyond what may be owed: so enforcement never starts with hours of debt.
        throttle_ms = lane.refuse(value, now_ms)
        return Verdict(throttle_ms, lane.peek(now_ms), is_charged=False)
    throttle_ms = lane.admit(value, now_ms)
    return Verdict(throttle_ms, throttle_ms)


def _refused_for_time(route: Route, value: int, now_ms: int, request_ms: int) -> Verdict:
    """REQUEST comes first: a Fetch that it throttles is emptied, and its bytes are not counted.

    Source: Kafka 4.3.1 ``KafkaApis.handleFetchRequest``.
    """
    throttle_ms = route.lane.refuse(value, now_ms)
    wait_ms = max(request_ms, throttle_ms if route.enforced else 0)
    return Verdict(throttle_ms, wait_ms, is_delivered=False, is_charged=False)


def _go_on(caller: Caller, route: Route, value: int, now_us: int) -> None:
    """The next Fetch may go up, as far as its quota has room."""
    if route.enforced and route.lane.limit is not None:
        caller.fetch_room.has_come(route.lane, value, now_us)
    else:
        caller.fetch_room.end()
    _resume(caller)


def _resume(caller: Caller) -> None:
    if caller.pausing.reasons & _FETCHING:
        caller.commands.append((Do.RESUME, _FETCHING))
