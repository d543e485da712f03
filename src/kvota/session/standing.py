"""What would be lost with a connection, and whose it is: what ``session.giving_way`` goes by."""

from kvota.model.errors import ProtocolError
from kvota.session.answers import Answers
from kvota.session.budget import User
from kvota.session.caller import Caller
from kvota.session.due import Due
from kvota.session.giving_way import Standing
from kvota.session.heads import read_acks
from kvota.session.pausing import Reason
from kvota.session.requests import Requests
from kvota.wire.apis import API_VERSIONS, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kvota.wire.headers import REQUEST_HEAD, REQUEST_HEAD_BYTES

# What every client asks before it is anybody's.
_BEFORE_ALL = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
# Who has more on their way has answers due; they need not be looked through.
_LOOKED_THROUGH_MAX = 50
_NO_ACKS = bytes(2)


def holder_of(caller: Caller) -> User | None:
    """Whose the place of this connection is; None: nobody's yet, it has shown nothing but that it can connect."""
    if caller.is_let_in:
        return caller.user
    if caller.shared.asks_for_logins:
        return None
    has_asked = any(key_version >> 16 not in _BEFORE_ALL for key_version in caller.routes)
    return caller.user if has_asked else None


def standing_of(caller: Caller, requests: Requests, answers: Answers) -> Standing:
    """What would be lost if the connection were closed now.

    Bytes that were forwarded and await no answer go to the broker all the same.
    """
    reasons = caller.pausing.reasons
    if reasons and _keeps_back_sent_once(caller, requests.buffered):
        return Standing.SENT_ONCE
    if caller.at_work or caller.answer_left or answers.kept_bytes or reasons & Reason.DIALLING:
        return Standing.AT_WORK
    due = len(caller.due) - _is_last_half_here(caller, requests)
    if due:
        if due > _LOOKED_THROUGH_MAX:
            return Standing.AT_WORK
        fetches = sum(entry[1] == Due.FETCH for entry in caller.due)
        return Standing.AWAITS_RECORDS if fetches == due else Standing.AT_WORK
    return Standing.UNREAD if requests.left or requests.buffered or reasons else Standing.IDLE


def _keeps_back_sent_once(caller: Caller, buffered: bytearray) -> bool:
    """True where what is kept back begins with a Produce that awaits no answer (acks = 0).

    One whose acks are not here yet is as good as unread.
    """
    if len(buffered) < REQUEST_HEAD_BYTES:
        return False
    size, key, version, _, client_id_bytes = REQUEST_HEAD.unpack_from(buffered)
    route = caller.routes.get(version) if key == PRODUCE else None  # its key is 0
    if route is None:
        return False
    try:
        return read_acks(buffered, 0, 4 + size, client_id_bytes, route) == _NO_ACKS
    except ProtocolError:
        return False


def _is_last_half_here(caller: Caller, requests: Requests) -> bool:
    """True where the last answer that is due is to a request whose end has not come: no broker answers that."""
    if not requests.left or requests.swallowed_bytes or not caller.due:
        return False
    return requests.unfinished.is_expected
