"""Answers that are here whole and have to be looked through: a large one takes more than one step."""

from collections.abc import Generator
from struct import Struct

from kvota.session.caller import Caller
from kvota.session.charged_produce import append_rows
from kvota.session.due import Due, Entry
from kvota.session.route import Route
from kvota.wire.addresses import ProduceRewrite, rewrite_produce_in_steps
from kvota.wire.steps import Steps
from kvota.wire.varint import Frame

_INT32 = Struct(">i")


def take_in_steps(caller: Caller, frame: Frame, entry: Entry, now_us: int) -> Steps[Frame]:
    """Take an answer to a Produce that is not plain, or to what an exchange has asked.

    Raises:
        ProtocolError: it cannot be read, or must not be forwarded.
    """
    if entry[1] == Due.PRODUCE:
        return _take_produce(caller, frame, entry)
    if entry[1] == Due.CHARGED:
        return _take_charged(caller, frame, entry)
    steps: Steps[Frame] = entry[2].take_answer(caller, frame, now_us)
    return steps


def produce_answered(caller: Caller, entry: Entry, upstream_ms: int) -> int:
    """All of a streamed answer is here: record its charge; returns the throttle time that the client is told."""
    _, _, route, memo, seq, ts_us, value, throttle_ms = entry
    caller.due.popleft()  # not before: what cannot be read is recorded as unanswered
    caller.append_row(memo, seq, ts_us, value, throttle_ms, upstream_ms)
    if throttle_ms <= upstream_ms or not memo.enforced:
        return upstream_ms
    told_ms: int = route.answered_ms(memo, throttle_ms, upstream_ms)
    return told_ms


def _take_produce(caller: Caller, frame: Frame, entry: Entry) -> Steps[Frame]:
    """Take an answer with a throttle time, tags or endpoints: hide addresses, record its charge.

    Raises:
        ProtocolError: it cannot be read, or names a node outside the range.
    """
    _, _, route, memo, seq, ts_us, value, throttle_ms = entry
    rewritten, upstream_ms = yield from _rewritten(caller, frame, route)
    caller.append_row(memo, seq, ts_us, value, throttle_ms, upstream_ms)
    if throttle_ms <= upstream_ms or not memo.enforced:
        return rewritten.frame
    return _with_throttle(rewritten, route.answered_ms(memo, throttle_ms, upstream_ms))


def _take_charged(caller: Caller, frame: Frame, entry: Entry) -> Steps[Frame]:
    """Take the answer to a Produce with several charges: the longest throttle is what the client gets.

    Raises:
        ProtocolError: it cannot be read, or names a node outside the range.
    """
    _, _, route, charges, in_part = entry
    rewritten, upstream_ms = yield from _rewritten(caller, frame, route)
    mute_ms = max(charge.mute_ms for charge in charges)
    told_ms = upstream_ms
    if mute_ms > upstream_ms:
        told_ms = route.answered_ms(charges[-1].memo, mute_ms, upstream_ms)
    if in_part is not None:
        told_ms = max(told_ms, in_part.throttle_ms)
    told = rewritten.frame if told_ms == upstream_ms else _with_throttle(rewritten, told_ms)
    if in_part is not None:
        told = yield from in_part.merged(told)
    # Not before: who leaves between two steps, and what cannot be read, is recorded as unanswered.
    append_rows(caller, charges, upstream_ms)
    return told


def _rewritten(
    caller: Caller, frame: Frame, route: Route
) -> Generator[None, None, tuple[ProduceRewrite, int]]:
    """Without addresses, and with how long the broker throttles."""
    address_of = caller.address_of
    rewritten = yield from rewrite_produce_in_steps(frame, route.version, address_of)
    if rewritten.throttle_at < 0:
        return rewritten, 0
    return rewritten, _INT32.unpack_from(rewritten.frame, rewritten.throttle_at)[0]


def _with_throttle(rewritten: ProduceRewrite, throttle_ms: int) -> Frame:
    frame, at = rewritten
    if at < 0:
        return frame
    return b"".join((frame[:at], _INT32.pack(throttle_ms), frame[at + 4 :]))
