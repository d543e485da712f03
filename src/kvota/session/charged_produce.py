"""A Produce that is charged on more than its bytes, or whose end is not here yet.

The usual Produce is charged once, in ``session.requests``. Where ``Shared.produce_quotas`` names
further quotas, each is asked first, with the part of the frame that is here; one that refuses answers
the client itself, and nothing of the frame goes on.

A broker charges a request when all of it is here, and so does a sampled rate: who announces much and
sends little spends nothing that others share. A debt bucket is charged at the head, else its bound would
not hold; ``session.unfinished`` looks after both.
"""

from typing import NamedTuple, Protocol

from kvota.model.decision_sink import NO_ANSWER, REJECTED, outcome_of
from kvota.session.caller import Caller
from kvota.session.due import Due
from kvota.session.heads import read_acks
from kvota.session.line_place import LinePlace
from kvota.session.produce_quota import Charge, ProduceRequest
from kvota.session.route import Route
from kvota.wire.headers import REQUEST_HEAD, REQUEST_HEAD_BYTES
from kvota.wire.steps import Steps
from kvota.wire.varint import Frame

_HEAD = REQUEST_HEAD.unpack_from
_NO_ACKS = bytes(2)


class AnswerInPart(Protocol):
    """What the gateway has to do with the broker's answer to a Produce, of which perhaps only a part went on.

    Attributes:
        throttle_ms: what the client is told at least.
    """

    throttle_ms: int

    def merged(self, frame: Frame) -> Steps[Frame]:
        """Take the answer; returns the client's."""
        ...

    def abandoned(self) -> None:
        """There is none."""
        ...


class AdmittedProduce(NamedTuple):
    """One that goes on, and is charged on its further quotas.

    Attributes:
        route: of its version and client.
        correlation: its id.
        size: that it has announced.
        awaits_answer: its acks are not 0.
        further: its charges so far.
        in_part: what is to be done with the broker's answer; None: nothing.
    """

    route: Route
    correlation: int
    size: int
    awaits_answer: bool
    further: list[Charge]
    in_part: AnswerInPart | None = None


def take_charged_produce(
    caller: Caller, place: LinePlace, route: Route, frame: bytes, now_us: int
) -> AdmittedProduce | bytes | None:
    """Charge a Produce on its further quotas, when its turn has come.

    Returns:
        What is to be charged on its bytes, and goes on; empty: a quota has refused it, and it must be
        swallowed; None: it waits for its turn, or until a mute is over, uncharged.

    Raises:
        ProtocolError: the request's head cannot be read.
    """
    if caller.pausing.passing_until_us and caller.pausing.mute_again(now_us):
        return None
    size, _, _, correlation, client_id_length = _HEAD(frame, 0)
    awaits_answer = _acks(frame, size, client_id_length, route) != _NO_ACKS
    must_wait = route.enforced and _owes_too_much(route, now_us)
    if must_wait and not place.may_go_on(route, size, awaits_answer=awaits_answer, now_us=now_us):
        return None
    charges: list[Charge] = []
    if caller.shared.produce_quotas:
        refusal = _charge_further(caller, route, frame, charges, now_us)
        if refusal is not None:
            append_rows(caller, charges, NO_ANSWER)
            if refusal:
                told = caller.told_in(refusal, (route.key, route.version), now_us)
                caller.answer_locally(correlation, told)
            place.leave()
            return b""
        further_ms = max(charge.mute_ms for charge in charges)
        if further_ms > 0:
            caller.mute_to_the_end(further_ms)
    return AdmittedProduce(route, correlation, size, awaits_answer, charges)


def _acks(frame: bytes, size: int, client_id_length: int, route: Route) -> bytes:
    body = REQUEST_HEAD_BYTES + max(client_id_length, 0)
    acks = frame[body + 2 : body + 4]
    if len(acks) == len(_NO_ACKS) and frame[body : body + 2] == route.no_transaction:
        return acks
    return read_acks(frame, 0, size + 4, client_id_length, route)


def _charge_further(
    caller: Caller, route: Route, frame: bytes, charges: list[Charge], now_us: int
) -> bytes | None:
    """Charge one Produce on each further quota, into ``charges``, until one refuses; returns what that answers."""
    request = ProduceRequest(
        connection=caller.number,
        user=caller.principal.name,
        client_id=route.memo.client_id,
        node_id=caller.node_id,
        version=route.version,
        frame=frame,
    )
    for quota in caller.shared.produce_quotas:
        charged = quota.charge(request, now_us)
        if not isinstance(charged, Charge):
            return charged
        charges.append(charged)
    return None


def charge_bytes(caller: Caller, produce: AdmittedProduce, now_us: int) -> bool:
    """Charge what has been admitted on its bytes, whatever is owed by now, and expect its answer.

    Returns:
        False: it goes on uncharged (in shadow mode, while too much is owed).
    """
    route, correlation, size, awaits_answer, charges, in_part = produce
    spends = route.enforced or not _owes_too_much(route, now_us)
    if spends:
        throttle_ms = route.lane.admit(size, now_us // 1000)
    else:
        throttle_ms = route.lane.reject(size, now_us // 1000)
    seq = caller.shared.sink.next_seq()
    outcome = outcome_of(throttle_ms) if spends else REJECTED
    of_bytes = Charge(route.memo, seq, now_us, size, throttle_ms, outcome)
    charges.append(of_bytes)
    expect_answer(caller, route, correlation, charges, awaits_answer=awaits_answer, in_part=in_part)
    if of_bytes.mute_ms > 0:
        caller.mute(of_bytes.mute_ms, route.lane, route.memo.client_id, now_us // 1000)
    return spends


def _owes_too_much(route: Route, now_us: int) -> bool:
    lane = route.lane
    return lane.makes_wait and bool(lane.line or lane.turn_in_ms(now_us // 1000))


def expect_answer(
    caller: Caller,
    route: Route,
    correlation: int,
    charges: list[Charge],
    *,
    awaits_answer: bool,
    in_part: AnswerInPart | None = None,
) -> None:
    """A Produce that was charged goes on; where nobody answers it, its rows are written now."""
    last = charges[-1]
    if not awaits_answer:
        append_rows(caller, charges, NO_ANSWER)
    elif len(charges) > 1 or last.outcome == REJECTED or in_part is not None:
        caller.expect((correlation, Due.CHARGED, route, charges, in_part))
    else:
        charge = (last.memo, last.seq, last.ts_us, last.value, last.throttle_ms)
        caller.expect((correlation, Due.PRODUCE, route, *charge))


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


def abandon_due(caller: Caller) -> None:
    """No answer comes any more: record what was charged."""
    for entry in caller.due:
        if entry[1] == Due.PRODUCE:
            _, _, _, memo, seq, ts_us, value, throttle_ms = entry
            caller.append_row(memo, seq, ts_us, value, throttle_ms, NO_ANSWER)
        elif entry[1] == Due.CHARGED:
            append_rows(caller, entry[3], NO_ANSWER)
            if entry[4] is not None:
                entry[4].abandoned()
        elif entry[1] in {Due.EXCHANGE, Due.TOKEN}:
            entry[2].abandoned()
    caller.due.clear()
