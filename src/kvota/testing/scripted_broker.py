"""A broker that answers whatever is asked, as a script says: one for each connection, without sockets."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kio.schema.errors import ErrorCode

from kvota.testing.frames import (
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    HEARTBEAT,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    answer,
    decoded,
    fetch_answer,
    metadata_answer,
    parts,
    produce_answer,
    topic_id,
    with_correlation,
)
from kvota.testing.script import Script
from kvota.testing.scripted_cluster import ScriptedCluster, TopicChange, TopicOutcome
from kvota.testing.share_frames import SHARE_FETCH, share_answer

_SERVER_FIRST = b"r=nonce,s=c2FsdA==,i=4096"
_SERVER_FINAL = b"v=c2lnbmF0dXJl"
_PRODUCE_NAMES_NODES_FROM = 10
_FETCH_NAMES_NODES_FROM = 16
_FETCH_SESSIONS_FROM = 7
_NEW_SESSION = 4_711

# The same answer is asked for again and again; only its correlation id differs.
_produce_answer = lru_cache(maxsize=1024)(produce_answer)
_metadata_answer = lru_cache(maxsize=1024)(metadata_answer)
_fetch_answer = lru_cache(maxsize=256)(fetch_answer)
_share_answer = lru_cache(maxsize=256)(share_answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What becomes of one request.

    Attributes:
        request: the whole frame, or a token without Kafka's header.
        answer: what the broker says; empty with acks = 0.
        delay_ms: after how long; a broker answers in order all the same.
        throttle_ms: the throttle time in the answer.
        fields: what else the answer was made of; with them it can be made again, and otherwise.
        outcomes: of a topic mutation.
    """

    request: bytes
    answer: bytes
    delay_ms: int = 0
    throttle_ms: int = 0
    fields: tuple[tuple[str, Any], ...] = ()
    outcomes: tuple[TopicOutcome, ...] = ()


@dataclass(slots=True)
class _Login:
    """One attempt to log in, as far as the broker's answers depend on it."""

    mechanism: str
    tokens: int = 0

    def challenge(self) -> tuple[bytes, bool]:
        """The answer to the next token, and whether it is the last one."""
        self.tokens += 1
        if not self.mechanism.startswith("SCRAM"):
            return b"", True
        return (_SERVER_FIRST, False) if self.tokens == 1 else (_SERVER_FINAL, True)


class ScriptedBroker:
    """The broker's end of one connection.

    Attributes:
        requests: whole requests so far, tokens included.
    """

    def __init__(
        self,
        cluster: ScriptedCluster | None = None,
        script: Script | None = None,
        *,
        node_id: int = 1,
    ) -> None:
        self.cluster = cluster or ScriptedCluster()
        self.script = script or Script()
        self.node_id = node_id
        self.requests: list[bytes] = []
        self._arrived = bytearray()
        self._login = _Login("")
        self._takes_tokens = False
        self._answered: dict[int, Callable[[bytes, int, int], Reply]] = {
            PRODUCE: self._produced,
            FETCH: self._fetched,
            SHARE_FETCH: self._shared,
            METADATA: self._described,
            HEARTBEAT: self._beaten,
            SASL_HANDSHAKE: self._shaken,
            API_VERSIONS: self._offered,
            CREATE_TOPICS: self._created,
            DELETE_TOPICS: self._deleted,
            DESCRIBE_CONFIGS: self._configured,
            SASL_AUTHENTICATE: self._let_in,
            CREATE_PARTITIONS: self._grown,
        }

    @property
    def is_inside_frame(self) -> bool:
        """True while a frame has begun and not ended."""
        return bool(self._arrived)

    def receive(self, data: bytes | bytearray) -> list[Reply]:
        """Take bytes as they arrive; returns what becomes of the requests that are whole now."""
        self._arrived += data
        replies = []
        at = 0
        while len(self._arrived) - at >= 4:
            end = at + 4 + int.from_bytes(self._arrived[at : at + 4], "big")
            if end > len(self._arrived):
                break
            frame = bytes(self._arrived[at:end])
            at = end
            self.requests.append(frame)
            replies.append(self._token(frame) if self._takes_tokens else self._reply(frame))
        del self._arrived[:at]
        return replies

    def answers(self, data: bytes | bytearray) -> bytes:
        """Take bytes as they arrive; returns all the answers at once."""
        return b"".join(reply.answer for reply in self.receive(data))

    def _reply(self, frame: bytes) -> Reply:
        key = int.from_bytes(frame[4:6], "big")
        version = int.from_bytes(frame[6:8], "big")
        correlation = int.from_bytes(frame[8:12], "big", signed=True)
        return self._answered[key](frame, version, correlation)

    def _made(self, frame: bytes, answer_: bytes, **more: Any) -> Reply:
        delay_ms = self.script.delay_ms(frame[5])
        return Reply(request=frame, answer=answer_, delay_ms=delay_ms, **more)

    # ------------------------------------------------------------------ data

    def _produced(self, frame: bytes, version: int, correlation: int) -> Reply:
        if version >= 3 and decoded(frame, PRODUCE, version, is_answer=False).acks == 0:
            return self._made(frame, b"")
        fields: dict[str, Any] = {"error": self.script.produce_error()}
        throttle_ms = self.script.throttle_ms(PRODUCE)
        if version >= _PRODUCE_NAMES_NODES_FROM:
            fields["endpoints"] = self._endpoints(self.script.named_nodes(PRODUCE))
        made = produced(version, correlation, throttle_ms=throttle_ms, **fields)
        return self._made(frame, made, throttle_ms=throttle_ms, fields=tuple(fields.items()))

    def _fetched(self, frame: bytes, version: int, correlation: int) -> Reply:
        fields: dict[str, Any] = {
            "records": bytes(self.script.fetched_bytes()),
            "partitions": self.script.fetched_partitions(),
            "session_id": _session_id(frame, version),
        }
        throttle_ms = self.script.throttle_ms(FETCH)
        if version >= _FETCH_NAMES_NODES_FROM:
            fields["endpoints"] = self._endpoints(self.script.named_nodes(FETCH))
        made = fetched(version, correlation, throttle_ms=throttle_ms, **fields)
        return self._made(frame, made, throttle_ms=throttle_ms, fields=tuple(fields.items()))

    def _shared(self, frame: bytes, version: int, correlation: int) -> Reply:
        asked = decoded(frame, SHARE_FETCH, version, is_answer=False)
        fields: dict[str, Any] = {
            # Who asks for nothing acquires nothing.
            "records": bytes(self.script.fetched_bytes() if asked.max_bytes else 0),
            "partitions": self.script.fetched_partitions(),
            "endpoints": self._endpoints(self.script.named_nodes(SHARE_FETCH)),
        }
        throttle_ms = self.script.throttle_ms(SHARE_FETCH)
        made = shared(version, correlation, throttle_ms=throttle_ms, **fields)
        return self._made(frame, made, throttle_ms=throttle_ms, fields=tuple(fields.items()))

    def _endpoints(self, node_ids: Sequence[int]) -> tuple[tuple[int, str, int], ...]:
        return tuple((node_id, *self.cluster.brokers[node_id]) for node_id in node_ids)

    # ------------------------------------------------------------------ what there is

    def _described(self, frame: bytes, version: int, correlation: int) -> Reply:
        topics = decoded(frame, METADATA, version, is_answer=False).topics
        asked = None
        if topics is not None and (topics or version > 0):
            asked = [topic.name or topic.topic_id for topic in topics]
        fields = {
            "brokers": tuple(self.cluster.nodes),
            "topics": tuple(self.cluster.described(asked)),
        }
        made = described(version, correlation, **fields)
        return self._made(frame, made, fields=tuple(fields.items()))

    def _configured(self, frame: bytes, version: int, correlation: int) -> Reply:
        asked = decoded(frame, DESCRIBE_CONFIGS, version, is_answer=False).resources
        configs = parts(
            DESCRIBE_CONFIGS,
            version,
            "response",
            "DescribeConfigsResourceResult",
            {"name": "num.partitions", "value": str(self.cluster.default_partitions)},
        )
        allowed = self.cluster.tells_configs
        refused = ErrorCode.cluster_authorization_failed
        rows = (
            {
                "error_code": ErrorCode.none if allowed else refused,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
                "configs": configs if allowed else (),
            }
            for resource in asked
        )
        results = parts(DESCRIBE_CONFIGS, version, "response", "DescribeConfigsResult", *rows)
        made = answer(DESCRIBE_CONFIGS, version, correlation=correlation, results=results)
        return self._made(frame, made)

    def _offered(self, frame: bytes, version: int, correlation: int) -> Reply:
        made = answer(
            API_VERSIONS,
            version,
            correlation=correlation,
            throttle_ms=0 if version else None,
            error_code=ErrorCode.none,
            api_keys=parts(API_VERSIONS, version, "response", "ApiVersion", *_OFFERED),
        )
        return self._made(frame, made)

    def _beaten(self, frame: bytes, version: int, correlation: int) -> Reply:
        throttle_ms = self.script.throttle_ms(HEARTBEAT) if version else 0
        made = answer(
            HEARTBEAT,
            version,
            correlation=correlation,
            throttle_ms=throttle_ms if version else None,
            error_code=ErrorCode.none,
        )
        return self._made(frame, made, throttle_ms=throttle_ms)

    # ------------------------------------------------------------------ logins

    def _shaken(self, frame: bytes, version: int, correlation: int) -> Reply:
        asked = decoded(frame, SASL_HANDSHAKE, version, is_answer=False)
        self._login = _Login(asked.mechanism)
        self._takes_tokens = version == 0
        made = answer(
            SASL_HANDSHAKE,
            version,
            correlation=correlation,
            throttle_ms=None,
            error_code=ErrorCode.none,
            mechanisms=(asked.mechanism,),
        )
        return self._made(frame, made)

    def _let_in(self, frame: bytes, version: int, correlation: int) -> Reply:
        error_code = ErrorCode(self.script.authenticate_error())
        token = b"" if error_code is not ErrorCode.none else self._login.challenge()[0]
        made = answer(
            SASL_AUTHENTICATE,
            version,
            correlation=correlation,
            throttle_ms=None,
            error_code=error_code,
            auth_bytes=token,
        )
        return self._made(frame, made, fields=(("error", error_code.value),))

    def _token(self, frame: bytes) -> Reply:
        token, is_last = self._login.challenge()
        self._takes_tokens = not is_last
        return Reply(
            request=frame,
            answer=len(token).to_bytes(4, "big") + token,
            delay_ms=self.script.delay_ms(SASL_AUTHENTICATE),
        )

    # ------------------------------------------------------------------ mutations

    def _created(self, frame: bytes, version: int, correlation: int) -> Reply:
        asked = decoded(frame, CREATE_TOPICS, version, is_answer=False)
        changes = [
            TopicChange(topic.name, len(topic.assignments) or topic.num_partitions)
            for topic in asked.topics
        ]
        outcomes = self.cluster.create(changes, validate_only=asked.validate_only)
        return self._mutated(frame, version, correlation, outcomes)

    def _deleted(self, frame: bytes, version: int, correlation: int) -> Reply:
        asked = decoded(frame, DELETE_TOPICS, version, is_answer=False)
        if version >= 6:
            names = [topic.name or topic.topic_id for topic in asked.topics]
        else:
            names = list(asked.topic_names)
        outcomes = self.cluster.delete([TopicChange(name, 0) for name in names])
        return self._mutated(frame, version, correlation, outcomes)

    def _grown(self, frame: bytes, version: int, correlation: int) -> Reply:
        asked = decoded(frame, CREATE_PARTITIONS, version, is_answer=False)
        changes = [TopicChange(topic.name, topic.count) for topic in asked.topics]
        outcomes = self.cluster.grow(changes, validate_only=asked.validate_only)
        return self._mutated(frame, version, correlation, outcomes)

    def _mutated(
        self, frame: bytes, version: int, correlation: int, outcomes: Sequence[TopicOutcome]
    ) -> Reply:
        key = frame[5]
        array, part = _RESULTS[key]
        rows = (
            {
                "name": outcome.name if isinstance(outcome.name, str) else None,
                "topic_id": topic_id(outcome.name)
                if isinstance(outcome.name, str)
                else outcome.name,
                "error_code": ErrorCode(outcome.error_code),
                "num_partitions": -1 if outcome.error_code else outcome.partitions,
                "topic_config_error_code": 0,
                "configs": (),
            }
            for outcome in outcomes
        )
        fields: dict[str, Any] = {array: parts(key, version, "response", part, *rows)}
        throttle_ms = self.script.throttle_ms(key)
        made = answer(
            key,
            version,
            correlation=correlation,
            throttle_ms=throttle_ms,
            **fields,
        )
        return self._made(frame, made, throttle_ms=throttle_ms, outcomes=tuple(outcomes))


def produced(version: int, correlation: int, *, throttle_ms: int, **fields: Any) -> bytes:
    """The answer of a ``Reply`` to a Produce with these fields."""
    made = _produce_answer(version, correlation=0, throttle_ms=throttle_ms, **fields)
    return with_correlation(made, correlation)


def described(version: int, correlation: int, **fields: Any) -> bytes:
    """The answer of a ``Reply`` to a Metadata request with these fields."""
    return with_correlation(_metadata_answer(version, correlation=0, **fields), correlation)


def _session_id(frame: bytes, version: int) -> int:
    """The session that a Fetch goes on with; a new one where it asks for one; else none."""
    if version < _FETCH_SESSIONS_FROM:
        return 0
    message = decoded(frame, FETCH, version, is_answer=False)
    session_id: int = message.session_id
    return _NEW_SESSION if message.session_epoch == 0 else session_id


def fetched(version: int, correlation: int, *, throttle_ms: int, **fields: Any) -> bytes:
    """The answer of a ``Reply`` to a Fetch with these fields."""
    made = _fetch_answer(version, correlation=0, throttle_ms=throttle_ms, **fields)
    return with_correlation(made, correlation)


def shared(version: int, correlation: int, *, throttle_ms: int, **fields: Any) -> bytes:
    """The answer of a ``Reply`` to a ShareFetch with these fields."""
    made = _share_answer(version, correlation=0, throttle_ms=throttle_ms, **fields)
    return with_correlation(made, correlation)


_OFFERED = (
    {"api_key": METADATA, "min_version": 0, "max_version": 13},
    {"api_key": PRODUCE, "min_version": 0, "max_version": 99},
    {"api_key": FETCH, "min_version": 4, "max_version": 99},
)
_RESULTS = {
    CREATE_TOPICS: ("topics", "CreatableTopicResult"),
    DELETE_TOPICS: ("responses", "DeletableTopicResult"),
    CREATE_PARTITIONS: ("results", "CreatePartitionsTopicResult"),
}
