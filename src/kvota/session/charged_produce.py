"""A Produce that is charged on more than its bytes.

The usual Produce is charged once, in ``session.requests``. Where ``Shared.produce_quotas`` names
further quotas, each is asked first, with the part of the frame that is here; one that refuses answers
the client itself, and nothing of the frame goes on.
"""

from kvota.model.decision_sink import NO_ANSWER, REJECTED, outcome_of
from kvota.session.caller import Caller
from kvota.session.due import Due
from kvota.session.heads import read_acks
from kvota.session.line_place import LinePlace
from kvota.session.produce_quota import Charge, ProduceRequest
from kvota.session.route import Route


def take_charged_produce(
    caller: Caller, place: LinePlace, route: Route, frame: bytes, now_us: int
) -> bytes | None:
    """Charge a Produce on all its quotas.

    Returns:
        The frame: it goes on; empty: a quota has refused it, and it must be swallowed; None: it waits
        for its turn, or until a mute is over, uncharged.

    Raises:
        ProtocolError: the request's head cannot be read.
    """
    if caller.pausing.passing_until_us and caller.pausing.mute_again(now_us):
        return None
    size = int.from_bytes(frame[:4], "big")
    correlation = int.from_bytes(frame[8:12], "big", signed=True)
    client_id_length = int.from_bytes(frame[12:14], "big", signed=True)
    no_acks = read_acks(frame, 0, size + 4, client_id_length, route) == bytes(2)
    lane, now_ms = route.lane, now_us // 1000
    owes_too_much = lane.makes_wait and bool(lane.line or lane.turn_in_ms(now_ms))
    spends = route.enforced or not owes_too_much
    if owes_too_much and route.enforced:
        awaits_answer = not no_acks
        if not place.may_go_on(route, size, awaits_answer=awaits_answer, now_us=now_us):
            return None
    request = ProduceRequest(
        connection=caller.number,
        user=caller.principal.name,
        client_id=route.memo.client_id,
        node_id=caller.node_id,
        version=route.version,
        frame=frame,
    )
    charges: list[Charge] = []
    for quota in caller.shared.produce_quotas:
        charged = quota.charge(request, now_us)
        if not isinstance(charged, Charge):
            append_rows(caller, charges, NO_ANSWER)
            if charged:
                caller.answer_locally(correlation, charged)
            place.leave()
            return b""
        charges.append(charged)
    if spends:
        throttle_ms = lane.admit(size, now_ms)
    else:
        throttle_ms = lane.reject(now_ms)
        caller.uncharged_us = now_us
    place.leave()
    seq = caller.shared.sink.next_seq()
    outcome = outcome_of(throttle_ms) if spends else REJECTED
    charges.append(Charge(route.memo, seq, now_us, size, throttle_ms, outcome))
    if no_acks:
        append_rows(caller, charges, NO_ANSWER)
    else:
        caller.expect((correlation, Due.CHARGED, route, charges))
    _mute(caller, route, charges, now_us // 1000)
    return frame


def _mute(caller: Caller, route: Route, charges: list[Charge], now_ms: int) -> None:
    """Wait for the longest throttle; the last charge is that of the bytes, whose limit may change."""
    *further, of_bytes = (charge.mute_ms for charge in charges)
    if of_bytes > 0:
        caller.mute(of_bytes, route.lane, route.memo.client_id, now_ms)
    if max(further) > 0:
        caller.mute_to_the_end(max(further))


def append_rows(caller: Caller, charges: list[Charge], upstream_ms: int) -> None:
    """Record what one Produce was charged."""
    for charge in charges:
        caller.shared.sink.append(
            charge.memo,
            charge.seq,
            charge.ts_us,
            charge.value,
            charge.throttle_ms,
            upstream_ms,
            charge.outcome,
        )
