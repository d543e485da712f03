"""A Produce that is charged on more than its bytes.

The usual Produce is charged once, in ``session.requests``. Where ``Shared.produce_quotas`` names
further quotas, each is asked first, with the part of the frame that is here; one that refuses answers
the client itself, and nothing of the frame goes on.
"""

from kvota.model.decision_sink import ADMITTED, NO_ANSWER, THROTTLED
from kvota.session.caller import Caller
from kvota.session.due import Due
from kvota.session.heads import read_acks
from kvota.session.produce_quota import Charge, ProduceRequest
from kvota.session.route import Route


def take_charged_produce(caller: Caller, route: Route, frame: bytes, now_us: int) -> bool:
    """Charge a Produce on all its quotas; False: one has refused it, and it must be swallowed.

    Raises:
        ProtocolError: the request's head cannot be read.
    """
    size = int.from_bytes(frame[:4], "big")
    correlation = int.from_bytes(frame[8:12], "big", signed=True)
    client_id_length = int.from_bytes(frame[12:14], "big", signed=True)
    no_acks = read_acks(frame, 0, size + 4, client_id_length, route) == bytes(2)
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
            return False
        charges.append(charged)
    throttle_ms = route.charge(size, now_us // 1000)
    seq = caller.shared.sink.next_seq()
    charges.append(Charge(route.memo, seq, now_us, size, throttle_ms))
    if no_acks:
        append_rows(caller, charges, NO_ANSWER)
    else:
        caller.expect((correlation, Due.CHARGED, route, charges))
    mute_ms = max(charge.mute_ms for charge in charges)
    if mute_ms > 0:
        caller.mute(mute_ms, route.lane, route.memo.client_id)
    return True


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
            THROTTLED if charge.throttle_ms > 0 else ADMITTED,
        )
