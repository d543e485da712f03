"""Topic mutations, admitted topic by topic as Kafka's controller does (KIP-599).

A mutation request is kept back while questions of the gateway's own, on the caller's connection, find out
what exists. Each topic that could succeed is charged; refused ones are taken out of the request and
merged back into the answer. What upstream then refuses is given back, and what it has carried out though
Metadata had said that it would fail is charged afterwards. While that goes on nothing else
of the connection is forwarded: a broker, too, has one request of a connection in hand.
"""

from enum import Enum

from kvota.session.caller import Caller
from kvota.session.commands import Do
from kvota.session.due import Due
from kvota.session.exchanges.exchange import Exchange, RequestHead
from kvota.session.exchanges.mutation_charges import MutationCharges, Outcome
from kvota.session.exchanges.mutation_counts import MutationCounts, key_of
from kvota.wire import mutations, questions
from kvota.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, METADATA
from kvota.wire.error_code import ErrorCode
from kvota.wire.mutation_answers import MutationAnswer
from kvota.wire.mutations import MutationRequest, Refusal, TopicAsk, TopicResult

# Correlation ids of the gateway's own questions; answers are matched by their place, any value does.
_OWN_CORRELATION = 0x6B_76_6F_74
_DEFAULT_PARTITIONS = "num.partitions"


class _Asked(Enum):
    """How far the questions have come."""

    NOTHING = 0
    NAMES = 1
    IDS = 2
    DEFAULT = 3
    FORWARDED = 4  # the request itself has gone up


class Mutation(Exchange):
    """One mutation request on its way through: questions, charges, the request, its answer."""

    def __init__(self, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> None:
        self._head = head
        self._frame = frame
        self._request: MutationRequest = mutations.scan_request(frame, head.key, head.version)
        self._began_ms = now_us // 1000
        self._asked = _Asked.NOTHING
        self._refusals: dict[int, Refusal] = {}
        self._counts = MutationCounts(caller.shared, self._request)
        self._shared = caller.shared
        self._charges = MutationCharges(
            caller.shared,
            head,
            user=caller.principal.name,
            client_id=self._request.client_id,
            connection=caller.number,
        )
        self._charges.look_up(self._began_ms)
        self._refuse_excess()

    # ------------------------------------------------------------------ the conversation

    @classmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:
        """Ask what exists first, unless nothing can be charged or refused.

        Raises:
            ProtocolError: the request cannot be read.
        """
        mutation = cls(caller, head, frame, now_us)
        caller.wait()
        question = None if mutation._needs_no_question else mutation._next_question(caller)
        if question is None:
            return mutation._forward(caller, frame)
        caller.expect((_OWN_CORRELATION, Due.EXCHANGE, mutation))
        return question

    def answered(self, caller: Caller, frame: bytes, now_us: int) -> bytes:
        """Take the answer: to a question, then ask the next one or decide; to the request, then settle.

        Raises:
            ProtocolError: the broker's answer cannot be read.
        """
        if self._asked is _Asked.FORWARDED:
            key, version, _ = self._head
            scanned = mutations.scan_answer(frame, key, version)
            refusals, upstream_ms = list(self._refusals.values()), scanned.throttle_ms
            mute_ms = self._charges.settle(
                self._outcomes(scanned, now_us // 1000),
                upstream_ms,
                refused_any=bool(refusals),
                now_us=now_us,
            )
            self._end(caller, mute_ms)
            if not refusals and mute_ms <= upstream_ms:
                return frame
            return mutations.merge(frame, key, version, refusals, max(mute_ms, upstream_ms))
        self._learn(caller, frame, now_us)
        upstream = self._next_question(caller)
        if upstream is not None:
            caller.expect((_OWN_CORRELATION, Due.EXCHANGE, self))
        else:
            admitted = self._decide(now_us)
            if admitted is None:
                key, version, correlation = self._head
                mute_ms = self._charges.mute_ms(now_us)
                self._end(caller, mute_ms)
                refusals = list(self._refusals.values())
                return mutations.answer(correlation, key, version, refusals, mute_ms)
            upstream = self._forward(caller, admitted)
        caller.commands.append((Do.SEND_UPSTREAM, upstream))
        return b""

    def abandoned(self) -> None:
        """The connection ended before the answer: what was charged stays charged."""
        self._charges.abandon()

    def _forward(self, caller: Caller, request: bytes) -> bytes:
        self._asked = _Asked.FORWARDED
        caller.expect((self._head.correlation, Due.EXCHANGE, self))
        return request

    def _end(self, caller: Caller, mute_ms: int) -> None:
        lane = self._charges.lane
        if mute_ms > 0 and lane is not None:
            caller.mute(mute_ms, lane, self._request.client_id)
        caller.go_on()

    # ------------------------------------------------------------------ asking

    @property
    def _needs_no_question(self) -> bool:
        """True when nothing is charged or refused: only a validation, or no topic at all."""
        if not self._request.topics:
            return True
        # A validation is not charged; how much it would add is bounded all the same.
        bounded = self._head.key != CREATE_PARTITIONS and not self._refusals
        return self._request.validate_only and bounded

    def _next_question(self, caller: Caller) -> bytes | None:
        """The next question of the gateway's own, None when all has been asked.

        Metadata by name, Metadata by id, and the cluster's num.partitions where a topic is created
        with -1. A broker that is asked for ids ignores names, so these are two questions.
        """
        if self._asked is _Asked.NOTHING:
            self._asked = _Asked.NAMES
            names = [topic.name for topic in self._request.topics if topic.name is not None]
            if names:
                return questions.metadata_by_name(_OWN_CORRELATION, names)
        if self._asked is _Asked.NAMES:
            self._asked = _Asked.IDS
            nameless = [topic.topic_id for topic in self._request.topics if topic.name is None]
            if nameless:
                ids = [topic_id for topic_id in nameless if topic_id is not None]
                return questions.metadata_by_id(_OWN_CORRELATION, ids, _newest_metadata(caller))
        if self._asked is _Asked.IDS and self._needs_the_default():
            self._asked = _Asked.DEFAULT
            node_id = self._shared.topology.node_at(*caller.dialled)
            if node_id is not None:
                return questions.describe_broker_configs(
                    _OWN_CORRELATION, str(node_id), [_DEFAULT_PARTITIONS]
                )
        return None

    def _learn(self, caller: Caller, answer: bytes, now_us: int) -> None:
        """Take the answer of the last question."""
        if self._asked is _Asked.DEFAULT:
            text = questions.scan_configs(answer).values.get(_DEFAULT_PARTITIONS)
            partitions = int(text) if text is not None and text.isdecimal() else None
            self._shared.facts.learn_default_partitions(partitions, now_us // 1000)
            return
        version = questions.METADATA_NAMES_VERSION
        if self._asked is _Asked.IDS:
            version = questions.metadata_id_version(_newest_metadata(caller))
        metadata = questions.scan_metadata(answer, version)
        for node_id, host, port in metadata.brokers:
            self._shared.topology.address_of(node_id, host, port)
        self._counts.facts |= metadata.topics

    def _needs_the_default(self) -> bool:
        return (
            self._head.key == CREATE_TOPICS
            and any(t.partitions == -1 and not t.assignments for t in self._request.topics)
            and self._shared.facts.should_ask(self._began_ms)
        )

    # ------------------------------------------------------------------ deciding

    def _decide(self, now_us: int) -> bytes | None:
        """Charge topic by topic; returns the request with what was admitted, None if nothing was."""
        self._charges.look_up(now_us // 1000)
        if self._head.key == CREATE_PARTITIONS:
            self._refuse_excess_growth()
        for index, topic in enumerate(self._request.topics):
            if index in self._refusals or self._request.validate_only:
                continue
            partitions = self._counts.before(topic, now_us // 1000)
            if partitions is None or self._charges.charge(index, partitions, now_us):
                continue
            if self._charges.enforced:
                self._refuse(index, topic, ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)
        if not self._refusals:
            return self._frame
        admitted = [
            index for index in range(len(self._request.topics)) if index not in self._refusals
        ]
        return mutations.subset(self._request, admitted) if admitted else None

    def _refuse_excess(self) -> None:
        """A count that no cluster should be asked for goes no further: it can exhaust a controller."""
        if self._head.key != CREATE_TOPICS:
            return
        most = self._shared.settings.mutation_partitions_max
        topics = self._request.topics
        asked = sum(self._counts.new_topic(topic, self._began_ms) or 0 for topic in topics)
        if asked > most:
            text = f"Excessively large number of partitions per request: {asked}; at most {most}."
            for index, topic in enumerate(topics):
                self._refuse(index, topic, ErrorCode.POLICY_VIOLATION, text)

    def _refuse_excess_growth(self) -> None:
        """The same for CreatePartitions, where what is new is known once Metadata has been asked.

        In request order: what would go over is refused, what still fits goes on.
        """
        most, asked = self._shared.settings.mutation_partitions_max, 0
        for index, topic in enumerate(self._request.topics):
            existing = self._counts.existing(topic)
            if existing is None or self._counts.is_named_twice(topic):
                continue  # the broker refuses it; one of two alone it would carry out, uncharged
            more = max(0, topic.partitions - existing)
            if asked + more > most:
                text = f"{more} new partitions beside {asked} in one request; at most {most} are allowed."
                self._refuse(index, topic, ErrorCode.INVALID_PARTITIONS, text)
            else:
                asked += more

    def _refuse(self, index: int, topic: TopicAsk, error_code: int, message: str | None) -> None:
        self._refusals[index] = Refusal(
            name=topic.name, topic_id=topic.topic_id, error_code=error_code, message=message
        )

    def _outcomes(self, answer: MutationAnswer, now_ms: int) -> dict[int, Outcome]:
        """What became of each topic that the broker has answered for, by its place in the request."""
        by_topic: dict[str | bytes | None, TopicResult] = {}
        for result in answer.topics:
            by_topic[result.name] = by_topic[result.topic_id] = result
        outcomes: dict[int, Outcome] = {}
        for index, topic in enumerate(self._request.topics):
            # A broker that takes a topic twice carries it out once.
            said = by_topic.pop(key_of(topic), None)
            if said is None or index in self._refusals:
                continue
            done = None
            if said.error_code == ErrorCode.NONE and not self._request.validate_only:
                charged = self._charges.charged(index)
                done = self._counts.done(topic, said, charged, now_ms)
            outcomes[index] = Outcome(said.error_code, done)
        return outcomes


def _newest_metadata(caller: Caller) -> int:
    """As far as the client's own ApiVersions has told; a client that deletes by id has asked."""
    return caller.upstream_versions.get(METADATA, (0, 12))[1]
