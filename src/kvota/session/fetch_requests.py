"""A Fetch on its way up: sent on with what its quota has room for, kept back, or answered empty."""

from kvota.model.quota_type import Algorithm
from kvota.session.caller import Caller
from kvota.session.due import Due
from kvota.session.fetch_room import asks_for, empty_answer, look_again_ms, lower_max_bytes
from kvota.session.heads import bad_size, behind_header_tags
from kvota.session.route import Route
from kvota.wire.headers import REQUEST_HEAD

_HEAD = REQUEST_HEAD.unpack_from


def take_fetch(
    caller: Caller, data: bytes | bytearray, pos: int, body: int, route: Route, now_us: int
) -> bytes | bytearray | None:
    """Take the Fetch at ``pos``, whose body begins at ``body``.

    Returns:
        What goes up instead of the part of it that is here; ``data`` itself: it goes on as it is;
        empty: it was answered; None: it waits for room.

    Raises:
        ProtocolError: it does not say how much it wants where its version does.
    """
    size, _, _, correlation, _ = _HEAD(data, pos)
    frame_end = pos + 4 + size
    entry = (correlation, Due.FETCH, route, route.client_id)
    if not route.enforced:
        caller.expect(entry)
        return data
    if caller.pausing.passing_until_us > now_us:
        # Read in the middle of a long mute: answered as a broker does, empty, with the wait.
        return _answered_empty(caller, route, correlation, caller.pausing.passing_left_ms(now_us))
    offset = _max_bytes_offset(data, body, frame_end, route)
    allowed = route.lane.allowance(now_us // 1000) if offset >= 0 else 0
    if offset < 0 or asks_for(data, offset) <= allowed:
        caller.expect(entry)
        return data
    missing_bytes = route.fetch_room.expected_bytes - allowed
    if missing_bytes > 0:
        left_ms = route.fetch_room.left_to_wait_ms(now_us)
        if left_ms > 0 and route.fetch_room.may_wait(size, route.lane.algorithm):
            _wait(caller, route, missing_bytes, left_ms, now_us)
            return None
        if route.lane.algorithm is Algorithm.TOKEN_BUCKET:
            # No room in all this time: a broker would say so, too, and more often.
            route.fetch_room.waited(now_us)
            wait_ms = look_again_ms(missing_bytes, route.memo)
            return _answered_empty(caller, route, correlation, wait_ms)
    caller.expect(entry)
    return lower_max_bytes(data[pos:frame_end], offset - pos, allowed)


def _wait(caller: Caller, route: Route, missing_bytes: int, left_ms: int, now_us: int) -> None:
    """Keep a Fetch back, because there is no room for its answer; one row for each wait."""
    room = route.fetch_room
    if room.is_first_refusal():
        throttle_ms = route.lane.refuse(room.expected_bytes, now_us // 1000)
        caller.append_wait(route.memo, now_us, room.expected_bytes, throttle_ms)
    caller.wait_for_room(min(look_again_ms(missing_bytes, route.memo), left_ms))


def _answered_empty(caller: Caller, route: Route, correlation: int, throttle_ms: int) -> bytes:
    """Nothing goes up: the client gets an empty answer that says how long to wait."""
    answered_ms = max(1, route.answered_ms(route.memo, throttle_ms, 0))
    caller.answer_locally(correlation, empty_answer(correlation, route.version, answered_ms))
    return b""


def _max_bytes_offset(data: bytes | bytearray, body: int, frame_end: int, route: Route) -> int:
    """Where a Fetch says how much it wants, -1 where its version does not."""
    offset = route.max_bytes_offset
    if offset < 0:
        return -1
    at = body
    if route.flexible and body + offset < frame_end and data[body]:
        at = behind_header_tags(data, body, frame_end) - 1
    if at + offset + 4 > frame_end:
        raise bad_size(frame_end - body, route)
    return at + offset
