"""A Produce over its limit: throttled, or kept back in the line of its counter."""

from typing import NamedTuple

from kvota.engine import MUST_WAIT
from kvota.model.decision_sink import REJECTED, outcome_of
from kvota.session.caller import Caller
from kvota.session.charged_produce import expect_answer
from kvota.session.line_place import LinePlace
from kvota.session.produce_quota import Charge
from kvota.session.route import Route


class ProduceHead(NamedTuple):
    """What has been read of the request."""

    correlation: int
    size: int
    awaits_answer: bool  # acks are not 0


def take_over_limit(
    caller: Caller,
    place: LinePlace,
    route: Route,
    head: ProduceHead,
    throttle_ms: int,
    now_us: int,
) -> bool:
    """Go on with a Produce whose charge has answered ``throttle_ms``; False: it waits, uncharged.

    A throttle below 0 (as Kafka narrows long ones) holds nobody back.
    """
    correlation, size, awaits_answer = head
    lane, now_ms = route.lane, now_us // 1000
    outcome = outcome_of(throttle_ms)
    if throttle_ms == MUST_WAIT:
        if not route.enforced:  # it goes on, and spends nothing beyond what may be owed
            throttle_ms, outcome = lane.reject(size, now_ms), REJECTED
        elif place.may_go_on(route, size, awaits_answer=awaits_answer, now_us=now_us):
            throttle_ms = lane.admit(size, now_ms)
            outcome = outcome_of(throttle_ms)
        else:
            return False
        place.leave()
    charge = Charge(route.memo, caller.shared.sink.next_seq(), now_us, size, throttle_ms, outcome)
    expect_answer(caller, route, correlation, [charge], awaits_answer=awaits_answer)
    if charge.mute_ms > 0:
        caller.mute(throttle_ms, lane, route.memo.client_id, now_ms)
    return True
