"""What one connection does with one API version: decided on first use, then looked up."""

from collections.abc import Callable
from enum import IntEnum

from kvota.engine import Lane, QuotaEngine
from kvota.model.decision_sink import ChargeMemo
from kvota.model.errors import ProtocolError
from kvota.model.quota_type import QuotaType
from kvota.wire import fetch
from kvota.wire.apis import (
    API_VERSIONS,
    APIS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Addresses,
)
from kvota.wire.headers import is_flexible

QUOTA_TYPE_OF_KEY = {
    PRODUCE: QuotaType.PRODUCE,
    FETCH: QuotaType.FETCH,
    CREATE_TOPICS: QuotaType.CONTROLLER_MUTATION,
    DELETE_TOPICS: QuotaType.CONTROLLER_MUTATION,
    CREATE_PARTITIONS: QuotaType.CONTROLLER_MUTATION,
}
# Read whole on the way up: what they ask decides what is forwarded, or who the client is.
WHOLE_KEYS = frozenset(
    {
        CREATE_TOPICS,
        DELETE_TOPICS,
        CREATE_PARTITIONS,
        SASL_HANDSHAKE,
        API_VERSIONS,
        SASL_AUTHENTICATE,
    }
)

_NO_TRANSACTION_COMPACT = b"\x00\x00"  # no tags in the header, null transactional id
_NO_TRANSACTION = b"\xff\xff"
_NO_FIELD = b"none"  # Produce v0-2 begin with acks: two bytes never equal these four


class Kind(IntEnum):
    """How a request is treated."""

    PASS = 0
    PRODUCE = 1
    FETCH = 2
    REWRITE = 3
    WHOLE = 4  # rare: needs the whole frame


class Route:
    """One (key, version) on one connection, with the charge its client id leads to.

    Mutable and slotted: the hot path reads a dozen of these a microsecond.
    """

    __slots__ = (
        "allowance",
        "answer_bytes",
        "answered_us",
        "charge",
        "client_id",
        "enforced",
        "expected_bytes",
        "flexible",
        "has_endpoints",
        "key",
        "kind",
        "lane",
        "lane_version",
        "max_bytes_offset",
        "memo",
        "no_transaction",
        "refuse",
        "refused_us",
        "size_max",
        "version",
        "window_bytes",
        "window_ms",
    )

    def __init__(self, key: int, version: int, *, enforced: bool, size_max: int) -> None:
        api = APIS.get(key)
        if api is None:
            msg = f"API key {key} is none that clients use"
            raise ProtocolError(msg)
        lowest, highest = api.versions
        # An ApiVersions request newer than ours is answered, every other one was never offered.
        if not lowest <= version <= highest and key != API_VERSIONS:
            msg = f"{api.name} v{version} is outside the offered versions {lowest}-{highest}"
            raise ProtocolError(msg)
        self.key = key
        self.version = version
        self.flexible = is_flexible(key, version)
        self.size_max = min(api.request_bytes_max, size_max)
        self.kind = int(_kind(key))  # a plain int: the hot path compares it
        self.has_endpoints = (key == PRODUCE and version >= 10) or (key == FETCH and version >= 16)
        # Counted from behind the client id; flexible headers have one more byte there.
        self.max_bytes_offset = -1
        if key == FETCH and fetch.max_bytes_offset(version) >= 0:
            self.max_bytes_offset = fetch.max_bytes_offset(version) + self.flexible
        if key == PRODUCE and version < 3:
            self.no_transaction = _NO_FIELD
        else:
            self.no_transaction = _NO_TRANSACTION_COMPACT if self.flexible else _NO_TRANSACTION
        self.enforced = enforced
        # No lane yet: versions begin at 0, so the first request asks for one.
        self.lane = _NO_LANE
        self.lane_version = -1
        self.client_id: bytes | bytearray | None = None
        self.charge: Callable[[float, int], int] = _never_charged
        self.allowance: Callable[[int], int] = _never_allowed
        self.refuse: Callable[[float, int], int] = _never_charged
        # What an empty window takes, and how long it is as Kafka's formula sees it.
        self.window_bytes = 0
        self.window_ms = 0
        # Fetch: the last answer, how large the next one is likely to be, and the answer behind which a
        # Fetch was refused last.
        self.answer_bytes = 0
        self.answered_us = 0
        self.expected_bytes = 0
        self.refused_us = 0
        self.memo: ChargeMemo | None = None

    def resolve(
        self,
        engine: QuotaEngine,
        client_id: bytes | bytearray,
        *,
        user: str,
        node_id: int,
        connection: int,
        now_ms: int,
    ) -> None:
        """Look up what this client's Produce or Fetch requests are charged on, and make their memo."""
        quota_type = QuotaType.PRODUCE if self.kind == Kind.PRODUCE else QuotaType.FETCH
        name = client_id.decode("utf-8", "replace")
        lane = engine.lane(quota_type, node_id, user, name, now_ms)
        assert lane is not None, "only callbacks that answer at once are used so far"
        self.lane = lane
        self.lane_version = lane.version
        self.charge = lane.charge
        self.allowance = lane.allowance
        self.refuse = lane.refuse
        self.window_bytes = lane.window_bytes
        self.window_ms = lane.window_ms
        self.client_id = bytes(client_id)
        self.memo = ChargeMemo(
            node_id=node_id,
            quota_type=quota_type,
            connection=connection,
            user=user,
            client_id=name,
            tags=lane.tags,
            api_key=self.key,
            api_version=self.version,
            limit=lane.limit,
            samples=lane.samples,
            sample_ms=lane.sample_ms,
            enforced=self.enforced,
        )


def _kind(key: int) -> Kind:
    if key == PRODUCE:
        return Kind.PRODUCE
    if key == FETCH:
        return Kind.FETCH
    if key in WHOLE_KEYS:
        return Kind.WHOLE
    addresses = APIS[key].addresses
    if addresses in {
        Addresses.METADATA,
        Addresses.FIND_COORDINATOR,
        Addresses.DESCRIBE_CLUSTER,
        Addresses.DESCRIBE_CONFIGS,
    }:
        return Kind.REWRITE
    return Kind.PASS


_NO_LANE = Lane(QuotaType.PRODUCE, -1, {})


def _never_charged(_value: float, _now_ms: int) -> int:
    return 0


def _never_allowed(_now_ms: int) -> int:
    return 0
