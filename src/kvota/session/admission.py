"""Topic mutations, admitted topic by topic as Kafka's controller does (KIP-599).

A mutation request is held while one Metadata question of our own, on the caller's connection, tells
what exists. Each topic that could succeed is charged; refused ones are taken out of the request and
merged back into the answer. What upstream then refuses is given back. While that goes on nothing else
of the connection is forwarded: a broker, too, has one request of a connection in hand.
"""

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from kvota.engine import Decision, MutationQuota, QuotaEngine
from kvota.model.decision_sink import CODE_OF_OUTCOME, NO_ANSWER, ChargeMemo, DecisionSink
from kvota.model.event import Outcome
from kvota.model.quota_type import CLUSTER_NODE_ID, QuotaType
from kvota.model.strict_mutations import STRICT_FROM
from kvota.session.facts import ClusterFacts
from kvota.session.topology import Topology
from kvota.wire import mutations, questions
from kvota.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, METADATA
from kvota.wire.error_code import ErrorCode
from kvota.wire.mutations import MutationRequest, Refusal, TopicAsk, TopicResult
from kvota.wire.questions import TopicFacts

_DEFAULT_PARTITIONS = "num.partitions"
# What Metadata says of a topic that may be created; 29: who may create need not be let to describe.
_CREATABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
# A request that timed out may have been carried out: what it cost stays charged.
_PERHAPS_DONE = frozenset({ErrorCode.REQUEST_TIMED_OUT})


class _Asked(Enum):
    """How far the questions have come."""

    NOTHING = 0
    NAMES = 1
    IDS = 2
    DEFAULT = 3


@dataclass(slots=True)
class _Charge:
    """One topic's charge, until the answer has told how it went."""

    partitions: int
    memo: ChargeMemo
    seq: int
    ts_us: int
    decision: Decision


class Caller(Protocol):
    """What an admission needs of the connection it runs on."""

    number: int
    dialled: tuple[str, int]
    upstream_versions: dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """The parts of the gateway an admission talks to."""

    engine: QuotaEngine
    sink: DecisionSink
    facts: ClusterFacts
    topology: Topology
    enforced: bool
    partitions_max: int
    default_partitions: int


class Admission:
    """One mutation request on its way through; see the module's docstring for the steps."""

    def __init__(  # noqa: PLR0913  (what one request consists of)
        self,
        around: Around,
        caller: Caller,
        *,
        user: str,
        frame: bytes,
        key: int,
        version: int,
        now_ms: int,
    ) -> None:
        self._around = around
        self._caller = caller
        self._frame = frame
        self._key = key
        self._version = version
        self._request: MutationRequest = mutations.scan_request(frame, key, version)
        self._facts: dict[str | bytes, TopicFacts] = {}
        self._asked = _Asked.NOTHING
        self._owes_nothing = False
        self._last_memo: ChargeMemo | None = None
        self._now_ms = now_ms
        self._charges: dict[int, _Charge] = {}
        self._refusals: dict[int, Refusal] = {}
        self._user = user
        self._quota = self._quota_now(now_ms)
        self._times_named = Counter(_key_of(topic) for topic in self._request.topics)
        self._refuse_excess(now_ms)

    # ------------------------------------------------------------------ asking

    @property
    def needs_no_question(self) -> bool:
        """True when nothing is charged or refused: only a validation, or no topic at all."""
        if not self._request.topics:
            return True
        # A validation is not charged; how much it would add is bounded all the same.
        bounded = self._key != CREATE_PARTITIONS and not self._refusals
        return self._request.validate_only and bounded

    def question(self, correlation: int) -> bytes | None:
        """The next question of our own, None when all has been asked.

        Metadata by name, Metadata by id, and the cluster's num.partitions where a topic is created
        with -1. A broker that is asked for ids ignores names, so these are two questions.
        """
        if self._asked is _Asked.NOTHING:
            self._asked = _Asked.NAMES
            names = [topic.name for topic in self._request.topics if topic.name is not None]
            if names:
                return questions.metadata_by_name(correlation, names)
        if self._asked is _Asked.NAMES:
            self._asked = _Asked.IDS
            ids = [topic.topic_id for topic in self._request.topics if topic.name is None]
            if ids:
                told = [topic_id for topic_id in ids if topic_id is not None]
                return questions.metadata_by_id(correlation, told, self._newest_metadata())
        if self._asked is _Asked.IDS and self._asks_for_the_default():
            self._asked = _Asked.DEFAULT
            node_id = self._around.topology.node_at(*self._caller.dialled)
            if node_id is not None:
                return questions.describe_broker_configs(
                    correlation, str(node_id), [_DEFAULT_PARTITIONS]
                )
        return None

    def learn(self, answer: bytes, now_us: int) -> None:
        """Take the answer of the last question.

        Raises:
            ProtocolError: the broker's answer cannot be read.
        """
        if self._asked is _Asked.DEFAULT:
            told = questions.scan_configs(answer).values.get(_DEFAULT_PARTITIONS)
            partitions = int(told) if told is not None and told.isdecimal() else None
            self._around.facts.learn_default_partitions(partitions, now_us // 1000)
            return
        version = questions.METADATA_NAMES_VERSION
        if self._asked is _Asked.IDS:
            version = questions.metadata_id_version(self._newest_metadata())
        metadata = questions.scan_metadata(answer, version)
        for node_id, host, port in metadata.brokers:
            self._around.topology.address_of(node_id, host, port)
        self._facts |= metadata.topics

    def _newest_metadata(self) -> int:
        """As far as the client's own ApiVersions has told; who deletes by id has asked."""
        return self._caller.upstream_versions.get(METADATA, (0, 12))[1]

    def _asks_for_the_default(self) -> bool:
        return (
            self._key == CREATE_TOPICS
            and any(t.partitions == -1 and not t.assignments for t in self._request.topics)
            and self._around.facts.should_ask(self._now_ms)
        )

    # ------------------------------------------------------------------ deciding

    def decide(self, now_us: int) -> bytes | None:
        """Charge topic by topic; returns the request with what was admitted, None if nothing was."""
        # While the question was under way the counter may have been forgotten.
        self._quota = self._quota_now(now_us // 1000)
        if self._key == CREATE_PARTITIONS:
            self._refuse_excess_growth()
        for index, topic in enumerate(self._request.topics):
            if index in self._refusals or self._request.validate_only:
                continue
            partitions = self._partitions(topic, now_us // 1000)
            if partitions is not None:
                self._charge(index, topic, partitions, now_us)
        if not self._refusals:
            return self._frame
        admitted = [
            index for index in range(len(self._request.topics)) if index not in self._refusals
        ]
        if not admitted:
            return None
        return mutations.subset(self._request, admitted)

    def _quota_now(self, now_ms: int) -> MutationQuota:
        return self._around.engine.mutations(
            self._user,
            self._request.client_id,
            strict=self._version >= STRICT_FROM[self._key],
            now_ms=now_ms,
        )

    def _charge(self, index: int, topic: TopicAsk, partitions: int, now_us: int) -> None:
        charge = self._charged(partitions, now_us)
        if charge.decision.outcome is Outcome.REJECTED:
            self._append(charge, NO_ANSWER)
            if self._around.enforced:
                self._refusals[index] = Refusal(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    message=None,
                )
            return
        self._charges[index] = charge

    def _charged(self, partitions: int, now_us: int) -> _Charge:
        memo = self._memo()
        seq = self._around.sink.next_seq()
        decision = self._quota.charge(partitions, now_us // 1000)
        return _Charge(partitions, memo, seq, now_us, decision)

    def _charged_afterwards(self, partitions: int, now_us: int) -> _Charge:
        """What exists already cannot be rejected: charged as a permissive request, and recorded so.

        Its row carries API version 0, which is permissive for every mutation.
        """
        quota = self._around.engine.mutations(
            self._user, self._request.client_id, strict=False, now_ms=now_us // 1000
        )
        memo = self._new_memo(api_version=0)
        seq = self._around.sink.next_seq()
        decision = quota.charge(partitions, now_us // 1000)
        return _Charge(partitions, memo, seq, now_us, decision)

    def _partitions(self, topic: TopicAsk, now_ms: int) -> int | None:
        """What the topic would cost, None when it would fail anyway (it then goes up uncharged)."""
        if self._is_repeated(topic):
            return None
        facts = self._facts.get(_key_of(topic))
        if self._key == CREATE_TOPICS:
            return self._new_topic(topic, facts, now_ms)
        if facts is None or facts.error_code != ErrorCode.NONE:
            return None
        if self._key == DELETE_TOPICS:
            return facts.partitions
        return topic.partitions - facts.partitions if topic.partitions > facts.partitions else None

    def _new_topic(self, topic: TopicAsk, facts: TopicFacts | None, now_ms: int) -> int | None:
        if facts is not None and facts.error_code not in _CREATABLE:
            return None
        if topic.assignments:
            # Kafka refuses a count beside a list of assignments.
            return topic.assignments if topic.partitions in {-1, topic.assignments} else None
        if topic.partitions == -1:
            known = self._around.facts.default_partitions(now_ms)
            return known if known is not None else self._around.default_partitions
        return topic.partitions if topic.partitions > 0 else None

    def _is_repeated(self, topic: TopicAsk) -> bool:
        """Kafka refuses every topic that a request names twice."""
        return self._times_named[_key_of(topic)] > 1

    def _refuse_excess(self, now_ms: int) -> None:
        """A count that no cluster should be asked for goes no further: it can exhaust a controller."""
        most = self._around.partitions_max
        topics = self._request.topics
        if self._key == CREATE_TOPICS:
            asked = sum(self._new_topic(topic, None, now_ms) or 0 for topic in topics)
            if asked > most:
                text = (
                    f"Excessively large number of partitions per request: {asked}; at most {most}."
                )
                for index, topic in enumerate(topics):
                    self._refuse(index, topic, ErrorCode.POLICY_VIOLATION, text)

    def _refuse_excess_growth(self) -> None:
        """The same for CreatePartitions, where what is new is known once Metadata has been asked.

        In request order: what would go over is refused, what still fits goes on.
        """
        most, asked = self._around.partitions_max, 0
        for index, topic in enumerate(self._request.topics):
            facts = self._facts.get(_key_of(topic))
            if facts is None or facts.error_code != ErrorCode.NONE:
                continue  # the broker refuses it
            more = max(0, topic.partitions - facts.partitions)
            if asked + more > most:
                text = f"{more} new partitions beside {asked} in one request; at most {most} are allowed."
                self._refuse(index, topic, ErrorCode.INVALID_PARTITIONS, text)
            else:
                asked += more

    def _refuse(self, index: int, topic: TopicAsk, error_code: int, message: str) -> None:
        self._refusals[index] = Refusal(
            name=topic.name, topic_id=topic.topic_id, error_code=error_code, message=message
        )

    # ------------------------------------------------------------------ answering

    def own_answer(self, correlation: int, now_us: int) -> bytes:
        """The whole answer, when nothing of the request went upstream."""
        return mutations.answer(
            correlation,
            self._key,
            self._version,
            list(self._refusals.values()),
            self.mute_ms(now_us),
        )

    def answer(self, frame: bytes, now_us: int) -> bytes:
        """The broker's answer with the refused topics in it and the longer of both throttle times.

        Raises:
            ProtocolError: the broker's answer cannot be read.
        """
        scanned = mutations.scan_answer(frame, self._key, self._version)
        upstream_ms = scanned.throttle_ms
        for charge in self._charges.values():
            self._append(charge, upstream_ms)
        results: dict[str | bytes, TopicResult] = {}
        for told in scanned.topics:
            if told.name is not None:
                results[told.name] = told
            if told.topic_id is not None:
                results[told.topic_id] = told
        kept = 0
        for index, charge in self._charges.items():
            result = results.get(_key_of(self._request.topics[index]))
            if result is None or result.error_code in _PERHAPS_DONE:
                kept += 1
            elif result.error_code != ErrorCode.NONE:
                self._give_back(charge.partitions, now_us, upstream_ms)
            else:
                kept += 1
                if result.partitions > 0:
                    self._correct(charge.partitions, result.partitions, now_us, upstream_ms)
        # Who has got everything back owes nothing; the rows keep the throttle as it was computed.
        self._owes_nothing = bool(self._charges) and not kept and not self._refusals
        self._charges.clear()
        mute_ms = self.mute_ms(now_us)
        if not self._refusals and mute_ms <= upstream_ms:
            return frame
        return mutations.merge(
            frame,
            self._key,
            self._version,
            list(self._refusals.values()),
            max(mute_ms, upstream_ms),
        )

    def mute_ms(self, now_us: int) -> int:
        """What is left of the throttle; 0 in shadow mode, and when all was given back."""
        if not self._around.enforced or self._owes_nothing:
            return 0
        return self._quota.throttle_ms(now_us // 1000)

    def abandon(self) -> None:
        """The connection ended before the answer: what was charged stays charged and is recorded."""
        for charge in self._charges.values():
            self._append(charge, NO_ANSWER)
        self._charges.clear()

    def _give_back(self, partitions: int, now_us: int, upstream_ms: int) -> None:
        given = _Charge(
            -partitions,
            self._memo(),
            self._around.sink.next_seq(),
            now_us,
            Decision(Outcome.ADMITTED, 0, self._quota.limit),
        )
        self._quota.give_back(partitions, now_us // 1000)
        self._append(given, upstream_ms)

    def _correct(self, charged: int, created: int, now_us: int, upstream_ms: int) -> None:
        """A topic created with another count than assumed (-1, the cluster's default)."""
        if created < charged:
            self._give_back(charged - created, now_us, upstream_ms)
        elif created > charged:
            self._append(self._charged_afterwards(created - charged, now_us), upstream_ms)

    def _memo(self) -> ChargeMemo:
        """The row's columns as they are now: quotas may be reloaded between two charges."""
        quota, last = self._quota, self._last_memo
        if last is None or (last.limit, last.samples, last.sample_ms) != (
            quota.limit,
            quota.samples,
            quota.sample_ms,
        ):
            last = self._last_memo = self._new_memo(api_version=self._version)
        return last

    def _new_memo(self, *, api_version: int) -> ChargeMemo:
        quota = self._quota
        return ChargeMemo(
            node_id=CLUSTER_NODE_ID,
            quota_type=QuotaType.CONTROLLER_MUTATION,
            connection=self._caller.number,
            user=self._user,
            client_id=self._request.client_id,
            tags=quota.tags,
            api_key=self._key,
            api_version=api_version,
            limit=quota.limit,
            samples=quota.samples,
            sample_ms=quota.sample_ms,
            enforced=self._around.enforced,
        )

    def _append(self, charge: _Charge, upstream_ms: int) -> None:
        self._around.sink.append(
            charge.memo,
            charge.seq,
            charge.ts_us,
            charge.partitions,
            charge.decision.throttle_ms,
            upstream_ms,
            CODE_OF_OUTCOME[charge.decision.outcome],
        )


def _key_of(topic: TopicAsk) -> str | bytes:
    """What identifies a topic within one request: its name, else its id."""
    return topic.name if topic.name is not None else topic.topic_id or b""
