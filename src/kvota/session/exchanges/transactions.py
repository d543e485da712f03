"""Requests of transactions whose producer ids count as those of batches do (KIP-936's quota).

An id comes into brokers' memory without any Produce where partitions, or a group's offsets, are added to its
transaction: the coordinators write for it. So an id that is new here costs what a new one in a Produce does,
and one over the quota is refused with an error on which clients send the same request again. They produce to
a partition only when it is in the transaction, so that nothing has to be remembered of what was refused.
"""

from collections.abc import Iterable
from functools import partial

from kvota.model.decision_sink import NO_ANSWER
from kvota.model.quota_type import QuotaType
from kvota.session.budget import BudgetShare
from kvota.session.caller import Caller
from kvota.session.due import Due
from kvota.session.exchanges.conversation import Conversation, Onward, Talk
from kvota.session.exchanges.exchange import RequestHead
from kvota.session.exchanges.rewriting import Rewriting
from kvota.session.id_decisions import Asker, Deciding, Decisions
from kvota.session.waking import nobody
from kvota.wire import transactions
from kvota.wire.error_code import ErrorCode
from kvota.wire.headers import read_request_head
from kvota.wire.steps import STEP_PARTS, Steps
from kvota.wire.varint import Frame

# The only error on which the clients of all three APIs ask again, and neither end the transaction nor look for
# another coordinator.
REFUSAL = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
# The request, and its answer while it is put together, beside what else is on its way.
_TIMES_ITS_BYTES = 3


class CountedTransaction(Conversation):
    """An AddPartitionsToTxn, AddOffsetsToTxn or TxnOffsetCommit of a user whose producer ids are counted."""

    @classmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:
        """Decide where there is anything to decide; else the request goes on as it is.

        Raises:
            ProtocolError: the request cannot be read.
        """
        quota, user = caller.shared.producer_ids, caller.principal.name
        rate = quota.rate(user)
        if rate is None or (
            transactions.has_one_transaction(head.key, head.version)
            and quota.ids.knows(
                user, rate, transactions.producer_id(frame, head.key), now_us // 1000
            )
        ):
            route = caller.routes[head.key << 16 | head.version]
            caller.expect((head.correlation, Due.PASS, route))
            return frame
        return super().begin(caller, head, frame, now_us)

    def _talk_over(self, caller: Caller, frame: bytes) -> Talk:
        key, version, correlation = self._head
        held = BudgetShare(self._shared.budgets.of(caller.dialled), nobody)
        held.hold(_TIMES_ITS_BYTES * len(frame), caller.user)
        try:
            over_ms = yield from self._judge(caller, frame)
            if not over_ms:
                return Onward(frame, _Unchanged(key, version))
            told_ms = min(over_ms, self._shared.settings.mute_ms_max)
            refusal = yield from transactions.refusal_in_steps(
                frame,
                key=key,
                version=version,
                correlation_id=correlation,
                error_code=REFUSAL,
                throttle_ms=told_ms,
            )
        finally:
            held.give_back()
        caller.mute_for_retry(told_ms)
        return refusal

    def _judge(self, caller: Caller, frame: bytes) -> Steps[int]:
        """Count the ids and record it; returns for how long the request is refused, in ms, 0: it goes on."""
        key, version, _ = self._head
        quota, user = self._shared.producer_ids, caller.principal.name
        ids: Iterable[int]
        if transactions.has_one_transaction(key, version):
            ids = (transactions.producer_id(frame, key),)
        else:
            ids = yield from transactions.producer_ids_in_steps(frame, version)
        enforced = QuotaType.PRODUCER_ID in self._shared.settings.enforced
        asker = Asker(user, caller.number, enforced, awaits_answer=True)
        client_id = read_request_head(frame, key).client_id.decode(errors="replace")
        deciding = Deciding(
            quota.ids,
            asker,
            rate=lambda: quota.rate(user),
            now_us=lambda: self._now_us,
            note=partial(self._record, client_id),
        )
        for number, producer_id in enumerate(dict.fromkeys(ids), 1):
            if number % STEP_PARTS == 0:
                yield from deciding.others_turn()
            deciding.lets_on(producer_id, has_written=False)
        deciding.tell()
        return deciding.throttle_ms if enforced else 0

    def _record(self, client_id: str, decisions: Decisions) -> None:
        key, version, _ = self._head
        sink = self._shared.sink
        for memo, count, throttle_ms, outcome in decisions.rows(
            client_id=client_id, api_key=key, api_version=version
        ):
            sink.append(
                memo, sink.next_seq(), decisions.at_us, count, throttle_ms, NO_ANSWER, outcome
            )


class _Unchanged(Rewriting):
    """The broker's answer to a request that was let on."""

    __slots__ = ()

    def take_answer(self, caller: Caller, frame: Frame, now_us: int) -> Steps[Frame]:  # noqa: ARG002
        """Leave it as it is."""
        yield from ()
        return frame
