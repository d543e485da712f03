"""A ShareFetch on its way up: sent on with what its quota has room for, or with nothing to bring.

It carries acknowledgements, and its broker locks what it brings for this one client. So it is never answered here,
never emptied, and never kept back for long: where there is no room it goes up asking for 0 bytes, its
acknowledgements are applied and nothing is acquired. Its place among those who wait for room is kept meanwhile.
"""

from kvota.engine import Lane
from kvota.session.caller import Caller
from kvota.session.due import Due
from kvota.session.fetch_room import LOOK_AGAIN_MS, look_again_ms
from kvota.session.heads import behind_header_tags
from kvota.session.line_place import place_key
from kvota.session.pausing import Reason
from kvota.session.route import Route
from kvota.wire import share_fetch
from kvota.wire.headers import REQUEST_HEAD

_HEAD = REQUEST_HEAD.unpack_from

# One that brings no acknowledgements waits no longer than this for room: those that the client has meanwhile wait
# behind it, while the broker's locks run out (15 s at least, where its settings are Kafka's). Nor does it wait longer
# for records at its broker, so that those who wait there take turns.
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
    if not route.enforced or lane.limit is None:
        mine.leave()
        caller.expect((correlation, Due.SHARE_FETCH, route, route.client_id, asked_bytes, False))
        return data
    if mine.is_under_way:
        # A broker, too, has one request of a connection in hand.
        caller.pausing.reasons |= Reason.FETCHING
        return None
    most_bytes, names_topics = asked_bytes, share_fetch.names_topics(data, at, end, version)
    if asked_bytes > 0:
        most_bytes = min(asked_bytes, _room_bytes(caller, route, asked_bytes, now_us // 1000))
    if most_bytes <= 0:
        may_wait = asked_bytes > 0 and not names_topics
        if _waits(caller, route, end - pos, now_us, may_wait=may_wait):
            return None
        mine.give_up(place_key(caller, route), now_us // 1000)
    is_lowered = most_bytes < asked_bytes
    is_refused = is_lowered and not most_bytes
    caller.expect((correlation, Due.SHARE_FETCH, route, route.client_id, most_bytes, is_refused))
    # A broker sends a whole batch, however little it is asked for.
    likely_bytes = max(most_bytes, mine.expected_bytes(lane)) if most_bytes > 0 else 0
    may_come_bytes = _may_come_bytes(lane, most_bytes)
    mine.go_up(lane, likely_bytes, most_bytes if is_lowered else None, now_us, may_come_bytes)
    if not is_lowered and share_fetch.max_wait_ms(data, at) <= SHARE_FETCH_WAIT_MS_MAX:
        return data
    return share_fetch.lowered(
        data[pos:end], at - pos, most_bytes=most_bytes, wait_ms=SHARE_FETCH_WAIT_MS_MAX
    )


def _room_bytes(caller: Caller, route: Route, asked_bytes: int, now_ms: int) -> int:
    """How much may be asked for; 0: there is too little room, or others have waited for longer.

    It is no more than half of what there is, so that others who ask meanwhile find some, too: what comes is delivered.
    And it is no more than twice what came last: many who wait for records that are not there would take all the room
    from each other, and get more than the limit when the records are there.
    """
    lane, mine = route.lane, caller.fetch_room
    room = lane.answer_room()
    free_bytes = room.free_bytes(lane, now_ms)
    grown_bytes = max(2 * mine.last_bytes, lane.window_bytes // _PARTS_OF_WINDOW_AT_FIRST)
    most_bytes = max(1, min(free_bytes // 2 - room.overhead_bytes, grown_bytes))
    has_room = free_bytes >= _least_bytes(lane) and room.lets_come(
        lane, _may_come_bytes(lane, min(asked_bytes, most_bytes))
    )
    if has_room and not room.line:
        return most_bytes
    is_first = mine.stand_in_line(lane, place_key(caller, route), now_ms)
    return most_bytes if has_room and is_first else 0


def _may_come_bytes(lane: Lane, most_bytes: int) -> int:
    return max(most_bytes, int(lane.answer_room().batch_bytes)) if most_bytes > 0 else 0


def _least_bytes(lane: Lane) -> int:
    """For less room nobody asks: many small answers would be heads more than records."""
    return max(1, lane.window_bytes // _PARTS_OF_WINDOW)


def _waits(
    caller: Caller, route: Route, request_bytes: int, now_us: int, *, may_wait: bool
) -> bool:
    """Keep back a ShareFetch that is to bring nothing; false: it goes up.

    One with acknowledgements may not wait for room. But until answers without records are paid for each waits.
    """
    lane, mine, now_ms = route.lane, caller.fetch_room, now_us // 1000
    room = lane.answer_room()
    look_ms = min(room.may_be_told_in_ms(lane, now_ms), LOOK_AGAIN_MS)
    if look_ms:
        # It keeps nobody back who waits for room.
        mine.give_up(place_key(caller, route), now_ms)
    elif may_wait:
        missing_bytes = max(1, _least_bytes(lane) - room.free_bytes(lane, now_ms))
        left_ms = mine.left_to_wait_ms(now_us, SHARE_FETCH_WAIT_MS_MAX)
        is_first = mine.stand_in_line(lane, place_key(caller, route), now_ms)
        look_ms = min(look_again_ms(missing_bytes, route.memo), left_ms) if is_first else left_ms
    if may_wait or look_ms:
        _append_wait(caller, route, now_us)
    if not look_ms or not mine.may_wait(request_bytes):
        return False
    caller.pausing.give_up_waiting_in(None)
    caller.pausing.stand_in_line(look_ms)
    return True


def _append_wait(caller: Caller, route: Route, now_us: int) -> None:
    """One row for a wait, and another one where the clock has stepped back."""
    lane, now_ms = route.lane, now_us // 1000
    if caller.fetch_room.is_first_refusal() or lane.went_back(now_ms):
        least_bytes = _least_bytes(lane)
        throttle_ms = lane.refuse(least_bytes, now_ms)
        caller.append_wait(route.memo, now_us, least_bytes, throttle_ms)
