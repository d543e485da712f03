"""What one connection does with one API version: decided on first use, then looked up."""

from collections.abc import Callable
from enum import IntEnum

from kvota.engine import Lane
from kvota.model.decision_sink import ChargeMemo
from kvota.model.errors import ProtocolError
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.model.strict_mutations import STRICT_FROM
from kvota.session.api_counts import ApiCount
from kvota.wire import fetch
from kvota.wire.apis import (
    API_VERSIONS,
    APIS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    PRODUCE,
    SHARE_FETCH,
    Treatment,
)
from kvota.wire.headers import is_flexible
from kvota.wire.producer_ids import BATCHES_FROM

QUOTA_TYPE_OF_KEY = {
    PRODUCE: QuotaType.PRODUCE,
    FETCH: QuotaType.FETCH,
    SHARE_FETCH: QuotaType.FETCH,
    CREATE_TOPICS: QuotaType.CONTROLLER_MUTATION,
    DELETE_TOPICS: QuotaType.CONTROLLER_MUTATION,
    CREATE_PARTITIONS: QuotaType.CONTROLLER_MUTATION,
}
_NO_TRANSACTION_COMPACT = b"\x00\x00"  # no tags in the header, null transactional id
_NO_TRANSACTION = b"\xff\xff"
# Their answers may be so large that they go on while they arrive.
_HAS_ENDPOINTS = frozenset({PRODUCE, FETCH, SHARE_FETCH})
# Lanes' versions are 0 or more.
_OUTDATED = -1
_NO_FIELD = b"none"  # Produce v0-2 begin with acks: two bytes never equal these four


class Kind(IntEnum):
    """How a request is treated."""

    PASS = 0
    PRODUCE = 1  # charged on its bytes
    FETCH = 2
    EXCHANGE = 3  # rare: needs the whole frame (kvota.session.exchanges)
    CHARGED_PRODUCE = 4  # charged on further quotas, too (kvota.session.produce_quota)
    COUNTED_PRODUCE = 5  # its producer ids are counted (kvota.session.counted_produce)
    INIT_PRODUCER_ID = 6  # counted, and passed on (kvota.session.init_producer_ids)
    SHARE_FETCH = 7


class Route:
    """One (key, version) on one connection, with the charge its client id leads to.

    Mutable and slotted: the hot path reads a dozen of these a microsecond.
    """

    __slots__ = (
        "charge",
        "client_id",
        "count",
        "enforced",
        "factor_told_ms_max",
        "flexible",
        "has_endpoints",
        "ids_rate",
        "is_of_transactions",
        "is_permissive",
        "key",
        "kind",
        "lane",
        "lane_moves",
        "lane_version",
        "max_bytes_offset",
        "memo",
        "mute_ms_max",
        "no_transaction",
        "size_max",
        "version",
    )

    def __init__(  # noqa: PLR0913  (all by name, made in one place)
        self,
        key: int,
        version: int,
        *,
        kind: Kind,
        size_max: int,
        mute_ms_max: int,
        factor_told_ms_max: int,
        count: ApiCount,
    ) -> None:
        api = APIS.get(key)
        if api is None:
            msg = f"API key {key} is none that clients use"
            raise ProtocolError(msg, "unknown_api")
        lowest, highest = api.versions
        # An ApiVersions request newer than ours is answered, every other one was never offered.
        if not lowest <= version <= highest and key != API_VERSIONS:
            msg = f"{api.name} v{version} is outside the offered versions {lowest}-{highest}"
            raise ProtocolError(msg, "unknown_api")
        self.key = key
        self.version = version
        self.count = count
        self.flexible = is_flexible(key, version)
        self.size_max = min(api.request_bytes_max, size_max)
        self.kind = int(kind)  # a plain int: the hot path compares it
        self.is_of_transactions = api.treatment is Treatment.COUNTED
        self.has_endpoints = key in _HAS_ENDPOINTS and version >= api.addresses_from
        # A topic mutation that is carried out whatever its quota says; its client waits afterwards.
        self.is_permissive = version < STRICT_FROM.get(key, 0)
        # Counted from behind the client id; flexible headers have one more byte there.
        self.max_bytes_offset = -1
        if key == FETCH and fetch.max_bytes_offset(version) >= 0:
            self.max_bytes_offset = fetch.max_bytes_offset(version) + self.flexible
        if key == PRODUCE and version < 3:
            self.no_transaction = _NO_FIELD
        else:
            self.no_transaction = _NO_TRANSACTION_COMPACT if self.flexible else _NO_TRANSACTION
        self.mute_ms_max = mute_ms_max
        self.factor_told_ms_max = factor_told_ms_max
        # New producer ids per window; None: they are not counted.
        self.ids_rate: float | None = None
        self.enforced = False  # shadow mode: nobody is held back
        self.client_id: bytes | None = None  # whose lane this is; None: nobody's yet
        self.lane: Lane
        self.lane_version = self.lane_moves = _OUTDATED
        self.charge: Callable[[float, int], int]  # the lane's own
        self.memo: ChargeMemo  # of that client's rows

    @property
    def is_outdated(self) -> bool:
        """True when the lane may be another one now."""
        return self.client_id is None or self.lane_version != self.lane.version

    def answered_ms(self, memo: ChargeMemo, throttle_ms: int, upstream_ms: int) -> int:
        """What the client is told: no more than may be over soon, where that can be.

        A Java client keeps to what it was told, over reconnects too, and a limit may be raised meanwhile:
        so under ``token_bucket`` it is never more than a mute without a pause, and while a factor lowers
        the limit no more than ``factor_told_ms_max``. ``memo`` says how it was charged; the lane may count
        otherwise by now.
        """
        told_ms = throttle_ms
        if memo.algorithm is Algorithm.TOKEN_BUCKET:
            told_ms = min(told_ms, self.mute_ms_max)
        if self.lane.factor < 1.0:
            told_ms = min(told_ms, self.factor_told_ms_max)
        return max(told_ms, upstream_ms)

    def count_ids(self, rate: float | None) -> None:
        """Look at the producer ids in its requests from now on, or no longer (None)."""
        if self.is_of_transactions:
            self.kind = int(Kind.PASS if rate is None else Kind.EXCHANGE)
            return
        if self.key != PRODUCE or self.version < BATCHES_FROM:
            return
        self.ids_rate = rate
        if self.kind in {Kind.PRODUCE, Kind.COUNTED_PRODUCE}:
            self.kind = int(Kind.PRODUCE if rate is None else Kind.COUNTED_PRODUCE)

    def forget_lane(self) -> None:
        """The next charge looks its counter up anew."""
        self.lane_version = self.lane_moves = _OUTDATED

    def follow_lane(self, client_id: bytes | bytearray) -> bool:
        """Charge by what the last client's lane says now; false: nothing has changed for one whose lane it is not.

        A limit that a factor lowers is another one again and again, and leads nobody elsewhere.
        """
        if client_id != self.client_id:
            return False
        lane = self.lane
        if lane.moves != self.lane_moves:
            return False
        self.lane_version = lane.version
        self.charge = lane.admit if lane.quota_type is QuotaType.FETCH else lane.charge
        self.memo = self.memo.counted_by(lane.limit, lane.samples, lane.sample_ms, lane.algorithm)
        return True

    def use(
        self, lane: Lane, client_id: bytes, *, user: str, connection: int, enforced: bool
    ) -> None:
        """Charge this client's requests on this lane from now on, and make their memo."""
        self.lane_version, self.lane_moves = lane.version, lane.moves
        self.enforced = enforced
        self.client_id = client_id
        name = client_id.decode("utf-8", "replace")
        self._remember(lane, user=user, connection=connection, client_id=name)

    def use_last(self) -> None:
        """Charge on the last client's counter as it is now; the next charge looks it up anew."""
        self.forget_lane()
        memo = self.memo
        self._remember(
            self.lane, user=memo.user, connection=memo.connection, client_id=memo.client_id
        )

    def _remember(self, lane: Lane, *, user: str, connection: int, client_id: str) -> None:
        self.lane = lane
        # An answer that is here cannot wait for a turn.
        self.charge = lane.admit if lane.quota_type is QuotaType.FETCH else lane.charge
        self.memo = ChargeMemo(
            node_id=lane.node_id,
            quota_type=lane.quota_type,
            connection=connection,
            user=user,
            client_id=client_id,
            tags=lane.tags,
            api_key=self.key,
            api_version=self.version,
            limit=lane.limit,
            samples=lane.samples,
            sample_ms=lane.sample_ms,
            algorithm=lane.algorithm,
            enforced=self.enforced,
        )
