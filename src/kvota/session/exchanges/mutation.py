"""Topic mutations, admitted topic by topic as Kafka's controller does (KIP-599).

A mutation request is kept back while questions of the gateway's own, on the caller's connection, find out
what exists. Each topic that could succeed is charged; refused ones are taken out of the request and
merged back into the answer. What upstream then refuses is given back, and what it has carried out though
Metadata had said that it would fail is charged afterwards. While that goes on nothing else
of the connection is forwarded: a broker, too, has one request of a connection in hand.
"""

from collections.abc import Generator, Set
from dataclasses import replace

from kvota.session.caller import Caller
from kvota.session.exchanges.charged_talk import ChargedTalk
from kvota.session.exchanges.conversation import QUESTION_MS_MAX, Sent, Talk
from kvota.session.exchanges.exchange import RequestHead
from kvota.session.exchanges.mutation_charges import PERHAPS_DONE, MutationCharges, Outcome
from kvota.session.exchanges.mutation_counts import key_of
from kvota.wire import mutations, questions
from kvota.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, METADATA
from kvota.wire.error_code import ErrorCode
from kvota.wire.mutation_answers import MutationAnswer
from kvota.wire.mutations import MutationRequest, Refusal, TopicAsk, TopicResult
from kvota.wire.steps import STEP_PARTS, Steps
from kvota.wire.varint import Frame

_DEFAULT_PARTITIONS = "num.partitions"
# A client says how long its mutation may take; it is held to that, and to this.
_TIMEOUT_MS_MAX = 300_000


class Mutation(ChargedTalk):
    """One mutation request on its way through: questions, charges, the request, its answer."""

    def __init__(self, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> None:
        super().__init__(caller, head, frame, now_us)
        self._refusals: dict[int, Refusal] = {}
        self._request: MutationRequest

    @property
    def _left_out(self) -> Set[int]:
        return self._refusals.keys()

    # ------------------------------------------------------------------ the conversation

    def _talk_over(self, caller: Caller, frame: bytes) -> Talk:
        key, version, correlation = self._head
        request = yield from mutations.scan_request_in_steps(frame, key, version)
        self._request = request
        yield from self._counts.read(request)
        charges = self._charges = MutationCharges(
            self._shared,
            self._head,
            user=caller.principal.name,
            client_id=request.client_id,
            connection=caller.number,
        )
        charges.look_up(self._now_us // 1000)
        yield from self._refuse_excess()
        admitted: bytes | None = frame
        del frame
        if not self._needs_no_question:
            yield from self._ask(caller)
            admitted = yield from self._decide(charges)
        refusals = list(self._refusals.values())
        if admitted is None:
            mute_ms = charges.mute_ms(self._now_us)
            told: Frame = yield from mutations.answer_in_steps(
                correlation, key, version, refusals, mute_ms
            )
        else:
            self._request = replace(request, frame=b"")
            del request
            self._has_gone_up = True
            may_take_ms = min(max(self._request.timeout_ms, 0), _TIMEOUT_MS_MAX)
            told = yield Sent(correlation, admitted, may_take_ms + QUESTION_MS_MAX)
            del admitted
            scanned = yield from mutations.scan_answer_in_steps(told, key, version)
            mute_ms = yield from self._settle(charges, scanned)
            if refusals or mute_ms > scanned.throttle_ms:
                longer_ms = max(mute_ms, scanned.throttle_ms)
                told = yield from mutations.merge_in_steps(
                    told, scanned, key, version, refusals, longer_ms
                )
        if mute_ms > 0 and charges.lane is not None:
            caller.mute(mute_ms, charges.lane, self._request.client_id, self._now_us // 1000)
        return told

    # ------------------------------------------------------------------ asking

    @property
    def _needs_no_question(self) -> bool:
        """True when nothing is charged or refused: only a validation, or no topic at all."""
        if not self._request.topics:
            return True
        # A validation is not charged; how much it would add is bounded all the same.
        bounded = self._head.key != CREATE_PARTITIONS and not self._refusals
        return self._request.validate_only and bounded

    def _ask(self, caller: Caller) -> Generator[Sent | None, Frame, None]:
        """The questions of the gateway's own.

        Metadata by name, Metadata by id, and the cluster's num.partitions where a topic is created
        with -1. A broker that is asked for ids ignores names, so these are two questions.
        """
        self._counts.asked_ms = self._now_us // 1000
        topics = self._request.topics
        names = [topic.name for topic in topics if topic.name is not None]
        if names:
            question = yield from questions.metadata_by_name_in_steps(
                questions.OWN_CORRELATION, names
            )
            del names
            answer = yield Sent(questions.OWN_CORRELATION, question)
            del question
            yield from self._learn(answer, questions.METADATA_NAMES_VERSION)
        ids = [t.topic_id for t in topics if t.name is None and t.topic_id is not None]
        if ids:
            newest = _newest_metadata(caller)
            answer = yield _question(
                questions.metadata_by_id(questions.OWN_CORRELATION, ids, newest)
            )
            yield from self._learn(answer, questions.metadata_id_version(newest))
        node_id = caller.node_id  # only that node tells
        if node_id >= 0 and self._needs_the_default():
            answer = yield _question(
                questions.describe_broker_configs(
                    questions.OWN_CORRELATION, str(node_id), [_DEFAULT_PARTITIONS]
                )
            )
            text = questions.scan_configs(answer).values.get(_DEFAULT_PARTITIONS)
            partitions = int(text) if text is not None and text.isdecimal() else None
            self._shared.facts.learn_default_partitions(partitions, self._now_us // 1000)

    def _learn(self, answer: Frame, version: int) -> Steps[None]:
        metadata = yield from questions.scan_metadata_in_steps(answer, version)
        for node_id, host, port in metadata.brokers:
            self._shared.topology.address_of(node_id, host, port)
        self._counts.facts |= metadata.topics

    def _needs_the_default(self) -> bool:
        return (
            self._head.key == CREATE_TOPICS
            and any(t.partitions == -1 and not t.assignments for t in self._request.topics)
            and self._shared.facts.should_ask(self._now_us // 1000)
        )

    # ------------------------------------------------------------------ deciding

    def _decide(self, charges: MutationCharges) -> Steps[bytes | None]:
        """Charge topic by topic; returns the request with what was admitted, None if nothing was."""
        charges.look_up(self._now_us // 1000)
        if self._head.key == CREATE_PARTITIONS:
            yield from self._refuse_excess_growth()
        request = self._request
        for index, topic in enumerate(request.topics):
            if index % STEP_PARTS == STEP_PARTS - 1:
                yield
            if index in self._refusals or request.validate_only:
                continue
            now_ms = self._now_us // 1000
            cost = self._counts.before(topic, now_ms)
            if cost is None:
                continue
            if charges.charge(index, cost, self._now_us) or not charges.enforced:
                self._counts.goes_up(index, now_ms)
            else:
                self._refuse(index, topic, ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)
        if not self._refusals:
            return request.frame
        admitted = [index for index in range(len(request.topics)) if index not in self._refusals]
        return mutations.subset(request, admitted) if admitted else None

    def _refuse_excess(self) -> Steps[None]:
        """A count that no cluster should be asked for goes no further: it can exhaust a controller."""
        if self._head.key != CREATE_TOPICS:
            return
        most, now_ms = self._shared.settings.mutation_partitions_max, self._now_us // 1000
        topics = self._request.topics
        asked = 0
        for index, topic in enumerate(topics):
            asked += self._counts.new_topic(topic, now_ms) or 0
            if index % STEP_PARTS == STEP_PARTS - 1:
                yield
        if asked <= most:
            return
        text = f"Excessively large number of partitions per request: {asked}; at most {most}."
        for index, topic in enumerate(topics):
            self._refuse(index, topic, ErrorCode.POLICY_VIOLATION, text)
            if index % STEP_PARTS == STEP_PARTS - 1:
                yield

    def _refuse_excess_growth(self) -> Steps[None]:
        """The same for CreatePartitions, where what is new is known once Metadata has been asked.

        In request order: what would go over is refused, what still fits goes on.
        """
        most, asked = self._shared.settings.mutation_partitions_max, 0
        for index, topic in enumerate(self._request.topics):
            if index % STEP_PARTS == STEP_PARTS - 1:
                yield
            if self._counts.is_named_twice(topic):
                continue  # the broker refuses it; one of two alone it would carry out, uncharged
            there = self._counts.possible(topic, self._now_us // 1000)
            more = max(0, topic.partitions - there.least)
            if asked + more > most:
                text = f"{more} new partitions beside {asked} in one request; at most {most} are allowed."
                self._refuse(index, topic, ErrorCode.INVALID_PARTITIONS, text)
            else:
                asked += more

    def _refuse(self, index: int, topic: TopicAsk, error_code: int, message: str | None) -> None:
        self._refusals[index] = Refusal(
            name=topic.name, topic_id=topic.topic_id, error_code=error_code, message=message
        )

    # ------------------------------------------------------------------ settling

    def _settle(self, charges: MutationCharges, answer: MutationAnswer) -> Steps[int]:
        """Take what the broker says of each topic; returns what is left of the throttle, in ms."""
        by_topic: dict[str | bytes | None, TopicResult] = {}
        for result in answer.topics:
            by_topic[result.name] = by_topic[result.topic_id] = result
        outcomes, last = self._outcomes, Outcome(ErrorCode.NONE, None)
        for index, topic in enumerate(self._request.topics):
            if index % STEP_PARTS == STEP_PARTS - 1:
                yield
            # A broker that takes a topic twice carries it out once.
            said = by_topic.pop(key_of(topic), None)
            done, now_ms = None, self._now_us // 1000
            if said is None or index in self._refusals:
                continue
            if said.error_code == ErrorCode.NONE and not self._request.validate_only:
                done = self._counts.done(index, said, charges.charged(index), now_ms)
            elif said.error_code not in PERHAPS_DONE:
                self._counts.refused(index, now_ms)
            # One object for topics of the same fate: the garbage collector looks at each.
            last = outcomes[index] = (
                last if last == (said.error_code, done) else Outcome(said.error_code, done)
            )
        charges.owe(self._leave(charges), self._now_us)
        return (
            yield from charges.settle(
                outcomes,
                answer.throttle_ms,
                refused_any=bool(self._refusals),
                now_us=self._now_us,
            )
        )


def _question(frame: bytes) -> Sent:
    return Sent(questions.OWN_CORRELATION, frame)


def _newest_metadata(caller: Caller) -> int:
    """As far as the client's own ApiVersions has told; a client that deletes by id has asked."""
    return caller.upstream_versions.get(METADATA, (0, 12))[1]
