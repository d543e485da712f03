"""A ShareFetch on its way up: sent on with what its quota has room for, or with nothing to bring.

It carries acknowledgements, and its broker locks what it brings for this one client. So it is never answered here,
never emptied, and never kept back for long: where there is no room it goes up asking for 0 bytes, its
acknowledgements are applied and nothing is acquired.
"""

from kvota.engine import Lane
from kvota.session.caller import Caller
from kvota.session.due import Due
from kvota.session.fetch_room import FetchRoom, look_again_ms
from kvota.session.heads import behind_header_tags
from kvota.session.pausing import Reason
from kvota.session.route import Route
from kvota.wire import share_fetch
from kvota.wire.headers import REQUEST_HEAD

_HEAD = REQUEST_HEAD.unpack_from

# One that brings no acknowledgements waits no longer than this for room: those that the client has meanwhile wait
# behind it, while the broker's locks run out (15 s at least, where its settings are Kafka's).
SHARE_FETCH_WAIT_MS_MAX = 1_000
_PARTS_OF_WINDOW = 20
# Who has read nothing of late asks for so small a part: hundreds of them may wait for records side by side.
_PARTS_OF_WINDOW_AT_FIRST = 500


def take_share_fetch(
    caller: Caller, data: bytes | bytearray, pos: int, body: int, route: Route, now_us: int
) -> bytes | bytearray | None:
    """Take the ShareFetch at ``pos``, whose body begins at ``body`` and which is here whole.

    Returns:
        What goes up instead of it; ``data`` itself: it goes on as it is; None: it waits, for room or for the
        answer to the one before.

    Raises:
        ProtocolError: it does not say how much it wants, or what of.
    """
    size, _, version, correlation, _ = _HEAD(data, pos)
    lane, mine, end = route.lane, caller.fetch_room, pos + 4 + size
    at = share_fetch.min_bytes_offset(data, behind_header_tags(data, body, end), end, version)
    asked_bytes = share_fetch.max_bytes(data, at)
    is_limited = route.enforced and lane.limit is not None
    if is_limited and mine.is_under_way:
        # A broker, too, has one request of a connection in hand.
        caller.pausing.reasons |= Reason.FETCHING
        return None
    most_bytes = asked_bytes
    if is_limited and asked_bytes > 0:
        most_bytes = min(asked_bytes, _room_bytes(lane, mine, now_us // 1000))
        names_topics = share_fetch.names_topics(data, at, end, version)
        if not most_bytes and not names_topics and _waits(caller, route, end - pos, now_us):
            return None
    is_lowered = most_bytes < asked_bytes
    is_refused = is_lowered and not most_bytes
    caller.expect((correlation, Due.SHARE_FETCH, route, route.client_id, is_refused))
    if is_limited:
        # A broker sends a whole batch, however little it is asked for.
        likely_bytes = max(most_bytes, mine.expected_bytes(lane)) if most_bytes > 0 else 0
        mine.go_up(lane, likely_bytes, most_bytes if is_lowered else None, now_us)
    else:
        mine.leave()
    if not is_lowered:
        return data
    return share_fetch.with_max_bytes(data[pos:end], at - pos, most_bytes)


def _room_bytes(lane: Lane, mine: FetchRoom, now_ms: int) -> int:
    """How much may be asked for; 0: there is too little room.

    It is no more than half of what there is, so that others who ask meanwhile find some, too: what comes is delivered.
    And it is no more than twice what came last: many who wait for records that are not there would take all the room
    from each other, and get more than the limit when the records are there.
    """
    room = lane.answer_room()
    free_bytes = room.free_bytes(lane, now_ms)
    if free_bytes < _least_bytes(lane):
        return 0
    grown_bytes = max(2 * mine.last_bytes, lane.window_bytes // _PARTS_OF_WINDOW_AT_FIRST)
    return max(1, min(free_bytes // 2 - room.overhead_bytes, grown_bytes))


def _least_bytes(lane: Lane) -> int:
    """For less room nobody asks: many small answers would be heads more than records."""
    return max(1, lane.window_bytes // _PARTS_OF_WINDOW)


def _waits(caller: Caller, route: Route, request_bytes: int, now_us: int) -> bool:
    """Keep back a ShareFetch for whose answer there is no room; false: it has waited for long enough."""
    lane, mine, now_ms = route.lane, caller.fetch_room, now_us // 1000
    least_bytes = _least_bytes(lane)
    if mine.is_first_refusal() or lane.went_back(now_ms):
        throttle_ms = lane.refuse(least_bytes, now_ms)
        caller.append_wait(route.memo, now_us, least_bytes, throttle_ms)
    left_ms = mine.left_to_wait_ms(now_us, SHARE_FETCH_WAIT_MS_MAX)
    if not left_ms or not mine.may_wait(request_bytes):
        return False
    missing_bytes = max(1, least_bytes - lane.answer_room().free_bytes(lane, now_ms))
    caller.pausing.give_up_waiting_in(None)
    # In nobody's line: who is the first of one and asks for nothing would keep the others back.
    caller.pausing.stand_in_line(min(look_again_ms(missing_bytes, route.memo), left_ms))
    return True
