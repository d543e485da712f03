"""What would be lost with a connection, and whose it is: what ``session.giving_way`` goes by."""

from kvota.session.answers import Answers
from kvota.session.budget import User
from kvota.session.caller import Caller
from kvota.session.due import Due
from kvota.session.giving_way import Standing
from kvota.session.pausing import Reason
from kvota.session.requests import Requests
from kvota.wire.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE

# What every client asks before it is anybody's.
_BEFORE_ALL = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
# Who has more on their way has answers due; they need not be looked through.
_LOOKED_THROUGH_MAX = 50


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
    if caller.at_work or caller.answer_left or answers.has_begun or reasons & Reason.DIALLING:
        return Standing.AT_WORK
    due = len(caller.due) - _is_last_half_here(caller, requests)
    if due:
        if due > _LOOKED_THROUGH_MAX:
            return Standing.AT_WORK
        fetches = sum(entry[1] == Due.FETCH for entry in caller.due)
        return Standing.AWAITS_RECORDS if fetches == due else Standing.AT_WORK
    return Standing.UNREAD if requests.left or requests.buffered or reasons else Standing.IDLE


def _is_last_half_here(caller: Caller, requests: Requests) -> bool:
    """True where the last answer that is due is to a request whose end has not come: no broker answers that."""
    if not requests.left or requests.swallowed_bytes or not caller.due:
        return False
    return requests.unfinished.is_expected
