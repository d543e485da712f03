"""Topics that a broker creates because a client asks for them by name, admitted topic by topic.

A broker asks the controller for them in the client's name, with a CreateTopics that can be refused; so they are
charged, and recorded, as that request. Where a limit is in force for the client, its Metadata request is kept back
while questions of the gateway's own find out which topics are unknown, and whether the cluster creates any. What the
quota does not admit is asked for without creation: the client is told that the topic is unknown, and how long to wait.

A topic that is there when it is asked about may be deleted a moment later. So where the limit is enforced only such topics
are ever asked for with creation as have been charged.
"""

from collections.abc import Generator, Set

from kvota.session.announced import limits_mutations
from kvota.session.caller import Caller
from kvota.session.exchanges.addresses import Addresses
from kvota.session.exchanges.charged_talk import ChargedTalk
from kvota.session.exchanges.conversation import Onward, Sent, Talk
from kvota.session.exchanges.exchange import RequestHead
from kvota.session.exchanges.mutation_charges import PERHAPS_DONE, MutationCharges, Outcome
from kvota.wire import addresses, metadata_requests, old_metadata, questions, throttle_field
from kvota.wire.apis import CREATE_TOPICS, METADATA
from kvota.wire.encode import encode_int16
from kvota.wire.error_code import ErrorCode
from kvota.wire.metadata_requests import FLAG_FROM, MetadataRequest
from kvota.wire.mutations import MutationRequest, TopicAsk, TopicResult
from kvota.wire.questions import OWN_CORRELATION, MetadataAnswer
from kvota.wire.steps import STEP_PARTS, Steps
from kvota.wire.varint import Frame

# The first version of CreateTopics that tells of partitions and ids: what brokers send for it.
_CREATE_VERSION = 7
_AUTO_CREATE, _DEFAULT_PARTITIONS = "auto.create.topics.enable", "num.partitions"
# What a broker says of a topic that is there, or is being created (LEADER_NOT_AVAILABLE: before 3.0).
_CREATED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)


class AutoCreation(ChargedTalk):
    """A Metadata request by which topics may be created; others are on their way at once."""

    def __init__(self, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> None:
        super().__init__(caller, head, frame, now_us)
        self._topics: tuple[TopicAsk, ...] = ()
        self._admitted: list[int] = []  # their places
        self._has_rejected = False

    @property
    def _left_out(self) -> Set[int]:
        return set(range(len(self._topics))).difference(self._admitted)

    @classmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:
        """Talk about topics that may be created; all else goes on.

        Raises:
            ProtocolError: the client has a limit, and its request cannot be read or has too many names.
        """
        engine, user = caller.shared.engine, caller.principal.name
        if (
            caller.is_stranger  # whom the broker refuses
            or not limits_mutations(engine, user, frame, now_us // 1000)
            or metadata_requests.announced_names(frame) == 0
        ):
            caller.whole.give_back()
            return Addresses.begin(caller, head, frame, now_us)
        return super().begin(caller, head, frame, now_us)

    # ------------------------------------------------------------------ the conversation

    def _talk_over(self, caller: Caller, frame: bytes) -> Talk:
        _, version, correlation = self._head
        request = yield from metadata_requests.scan_in_steps(frame, version)
        exchange = Addresses(METADATA, version)
        if not request.creates or not request.names:
            return Onward(frame, exchange)
        charges = self._charges = MutationCharges(
            self._shared,
            RequestHead(CREATE_TOPICS, _CREATE_VERSION, correlation),
            user=caller.principal.name,
            client_id=request.client_id,
            connection=caller.number,
        )
        unknown = yield from self._ask_for(caller, request.names)
        if unknown and (yield from self._creates_topics(caller)):
            yield from self._decide(charges, request, unknown)
        del unknown
        is_quiet = not self._admitted and not self._has_rejected
        if is_quiet and not charges.enforced:
            return Onward(frame, exchange)
        if is_quiet and version >= FLAG_FROM:
            return Onward(metadata_requests.without_creation(frame, request), exchange)
        self._has_gone_up = bool(self._topics)
        if charges.enforced and len(self._admitted) < len(request.names):
            told = yield from self._ask_without_creation(charges, request, frame)
        else:
            told = yield Sent(correlation, frame)
            answer = yield from questions.scan_metadata_in_steps(told, version)
            yield from self._settle(charges, answer)
        told = yield from addresses.rewrite_in_steps(told, METADATA, version, caller.address_of)
        caller.is_let_in = True
        return self._with_wait(caller, charges, told, request.client_id)

    def _with_wait(
        self, caller: Caller, charges: MutationCharges, told: Frame, client_id: str
    ) -> Frame:
        """Where topics were rejected the client waits, and is told so."""
        if not self._has_rejected or charges.lane is None:
            return told
        wait_ms = min(charges.mute_ms(self._now_us), self._shared.settings.mute_ms_max)
        if wait_ms > 0:
            told = bytearray(told)
            throttle_field.patch(told, METADATA, self._head.version, wait_ms)
            caller.mute(wait_ms, charges.lane, client_id, self._now_us // 1000)
        return told

    def _ask_for(
        self, caller: Caller, names: tuple[str, ...]
    ) -> Generator[Sent | None, Frame, list[str]]:
        """Which of the topics the broker does not know."""
        self._counts.asked_ms = self._now_us // 1000
        question = yield from questions.metadata_by_name_in_steps(OWN_CORRELATION, names)
        told = yield Sent(OWN_CORRELATION, question)
        del question
        answer = yield from questions.scan_metadata_in_steps(told, questions.METADATA_NAMES_VERSION)
        for broker in answer.brokers:
            self._shared.topology.address_of(*broker)
        caller.learn_own_node()
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self._counts.facts = {
            name: topic for name, topic in answer.topics.items() if topic.error_code == unknown
        }
        return [name for name in names if name in self._counts.facts]

    def _creates_topics(self, caller: Caller) -> Generator[Sent | None, Frame, bool]:
        """Whether the broker creates topics: as Kafka does by default, where it does not tell."""
        facts, node_id, now_ms = self._shared.facts, caller.node_id, self._now_us // 1000
        if node_id < 0:  # only that node tells
            return True
        known = facts.creates_topics(node_id, now_ms)
        if known is None or (known and facts.should_ask(now_ms)):
            told = yield Sent(
                OWN_CORRELATION,
                questions.describe_broker_configs(
                    OWN_CORRELATION, str(node_id), [_AUTO_CREATE, _DEFAULT_PARTITIONS]
                ),
            )
            values, now_ms = questions.scan_configs(told).values, self._now_us // 1000
            text = values.get(_AUTO_CREATE)
            if text is not None:
                known = text.lower() == "true"
                facts.learn_creates_topics(node_id, known, now_ms)
            text = values.get(_DEFAULT_PARTITIONS)
            if text is not None and text.isdecimal():
                facts.learn_default_partitions(int(text), now_ms)
        return known is not False

    def _ask_without_creation(
        self, charges: MutationCharges, request: MetadataRequest, frame: bytes
    ) -> Generator[Sent | None, Frame, Frame]:
        """Have the admitted topics created, and nothing else; returns the answer to the client."""
        _, version, correlation = self._head
        failed: dict[str, int] = {}
        if self._admitted:
            names = [self._topics[index].name or "" for index in self._admitted]
            question = yield from questions.metadata_by_name_in_steps(
                OWN_CORRELATION, names, creates=True
            )
            del names
            told = yield Sent(OWN_CORRELATION, question)
            del question
            answer = yield from questions.scan_metadata_in_steps(
                told, questions.METADATA_NAMES_VERSION
            )
            failed = yield from self._settle(charges, answer)
        if version >= FLAG_FROM:
            told = yield Sent(correlation, metadata_requests.without_creation(frame, request))
            return (yield from _with_errors(told, version, failed))
        question = yield from questions.metadata_by_name_in_steps(correlation, request.names)
        told = yield Sent(correlation, question)
        told = yield from _with_errors(told, questions.METADATA_NAMES_VERSION, failed)
        return (yield from old_metadata.older_in_steps(told, version))

    # ------------------------------------------------------------------ deciding

    def _decide(
        self, charges: MutationCharges, request: MetadataRequest, unknown: list[str]
    ) -> Steps[None]:
        """Charge topic by topic: one that has just been created is unknown to brokers for a while, and costs nothing."""
        topics = []
        for index, name in enumerate(unknown):
            topics.append(_with_default_partitions(name))
            if index % STEP_PARTS == STEP_PARTS - 1:
                yield
        self._topics = tuple(topics)
        yield from self._counts.read(_creation(request, self._topics))
        charges.look_up(self._now_us // 1000)
        for index, topic in enumerate(self._topics):
            if index % STEP_PARTS == STEP_PARTS - 1:
                yield
            now_ms = self._now_us // 1000
            cost = self._counts.before(topic, now_ms)
            if cost is None:
                continue
            if charges.charge(index, cost, self._now_us) or not charges.enforced:
                self._counts.goes_up(index, now_ms)
                self._admitted.append(index)
            else:
                self._has_rejected = True

    def _settle(self, charges: MutationCharges, answer: MetadataAnswer) -> Steps[dict[str, int]]:
        """Take what the broker says of each topic: what it does not create is given back; returns why not."""
        failed: dict[str, int] = {}
        for number, index in enumerate(self._admitted):
            if number % STEP_PARTS == STEP_PARTS - 1:
                yield
            name, now_ms = self._topics[index].name or "", self._now_us // 1000
            said = answer.topics.get(name)
            if said is None:
                continue
            if said.error_code in _CREATED:
                result = _created(name, said.partitions or -1)
                done = self._counts.done(index, result, charges.charged(index), now_ms)
                self._outcomes[index] = Outcome(ErrorCode.NONE, done)
                continue
            if said.error_code not in PERHAPS_DONE:
                self._counts.refused(index, now_ms)
            failed[name] = said.error_code
            self._outcomes[index] = Outcome(said.error_code, None)
        charges.owe(self._leave(charges), self._now_us)
        yield from charges.settle(
            self._outcomes, 0, refused_any=self._has_rejected, now_us=self._now_us
        )
        return failed


def _with_errors(told: Frame, version: int, failed: dict[str, int]) -> Steps[Frame]:
    """The answer to a question without creation, with what came of the one before."""
    if not failed:
        return told
    answer = yield from questions.scan_metadata_in_steps(told, version)
    changed = bytearray(told)
    for name, error_code in failed.items():
        topic = answer.topics.get(name)
        if topic is not None and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            changed[topic.at : topic.at + 2] = encode_int16(error_code)
    return changed


def _with_default_partitions(name: str) -> TopicAsk:
    return TopicAsk(
        name=name,
        topic_id=None,
        partitions=-1,
        assignments=0,
        replication_factor=-1,
        at=0,
        end=0,
    )


def _creation(request: MetadataRequest, topics: tuple[TopicAsk, ...]) -> MutationRequest:
    """What a broker asks the controller for."""
    return MutationRequest(
        key=CREATE_TOPICS,
        version=_CREATE_VERSION,
        correlation_id=0,
        client_id=request.client_id,
        timeout_ms=0,
        validate_only=False,
        topics=topics,
        frame=b"",
        topics_at=0,
        topics_end=0,
    )


def _created(name: str, partitions: int) -> TopicResult:
    return TopicResult(
        name=name,
        topic_id=None,
        error_code=ErrorCode.NONE,
        error_message=None,
        partitions=partitions,
        at=0,
        end=0,
    )
