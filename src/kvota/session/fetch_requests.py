"""A Fetch on its way up: sent on with what its quota has room for, kept back, or answered empty."""

from typing import NamedTuple

from kvota.session.caller import Caller
from kvota.session.due import Due
from kvota.session.fetch_room import (
    QUIET_BYTES,
    asks_for,
    empty_answer,
    is_incremental,
    look_again_ms,
    lower_max_bytes,
)
from kvota.session.heads import bad_size, behind_header_tags
from kvota.session.pausing import Reason
from kvota.session.route import Route
from kvota.wire.headers import REQUEST_HEAD

_HEAD = REQUEST_HEAD.unpack_from
_INT32_MAX = 2**31 - 1
# A plain int: the interpreter finds an enum's members the slow way.
_FETCH = int(Due.FETCH)


class _Fetch(NamedTuple):
    """One Fetch in a chunk, from ``pos`` to ``end``; ``offset``: of its max_bytes, -1 where it has none."""

    route: Route
    data: bytes | bytearray
    pos: int
    end: int
    offset: int
    correlation: int


def take_fetch(
    caller: Caller, data: bytes | bytearray, pos: int, body: int, route: Route, now_us: int
) -> bytes | bytearray | None:
    """Take the Fetch at ``pos``, whose body begins at ``body`` and which is here whole.

    Returns:
        What goes up instead of it; ``data`` itself: it goes on as it is; empty: it was answered; None: it
        waits, for room or for the answer to the one before.

    Raises:
        ProtocolError: it does not say how much it wants where its version does.
    """
    size, _, _, correlation, _ = _HEAD(data, pos)
    mine = caller.fetch_room
    if not route.enforced or route.lane.limit is None:
        mine.leave()
        caller.expect((correlation, _FETCH, route, route.client_id))
        return data
    if mine.is_under_way:
        # A broker, too, has one request of a connection in hand.
        caller.pausing.reasons |= Reason.FETCHING
        return None
    end = pos + 4 + size
    asked = _Fetch(route, data, pos, end, _max_bytes_offset(data, body, end, route), correlation)
    if caller.pausing.passing_until_us > now_us:
        # Read in the middle of a long mute, which goes on behind it.
        return _without_room(caller, asked, caller.pausing.passing_left_ms(now_us), now_us)
    return _take_limited(caller, asked, now_us)


def _take_limited(caller: Caller, asked: _Fetch, now_us: int) -> bytes | bytearray | None:
    """Send it on if there is room for what it is likely to bring."""
    route, data, pos, end, offset, correlation = asked
    lane, mine, now_ms = route.lane, caller.fetch_room, now_us // 1000
    room = lane.answer_room()
    free_bytes = room.free_bytes(lane, now_ms)
    asked_bytes = asks_for(data, offset) if offset >= 0 else _INT32_MAX
    expected_bytes = mine.expected_bytes(lane)
    if expected_bytes > asked_bytes:
        expected_bytes = max(0, asked_bytes)
    missing_bytes = expected_bytes - free_bytes
    if expected_bytes > QUIET_BYTES and mine.must_stand_behind(lane):
        missing_bytes = max(missing_bytes, 1)
    if missing_bytes > 0:
        wait_ms = look_again_ms(missing_bytes, route.memo)
        if _waits(caller, asked, expected_bytes, wait_ms, now_us):
            return None
        instead = _without_room(caller, asked, wait_ms, now_us)
        if not instead:
            caller.mute(wait_ms, lane, route.memo.client_id, now_ms)
        return instead
    caller.expect((correlation, _FETCH, route, route.client_id))
    most_bytes = max(1, free_bytes - room.overhead_bytes)
    if offset < 0 or asked_bytes <= most_bytes:
        mine.go_up(lane, expected_bytes, None, now_us)
        return data
    mine.go_up(lane, expected_bytes, most_bytes, now_us)
    return lower_max_bytes(data[pos:end], offset - pos, most_bytes)


def _waits(caller: Caller, asked: _Fetch, expected_bytes: int, wait_ms: int, now_us: int) -> bool:
    """Keep back a Fetch for whose answer there is no room; false: it has waited for long enough."""
    route, mine, now_ms = asked.route, caller.fetch_room, now_us // 1000
    lane = route.lane
    if mine.is_first_refusal() or lane.went_back(now_ms):
        # One row for each wait; another one where the clock has stepped back: time counts by rows.
        throttle_ms = lane.refuse(expected_bytes, now_ms)
        caller.append_wait(route.memo, now_us, expected_bytes, throttle_ms)
    left_ms = mine.left_to_wait_ms(now_us)
    if left_ms == 0:
        return False
    is_first = mine.stand_in_line(lane)
    if not mine.may_wait(asked.end - asked.pos):
        return False
    caller.pausing.give_up_waiting_in(None)
    caller.pausing.stand_in_line(min(wait_ms, left_ms) if is_first else left_ms)
    return True


def _without_room(caller: Caller, asked: _Fetch, wait_ms: int, now_us: int) -> bytes | bytearray:
    """A Fetch that waits no longer: answered as a broker does, empty, with the wait.

    One that goes on with a session goes up all the same, for as little as there may be: only the broker can
    advance that. What it brings is judged when it is here.
    """
    route, data, pos, end, offset, correlation = asked
    mine = caller.fetch_room
    if offset >= 0 and is_incremental(data, offset, end, route.version):
        caller.expect((correlation, _FETCH, route, route.client_id))
        mine.go_up(route.lane, 0, None, now_us)
        return lower_max_bytes(data[pos:end], offset - pos, 1)
    mine.leave()
    mine.has_been_answered(now_us)
    answered_ms = max(1, route.answered_ms(route.memo, wait_ms, 0))
    answer = empty_answer(correlation, route.version, answered_ms)
    told = caller.told_in(answer, (route.key, route.version), now_us)
    caller.answer_locally(correlation, told)
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
