"""What one mutation request is charged, topic by topic, and the rows of it."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple

from kvota.engine import Decision, Lane, MutationQuota
from kvota.model import event
from kvota.model.decision_sink import CODE_OF_OUTCOME, NO_ANSWER, ChargeMemo
from kvota.model.quota_type import CLUSTER_NODE_ID, Algorithm, QuotaType
from kvota.model.strict_mutations import STRICT_FROM
from kvota.session.exchanges.exchange import RequestHead
from kvota.session.shared import Shared
from kvota.wire.error_code import ErrorCode
from kvota.wire.steps import STEP_PARTS, Steps

# A request that timed out may have been carried out: what it cost stays charged.
PERHAPS_DONE = frozenset({ErrorCode.REQUEST_TIMED_OUT})


class Outcome(NamedTuple):
    """What became of one topic.

    Attributes:
        error_code: the broker's.
        done: how many partitions were created, added or deleted; None: as many as were charged, or
            nothing is known to have changed.
    """

    error_code: int
    done: int | None


@dataclass(slots=True)
class _Charge:
    """One topic's charge, until the answer says how it went."""

    partitions: int
    memo: ChargeMemo
    seq: int
    ts_us: int
    decision: Decision


class MutationCharges:
    """The charges of one request that stand, by the topic's place in it.

    Args:
        shared: engine, sink and settings of the gateway.
        head: of the request; its version says whether topics can be refused (KIP-599).
        user: whose quota it is.
        client_id: as the client stated it.
        connection: its number.
    """

    def __init__(
        self, shared: Shared, head: RequestHead, *, user: str, client_id: str, connection: int
    ) -> None:
        self._shared = shared
        self._head = head
        self._user = user
        self._client_id = client_id
        self._connection = connection
        self._charges: dict[int, _Charge] = {}
        self._recorded = 0  # so many of them have their rows
        self._rejected: set[int] = set()
        self._last_memo: ChargeMemo | None = None
        self._quota: MutationQuota
        self._owes_nothing = self._owes_more = False
        self._throttle_ms_max = 0  # of all charges

    @property
    def enforced(self) -> bool:
        """False in shadow mode: charged and recorded, and nobody is refused or kept back."""
        return QuotaType.CONTROLLER_MUTATION in self._shared.settings.enforced

    def look_up(self, now_ms: int) -> None:
        """Find the counter: it may have been forgotten while a question was under way."""
        is_strict = self._head.version >= STRICT_FROM[self._head.key]
        self._quota = self._found(strict=is_strict, now_ms=now_ms)

    def _found(self, *, strict: bool, now_ms: int) -> MutationQuota:
        engine = self._shared.engine
        whose = QuotaType.CONTROLLER_MUTATION, CLUSTER_NODE_ID, self._user, self._client_id
        # Since it was asked another callback has come, or answers about so many others.
        if not engine.is_known(*whose):
            engine.learn_default(engine.question(*whose), self._shared.default_callback)
        return engine.mutations(self._user, self._client_id, strict=strict, now_ms=now_ms)

    def charge(self, index: int, partitions: int, now_us: int) -> bool:
        """Charge one topic; False: it is rejected (in shadow mode it goes on all the same)."""
        charge = _Charge(
            partitions,
            self._memo(),
            self._shared.sink.next_seq(),
            now_us,
            self._quota.charge(partitions, now_us // 1000),
        )
        self._throttle_ms_max = max(self._throttle_ms_max, charge.decision.throttle_ms)
        if charge.decision.outcome is event.Outcome.REJECTED:
            self._append(charge, NO_ANSWER)
            self._rejected.add(index)
            return False
        self._charges[index] = charge
        return True

    def charged(self, index: int) -> int | None:
        """What the topic at this place was charged, or was found to cost; None: nothing."""
        charge = self._charges.get(index)
        return None if charge is None else charge.partitions

    def all_charged(self) -> dict[int, int]:
        """The same of all topics that were charged."""
        return {index: charge.partitions for index, charge in self._charges.items()}

    @property
    def rejected(self) -> Set[int]:
        """The places of topics that were rejected, and have their rows."""
        return self._rejected

    def owe(self, partitions: int, now_us: int) -> None:
        """What may be carried out though nobody will know: one row for all of it."""
        if partitions:
            self._owes_more = True
            self._append(self._charged_afterwards(partitions, now_us), NO_ANSWER)

    def settle(
        self, outcomes: dict[int, Outcome], upstream_ms: int, *, refused_any: bool, now_us: int
    ) -> Steps[int]:
        """The broker has answered: record the charges, give back what it refused, correct the rest.

        Args:
            outcomes: what became of each topic, by the topic's place in the request; taken away one by one.
            upstream_ms: the throttle time in its answer.
            refused_any: true where a topic of the request did not go up.
            now_us: when.

        Returns:
            What is left of the throttle, in ms.
        """
        charges = self._charges
        for number, charge in enumerate(charges.values()):
            self._append(charge, upstream_ms)
            self._recorded = number + 1
            if number % STEP_PARTS == STEP_PARTS - 1:
                yield
        kept = int(self._owes_more)
        for number, (index, charge) in enumerate(charges.items()):
            if number % STEP_PARTS == STEP_PARTS - 1:
                yield
            kept += self._corrected(charge, outcomes.pop(index, None), now_us, upstream_ms)
        for number, index in enumerate(list(outcomes)):
            if number % STEP_PARTS == STEP_PARTS - 1:
                yield
            outcome = outcomes.pop(index)
            # In shadow mode what was rejected goes up, and has its row.
            if outcome.done and index not in self._rejected:
                kept += 1
                self._append(self._charged_afterwards(outcome.done, now_us), upstream_ms)
        # A client that has got everything back owes nothing; the rows keep the throttle as computed.
        self._owes_nothing = bool(charges) and not kept and not refused_any
        charges.clear()
        self._recorded = 0
        return self.mute_ms(now_us)

    def _corrected(
        self, charge: _Charge, outcome: Outcome | None, now_us: int, upstream_ms: int
    ) -> bool:
        """Give back, or charge, what differs; False: all of it was given back."""
        if outcome is None or outcome.error_code in PERHAPS_DONE:
            return True
        if outcome.error_code != ErrorCode.NONE:
            self._give_back(charge.partitions, now_us, upstream_ms)
            return False
        # Another count than was assumed: the cluster's default, or Metadata lagged.
        more = 0 if outcome.done is None else outcome.done - charge.partitions
        if more < 0:
            self._give_back(-more, now_us, upstream_ms)
        elif more > 0:
            self._append(self._charged_afterwards(more, now_us), upstream_ms)
        return True

    def unsettled(self, outcomes: Mapping[int, Outcome]) -> int:
        """What was carried out, as its answer has told, and ``settle`` has not come to: how much more it costs."""
        owed = 0
        for index, outcome in outcomes.items():
            if outcome.done and index not in self._rejected:
                charged = self._charges[index].partitions if index in self._charges else 0
                if outcome.done > charged:
                    owed += outcome.done - charged
        return owed

    def abandon(self) -> None:
        """No answer comes: what was charged stays charged and is recorded."""
        append = self._shared.sink.append
        for charge in list(self._charges.values())[self._recorded :]:
            # Not by ``_append``: of 20,000 topics all have their rows in this one step.
            decision = charge.decision
            append(
                charge.memo,
                charge.seq,
                charge.ts_us,
                charge.partitions,
                decision.throttle_ms,
                NO_ANSWER,
                CODE_OF_OUTCOME[decision.outcome],
            )
        self._charges.clear()

    @property
    def lane(self) -> Lane | None:
        """What the charges were made on; None while no quota of the type exists."""
        return self._quota.lane

    def mute_ms(self, now_us: int) -> int:
        """What is left of the throttle; 0 in shadow mode, and when all was given back."""
        if not self.enforced or self._owes_nothing:
            return 0
        # By Kafka's formula a clock that steps back by an hour would turn a wait into an hour more.
        return min(self._quota.throttle_ms(now_us // 1000), self._throttle_ms_max)

    def _charged_afterwards(self, partitions: int, now_us: int) -> _Charge:
        """What exists already cannot be rejected: charged as a permissive request, and recorded so.

        Its row carries API version 0, which is permissive for every mutation. A request that is
        permissive itself pays with its mute, as for its other charges.
        """
        quota = self._quota
        is_strict = self._head.version >= STRICT_FROM[self._head.key]
        if is_strict:
            quota = self._found(strict=False, now_ms=now_us // 1000)
        memo = self._new_memo(quota, api_version=0)  # where it counts by now, not where it did
        seq = self._shared.sink.next_seq()
        decision = quota.charge(partitions, now_us // 1000)
        if not is_strict:
            self._throttle_ms_max = max(self._throttle_ms_max, decision.throttle_ms)
        return _Charge(partitions, memo, seq, now_us, decision)

    def _give_back(self, partitions: int, now_us: int, upstream_ms: int) -> None:
        decision = Decision(event.Outcome.ADMITTED, 0, self._quota.limit)
        seq = self._shared.sink.next_seq()
        given = _Charge(-partitions, self._memo(), seq, now_us, decision)
        self._quota.give_back(partitions, now_us // 1000)
        self._append(given, upstream_ms)

    def _memo(self) -> ChargeMemo:
        """The row's columns as they are now: quotas may be reloaded between two charges."""
        quota, last = self._quota, self._last_memo
        if last is None or (last.limit, last.samples, last.sample_ms) != (
            quota.limit,
            quota.samples,
            quota.sample_ms,
        ):
            last = self._last_memo = self._new_memo(quota, api_version=self._head.version)
        return last

    def _new_memo(self, quota: MutationQuota, *, api_version: int) -> ChargeMemo:
        return ChargeMemo(
            node_id=CLUSTER_NODE_ID,
            quota_type=QuotaType.CONTROLLER_MUTATION,
            connection=self._connection,
            user=self._user,
            client_id=self._client_id,
            tags=quota.tags,
            api_key=self._head.key,
            api_version=api_version,
            limit=quota.limit,
            samples=quota.samples,
            sample_ms=quota.sample_ms,
            algorithm=Algorithm.TOKEN_BUCKET,
            enforced=self.enforced,
        )

    def _append(self, charge: _Charge, upstream_ms: int) -> None:
        self._shared.sink.append(
            charge.memo,
            charge.seq,
            charge.ts_us,
            charge.partitions,
            charge.decision.throttle_ms,
            upstream_ms,
            CODE_OF_OUTCOME[charge.decision.outcome],
        )
