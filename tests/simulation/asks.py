"""What clients ask: one request each, with what the checks must know of it."""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from random import Random
from typing import Any

from kvota.session.whole_requests import LARGE_TOPICS
from kvota.testing.frames import (
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    HEADER_TAGS,
    HEARTBEAT,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    fetch,
    parts,
    produce,
    request,
    topic_id,
)
from kvota.testing.share_frames import SHARE_FETCH, share_fetch

MUTATIONS = frozenset({CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS})
# The lowest version above what the gateway knows: it answers such a request itself.
_NEWER_API_VERSIONS = 9

# Bytes of records: around the 16 KB that must be here before a frame goes on in parts.
_SIZES = (0, 100, 100, 400, 400, 3_000, 3_000, 16_000, 17_000, 60_000)
_BULK_SIZES = (17_000, 40_000, 60_000)
# Of the Fetches of who is in a share group, too.
_SHARED_RATIO = 0.7

_produce = lru_cache(maxsize=2048)(produce)
_fetch = lru_cache(maxsize=2048)(fetch)
_share_fetch = lru_cache(maxsize=2048)(share_fetch)
_request = lru_cache(maxsize=2048)(request)


class Fate(Enum):
    """What became of a request in the gateway."""

    WAITING = "not forwarded yet"
    FORWARDED = "forwarded"
    LOCAL = "answered by the gateway, or refused"


@dataclass(slots=True, eq=False)
class Ask:
    """One request of one client.

    Attributes:
        key, version, correlation: of its head; a bare token has the key of SaslAuthenticate.
        frame: all its bytes.
        client_id: as it stands in the head; None is the empty name.
        is_answered: false with acks = 0.
        is_token: a login token without Kafka's header.
        user: who is logged in once this is answered without an error; None: nobody new.
        topics: of a mutation: what is asked of which topic, in order, repetitions included.
        validate_only: of a mutation.
        is_refused: a further quota has refused it, so it stays.
        fate: what the gateway did with it.
    """

    key: int
    version: int
    correlation: int
    frame: bytes
    client_id: str | None = "app"
    is_answered: bool = True
    is_token: bool = False
    user: str | None = None
    topics: tuple[object, ...] = ()
    validate_only: bool = False
    is_refused: bool = False
    fate: Fate = Fate.WAITING

    @property
    def is_mutation(self) -> bool:
        return self.key in MUTATIONS

    @property
    def is_too_new(self) -> bool:
        """An ApiVersions request of a version that the gateway does not know."""
        return self.key == API_VERSIONS and self.version == _NEWER_API_VERSIONS

    def __str__(self) -> str:
        return f"API {self.key} v{self.version}, correlation {self.correlation}, {self.fate.value}"


def _numbered(frame: bytes, correlation: int) -> bytes:
    return frame[:8] + correlation.to_bytes(4, "big", signed=True) + frame[12:]


class Asks:
    """Draws requests for one client.

    Args:
        rng: where all is drawn from.
        client_ids: one of them stands in each request.
        prefix: begins the names of this client's own topics, so that others cannot move them.
        is_bulk: every Produce is a large one.
        shares: of a client that is in a share group, too: some of its Fetches are ShareFetches. All else is
            drawn as without it.
    """

    def __init__(
        self,
        rng: Random,
        *,
        client_ids: tuple[str | None, ...],
        prefix: str,
        is_bulk: bool,
        shares: Random | None = None,
    ) -> None:
        self._rng, self._shares = rng, shares
        self._sizes = _BULK_SIZES if is_bulk else _SIZES
        self._client_ids = client_ids
        # As a client does: it keeps to one version. (A connection that uses several is possible.)
        self._fetch_version = rng.choice((rng.randint(4, 18), rng.randint(16, 18)))
        self._prefix = prefix
        self._correlation = rng.choice((0, 1, -5, 2**31 - 3, rng.randrange(-(2**31), 2**31)))

    def _ask(self, frame: bytes, **facts: Any) -> Ask:
        # As Kafka's clients: on from the largest number at the smallest one.
        self._correlation = (self._correlation + 1 + 2**31) % 2**32 - 2**31
        return Ask(
            key=frame[5],
            version=frame[7],
            correlation=self._correlation,
            frame=_numbered(frame, self._correlation),
            **facts,
        )

    def _client_id(self) -> str | None:
        return self._rng.choice(self._client_ids)

    def _tags(self) -> bytes:
        return HEADER_TAGS if self._rng.random() < 0.1 else b"\0"

    # ------------------------------------------------------------------ data

    def produce(self) -> Ask:
        rng = self._rng
        client_id, acks = self._client_id(), rng.choice((-1, -1, -1, 1, 1, 0))
        size = rng.choice(self._sizes)
        frame = _produce(
            rng.randint(3, 13),
            acks=acks,
            correlation=0,
            records=bytes([rng.randrange(3)]) * size,
            transactional_id=rng.choice((None, None, None, "t")),
            client=client_id,
            tags=self._tags(),
        )
        return self._ask(frame, client_id=client_id, is_answered=acks != 0)

    def fetch(self) -> Ask:
        rng = self._rng
        client_id = self._client_id()
        frame = _fetch(
            rng.choice((self._fetch_version,) * 9 + (rng.randint(4, 18),)),
            correlation=0,
            max_bytes=rng.choice((1, 5_000, 52_428_800, 52_428_800, 52_428_800)),
            min_bytes=rng.choice((0, 1, 100_000)),
            session=rng.choice(((0, -1), (0, 0), (7, 1), (-3, 2**31 - 1))),
            client=client_id,
            tags=self._tags(),
        )
        if self._shares is not None and self._shares.random() < _SHARED_RATIO:
            frame = self._share_fetch(self._shares, client_id)
        return self._ask(frame, client_id=client_id)

    @staticmethod
    def _share_fetch(rng: Random, client_id: str | None) -> bytes:
        return _share_fetch(
            rng.choice((1, 2)),
            correlation=0,
            max_bytes=rng.choice((0, 1, 5_000, 52_428_800, 52_428_800)),
            acknowledges=rng.random() < 0.4,
            client=client_id,
            tags=HEADER_TAGS if rng.random() < 0.1 else b"\0",
        )

    # ------------------------------------------------------------------ what passes

    def heartbeat(self) -> Ask:
        return self._plain(HEARTBEAT, 0, 4)

    def metadata(self) -> Ask:
        """Creates no topic: these brokers make none by themselves."""
        version = self._rng.randint(0, 13)
        client_id = self._client_id()
        names = [self._prefix + name for name in ("a", "b")]
        if version >= 10:
            rows = [{"name": name, "topic_id": topic_id(name)} for name in names]
        else:
            rows = [{"name": name} for name in names]
        topics = parts(METADATA, version, "request", "MetadataRequestTopic", *rows)
        if version < 4:  # these cannot say that none shall be created: they ask for all there are
            frame = _request(METADATA, version, client=client_id, topics=None if version else ())
        else:
            frame = _request(
                METADATA, version, client=client_id, topics=topics, allow_auto_topic_creation=False
            )
        return self._ask(frame, client_id=client_id)

    def api_versions(self) -> Ask:
        if self._rng.random() < 0.6:
            return self._plain(API_VERSIONS, 0, 4)
        client_id = self._client_id()
        frame = _request(API_VERSIONS, 0, client=client_id)
        newer = frame[:6] + _NEWER_API_VERSIONS.to_bytes(2, "big") + frame[8:]
        return self._ask(newer, client_id=client_id)

    def _plain(self, key: int, lowest: int, highest: int) -> Ask:
        client_id = self._client_id()
        frame = _request(key, self._rng.randint(lowest, highest), client=client_id)
        return self._ask(frame, client_id=client_id)

    # ------------------------------------------------------------------ topic mutations

    def create(self) -> Ask:
        rng = self._rng
        rows = [
            {
                "name": name,
                "num_partitions": rng.choice((-1, 1, 2, 5, 5, 20, 60, 0)),
                "replication_factor": 1,
                "assignments": (),
                "configs": (),
            }
            for name in self._topic_names()
        ]
        version = rng.randint(2, 7)
        for row in rows:
            if rng.random() < 0.15:
                row |= {"num_partitions": -1, "assignments": _assigned(version, rng.randint(1, 4))}
        topics = parts(CREATE_TOPICS, version, "request", "CreatableTopic", *rows)
        return self._mutation(CREATE_TOPICS, version, topics, topics=topics)

    def delete(self) -> Ask:
        version = self._rng.randint(1, 6)
        names = self._topic_names()
        if version < 6:
            return self._mutation(DELETE_TOPICS, version, tuple(names), topic_names=tuple(names))
        rows = [
            {"name": None, "topic_id": topic_id(name)}
            if self._rng.random() < 0.4
            else {"name": name, "topic_id": None}
            for name in names
        ]
        topics = parts(DELETE_TOPICS, version, "request", "DeleteTopicState", *rows)
        # Ids are only asked for by clients that know what the broker offers.
        return self._mutation(DELETE_TOPICS, version, topics, topics=topics)

    def delete_many(self) -> Ask:
        """So many unknown topics that its user has only one such request in hand."""
        count = LARGE_TOPICS + self._rng.randint(1, 300)
        names = tuple(f"{self._prefix}unknown-{number}" for number in range(count))
        return self._mutation(DELETE_TOPICS, self._rng.randint(1, 5), names, topic_names=names)

    def grow(self) -> Ask:
        rng = self._rng
        rows = [
            {"name": name, "count": rng.choice((1, 4, 9, 30, 70)), "assignments": None}
            for name in self._topic_names()
        ]
        version = rng.randint(0, 3)
        topics = parts(CREATE_PARTITIONS, version, "request", "CreatePartitionsTopic", *rows)
        return self._mutation(CREATE_PARTITIONS, version, topics, topics=topics)

    def _topic_names(self) -> list[str]:
        names = ("a", "b", "c", "bad", "d" * 30)
        count = self._rng.choice((1, 1, 2, 2, 3, 3, 3, 0))
        return [self._prefix + name for name in self._rng.choices(names, k=count)]

    def _mutation(self, key: int, version: int, asked: tuple[object, ...], **fields: Any) -> Ask:
        client_id = self._client_id()
        validate_only = key != DELETE_TOPICS and self._rng.random() < 0.1
        if key != DELETE_TOPICS:
            fields["validate_only"] = validate_only
        frame = request(key, version, client=client_id, **fields)
        return self._ask(frame, client_id=client_id, topics=asked, validate_only=validate_only)

    # ------------------------------------------------------------------ logins

    def login(self, user: str, *, first: bool = True) -> list[Ask]:
        """A handshake and its tokens; bare tokens only for a first login, as Kafka has it."""
        rng = self._rng
        version = rng.choice((0, 1, 1)) if first else 1
        mechanism = rng.choice(
            ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512") + ("OAUTHBEARER",) * version
        )
        tokens = _tokens(mechanism, user)
        asks = [self._ask(_request(SASL_HANDSHAKE, version, mechanism=mechanism))]
        token_version = rng.randint(0, 2)
        for token in tokens:
            known = "ANONYMOUS" if mechanism == "OAUTHBEARER" else user  # its name cannot be read
            name = known if token is tokens[-1] else None
            if version:
                frame = _request(SASL_AUTHENTICATE, token_version, auth_bytes=token)
                asks.append(self._ask(frame, user=name))
            else:
                asks.append(_bare(token, name))
        return asks


def _assigned(version: int, partitions: int) -> tuple[object, ...]:
    """A broker for each partition, as kafka-reassign-partitions writes them."""
    rows = ({"partition_index": index, "broker_ids": (1,)} for index in range(partitions))
    return parts(CREATE_TOPICS, version, "request", "CreatableReplicaAssignment", *rows)


def _bare(token: bytes, user: str | None) -> Ask:
    frame = len(token).to_bytes(4, "big") + token
    return Ask(SASL_AUTHENTICATE, 0, 0, frame, is_token=True, user=user)


def _tokens(mechanism: str, user: str) -> tuple[bytes, ...]:
    if mechanism == "PLAIN":
        return (b"\0" + user.encode() + b"\0secret",)
    if mechanism == "OAUTHBEARER":
        return (b"n,,\x01auth=Bearer abc\x01\x01",)
    return b"n,,n=" + user.encode() + b",r=nonce", b"c=biws,r=nonce,p=cHJvb2Y="


FETCHES = frozenset({FETCH, SHARE_FETCH})
