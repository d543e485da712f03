"""A Produce whose producer ids are counted: what of it goes on, and what is answered in the broker's place.

One whose only batch is of a producer that is known goes on as any other (``knows``, on the hot path). Of others
each id is decided on once; partitions of refused ids are taken out of the request, answered with
an error that their clients take for a reason to try again, and merged into the broker's answer.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvota.model.decision_sink import ADMITTED, NO_ANSWER
from kvota.model.quota_type import QuotaType
from kvota.session.budget import BudgetShare
from kvota.session.caller import Caller
from kvota.session.charged_produce import AdmittedProduce, append_rows, take_charged_produce
from kvota.session.commands import Do
from kvota.session.id_decisions import Asker, Decisions
from kvota.session.line_place import LinePlace
from kvota.session.pausing import Reason
from kvota.session.produce_in_part import ProduceInPart
from kvota.session.produce_quota import Charge
from kvota.session.producer_id_quota import Judgement
from kvota.session.route import Route
from kvota.session.unfinished import Unfinished
from kvota.wire import produce_parts, throttle_field
from kvota.wire.apis import PRODUCE
from kvota.wire.headers import request_body_offset
from kvota.wire.produce_parts import RefusedPartition
from kvota.wire.producer_ids import (
    BATCH_BYTES_MIN,
    BATCHES_MAX,
    BatchProducer,
    few_producers,
    id_behind,
    only_batch_at,
    only_producer,
    producer_id_at,
    producers_in_steps,
)
from kvota.wire.steps import STEP_PARTS, Steps, at_once
from kvota.wire.varint import Frame

# What is known of a batch while its request is decided on, at most (tests/unit/session/test_counted_produce.py holds it).
DECIDED_BYTES_OF_BATCH = 600
# About one step's work: where all of a request is here it is done at once, and what is known of them takes no room.
_FEW_BATCHES = 256

_WITHOUT_ANSWER = (
    "new producer ids beyond the quota (producer_ids_rate) in a Produce with acks=0, which nothing can be "
    "answered to; nothing of it was forwarded"
)
_NO_PLACE = (
    "more refused batches of one user than are remembered, so its Produce was neither answered nor forwarded; "
    "its client sends it again"
)


class _Decided(NamedTuple):
    """What is to be done with a request.

    Attributes:
        judgement: about its ids.
        refused: what its refused partitions are answered.
        onward: what goes on; None: nothing.
        refusal: the answer where nothing goes on, else empty.
        throttle_ms: that the client is told, and kept back for.
    """

    judgement: Judgement
    refused: Sequence[RefusedPartition]
    onward: bytes | None
    refusal: bytes
    throttle_ms: int


class CountedProduce:
    """The Produce requests of one connection whose ids are counted, one at a time."""

    __slots__ = (
        "_budget",
        "_caller",
        "_front",
        "_known_from_us",
        "_known_id",
        "_known_route",
        "_known_until_us",
        "_now_us",
        "_place",
        "_produce",
        "_quota",
        "_refused_batches",
        "_steps",
        "_told_at_end",
        "_unfinished",
    )

    def __init__(
        self, caller: Caller, budget: BudgetShare, place: LinePlace, unfinished: Unfinished
    ) -> None:
        self._caller = caller
        self._budget = budget
        self._quota = caller.shared.producer_ids
        self._refused_batches = self._quota.refused_batches
        self._place = place
        self._unfinished = unfinished
        # The last producer that was known, until when it is, and how its request began.
        self._known_route: Route | None = None
        self._front: bytes | bytearray = b""
        self._known_id = -1
        self._known_from_us = self._known_until_us = 0
        self._now_us = 0
        self._produce: AdmittedProduce | None = None  # being decided on, in steps
        self._steps: Steps[_Decided] | None = None
        # A refused request of which the rest is on its way.
        self._told_at_end: tuple[AdmittedProduce, _Decided] | None = None

    # ------------------------------------------------------------------ the usual one

    def knows(
        self, data: bytes | bytearray, body: int, frame_end: int, route: Route, now_us: int
    ) -> bool:
        """True where nothing has to be decided: the only batch is of a known producer, or of none.

        Args:
            data: has the whole request.
            body: where its client id ends.
            frame_end: offset behind it.
            route: of its version.
            now_us: Unix µs.
        """
        if route.lane_version != route.lane.version and route.lane_moves != route.lane.moves:
            self._known_route = None  # another user may have logged in
            return False
        front = self._front
        records = body + len(front)
        if (
            route is self._known_route
            and data[body:records] == front
            and self._known_from_us <= now_us < self._known_until_us
            and id_behind(data, records, frame_end, route.flexible) == self._known_id
        ):
            refused = self._refused_batches
            return not (
                refused.count and refused.concern(self._caller.principal.name, self._known_id)
            )
        return self._looks_known(data, body, frame_end, route, now_us // 1000)

    def _looks_known(
        self, data: bytes | bytearray, client_id_end: int, frame_end: int, route: Route, now_ms: int
    ) -> bool:
        self._known_route = None
        body = client_id_end
        if route.flexible:
            if data[body]:  # tags in the header
                return False
            body += 1
        _, topic_end, batch = only_batch_at(data, body, route.version, frame_end)
        if batch < 0 or route.ids_rate is None:
            return False
        user, quota = self._caller.principal.name, self._quota
        producer_id = producer_id_at(data, batch)
        if self._refused_batches.concern(user, producer_id):
            return False
        if not quota.ids.knows(user, route.ids_rate, producer_id, now_ms):
            return False
        ids = quota.ids.users.get(user)
        if ids is not None and producer_id >= 0:  # nothing of it expires before it is due
            self._known_route, self._known_id = route, producer_id
            self._known_from_us, self._known_until_us = now_ms * 1000, ids.due_ms * 1000
            partition_at = topic_end + (1 if route.flexible else 4)
            self._front = bytes(data[client_id_end : partition_at + 4])
        return True

    # ------------------------------------------------------------------ any other

    def room_bytes(self, route: Route, data: bytes | bytearray, pos: int, size: int) -> int:
        """What a request takes of the budget of which much is here and not all.

        Where it has to be whole that is with what will be known of its batches.
        """
        frame_bytes = size + 4
        body = _body_at(route, data, pos, frame_bytes)
        if body is not None and only_batch_at(data, body, route.version, pos + frame_bytes)[2] >= 0:
            return size
        return self._deciding_bytes(frame_bytes)

    def take(self, route: Route, frame: bytes, now_us: int) -> bytes | None:
        """Decide on a request of which ``frame`` is here.

        Returns:
            What goes on; empty: nothing of it (so far), and it must be swallowed; None: it is kept back until it is
            whole, there is room to decide on it, or its turn has come.

        Raises:
            ProtocolError: the request cannot be read.
        """
        self._known_route = None
        frame_bytes = int.from_bytes(frame[:4], "big") + 4
        body = _body_at(route, frame, 0, frame_bytes)
        if body is None:
            return None
        is_here = len(frame) == frame_bytes
        one = only_producer(frame, body, route.version, frame_bytes)
        few: Sequence[BatchProducer] | None = None if one is None else (one,)
        if few is None and is_here:
            few = few_producers(frame, body, route.version, at_most=_FEW_BATCHES)
        if few is None and not (self._has_room(frame_bytes) and is_here):
            return None
        if self._quota.counted_rate(self._caller.principal.name) is None:
            route.forget_lane()  # the last refusal that this user was counted for is gone
        charged = take_charged_produce(self._caller, self._place, route, frame, now_us)
        if not isinstance(charged, AdmittedProduce):
            return charged
        self._place.leave()
        self._now_us = now_us
        steps = self._decide(charged, frame, body, few, is_one=one is not None)
        if few is not None:
            if is_here:
                self._budget.give_back()
            return self._carry_out(charged, at_once(steps), now_us, is_here=is_here)
        self._produce, self._steps = charged, steps
        self._caller.wait()
        self._caller.at_work = self
        self._caller.commands.append((Do.STEP, None))
        return b""

    def _has_room(self, frame_bytes: int) -> bool:
        """Others wait with what they announce until there is room beside this request, too, and it waits for them."""
        caller = self._caller
        if self._budget.take(self._deciding_bytes(frame_bytes), caller.user):
            return True
        caller.pausing.reasons |= Reason.BUDGET
        return False

    def _deciding_bytes(self, frame_bytes: int) -> int:
        """What a request with more than one batch takes while it is decided on.

        Because of what its batches may take nothing is asked for that others are to find free.
        """
        batches_max = min(frame_bytes // BATCH_BYTES_MIN, BATCHES_MAX)
        whole_bytes = frame_bytes + batches_max * DECIDED_BYTES_OF_BATCH
        return max(frame_bytes, min(whole_bytes, self._budget.user_bytes_max))

    def step(self, caller: Caller, now_us: int) -> bytes:
        """Decide some more; returns what goes on.

        Raises:
            ProtocolError: as ``take``.
        """
        assert self._steps is not None
        assert self._produce is not None
        self._now_us = now_us
        try:
            next(self._steps)
        except StopIteration as done:
            produce, self._produce, self._steps = self._produce, None, None
            self._budget.give_back()
            caller.at_work = None
            onward = self._carry_out(produce, done.value, now_us, is_here=True)
            caller.go_on()
            return onward
        caller.commands.append((Do.STEP, None))
        return b""

    def told(self, caller: Caller, result: object, now_us: int) -> bytes:  # noqa: ARG002
        """Nothing is asked outside."""
        raise AssertionError

    def abandoned(self) -> None:
        """The connection has ended before all was decided: what was charged before is recorded."""
        if self._produce is not None:
            append_rows(self._caller, self._produce.further, NO_ANSWER)
            self._produce = self._steps = None
        self._budget.give_back()

    # ------------------------------------------------------------------ deciding

    def _asker(self, produce: AdmittedProduce) -> Asker:
        caller = self._caller
        enforced = QuotaType.PRODUCER_ID in caller.shared.settings.enforced
        return Asker(caller.principal.name, caller.number, enforced, produce.awaits_answer)

    def _decide(
        self,
        produce: AdmittedProduce,
        frame: bytes,
        body: int,
        batches: Sequence[BatchProducer] | None,
        *,
        is_one: bool,
    ) -> Steps[_Decided]:
        version = produce.route.version
        if batches is None:
            batches = yield from producers_in_steps(frame, body, version)
        asker = self._asker(produce)
        judgement = yield from self._quota.judge(
            asker, batches, lambda: self._now_us, lambda decisions: self._record(produce, decisions)
        )
        if not judgement.refused or judgement.awaited is None:
            return _Decided(judgement, (), frame, b"", 0)
        told_ms = min(judgement.throttle_ms, self._caller.shared.settings.mute_ms_max)
        code = self._quota.refusal_code(self._caller.software)
        message = f"producer id quota of user {asker.user[:100]} exceeded, retry in {told_ms} ms"
        refused: list[RefusedPartition] = []
        for place in judgement.refused:
            refused.append(RefusedPartition(place, code, message))
            if len(refused) % STEP_PARTS == 0:
                yield None
        onward = None
        if not is_one:
            left_out = judgement.refused
            onward = yield from produce_parts.without_in_steps(frame, body, version, left_out)
        refusal = b""
        if onward is None:
            refusal = yield from produce_parts.refusal_in_steps(
                produce.correlation, version, refused, told_ms
            )
        return _Decided(judgement, refused, onward, refusal, told_ms)

    def _record(self, produce: AdmittedProduce, decisions: Decisions) -> None:
        """Rows of new ids, when the broker has answered, and of those that were refused, or would have been."""
        client_id, version = produce.route.memo.client_id, produce.route.version
        sink, at_us = self._caller.shared.sink, decisions.at_us
        for memo, count, throttle_ms, outcome in decisions.rows(
            client_id=client_id, api_key=PRODUCE, api_version=version
        ):
            seq, value = sink.next_seq(), float(count)
            if outcome == ADMITTED:
                produce.further.append(Charge(memo, seq, at_us, value, 0, ADMITTED))
            else:
                sink.append(memo, seq, at_us, value, throttle_ms, NO_ANSWER, outcome)

    # ------------------------------------------------------------------ carrying out

    def _carry_out(
        self,
        produce: AdmittedProduce,
        decided: _Decided,
        now_us: int,
        *,
        is_here: bool,
    ) -> bytes:
        judgement, route = decided.judgement, produce.route
        if judgement.awaited is None or (judgement.refused and not produce.awaits_answer):
            append_rows(self._caller, produce.further, NO_ANSWER)
            reason = _NO_PLACE if judgement.awaited is None else _WITHOUT_ANSWER
            self._caller.commands.append((Do.CLOSE, reason))
            self._caller.wait()  # what came with it would overtake it
            return b""
        if decided.onward is None:
            return self._refuse(produce, decided, now_us, is_here=is_here)
        in_part = None
        if judgement.refused or judgement.awaited:
            in_part = ProduceInPart(
                self._quota,
                self._asker(produce),
                version=route.version,
                refused=decided.refused,
                awaited=judgement.awaited,
                throttle_ms=decided.throttle_ms,
            )
        self._unfinished.admit(produce._replace(in_part=in_part), now_us, is_here=is_here)
        if decided.throttle_ms:
            self._caller.mute_for_retry(decided.throttle_ms)
        return decided.onward

    def _refuse(
        self, produce: AdmittedProduce, decided: _Decided, now_us: int, *, is_here: bool
    ) -> bytes:
        """Nothing goes on; its bytes are charged all the same, as those of any Produce that fails."""
        unanswered = produce._replace(awaits_answer=False)
        self._unfinished.admit(unanswered, now_us, is_here=is_here)
        if is_here:
            self._tell(produce, decided, now_us)
        else:
            self._told_at_end = produce, decided
        return b""

    def tell_at_end(self, now_us: int) -> None:
        """All of a refused request is here, and may be answered: before, librdkafka knows of no such request."""
        refused, self._told_at_end = self._told_at_end, None
        if refused is not None:
            self._tell(*refused, now_us)

    def _tell(self, produce: AdmittedProduce, decided: _Decided, now_us: int) -> None:
        """Answer a refused request, and keep its client back for as long as it is told from now on."""
        caller, route = self._caller, produce.route
        told: Frame = decided.refusal
        longest_ms = max((charge.mute_ms for charge in produce.further), default=0)
        if longest_ms > decided.throttle_ms:
            told = bytearray(told)
            told_ms = route.answered_ms(produce.further[-1].memo, longest_ms, 0)
            throttle_field.patch(told, route.key, route.version, told_ms)
        if decided.throttle_ms:
            caller.mute_for_retry(decided.throttle_ms)
        told = caller.told_in(told, (route.key, route.version), now_us)
        caller.answer_locally(produce.correlation, bytes(told))


def _body_at(route: Route, data: bytes | bytearray, pos: int, frame_bytes: int) -> int | None:
    """Where the body of the request at ``pos`` begins; None: that is not here."""
    client_id_bytes = int.from_bytes(data[pos + 12 : pos + 14], "big", signed=True)
    header_version = 2 if route.flexible else 1
    return request_body_offset(data, pos, pos + frame_bytes, client_id_bytes, header_version)
