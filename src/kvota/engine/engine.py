"""The façade the gateway talks to."""

from collections.abc import Mapping

from kvota.engine.bandwidth import BandwidthLane
from kvota.engine.meters import Meters
from kvota.engine.mutations import MutationCounter, MutationQuota, PermissiveQuota, StrictQuota
from kvota.engine.quota_table import QuotaTable
from kvota.engine.sanitising import tags_text
from kvota.model.quota_type import QuotaType
from kvota.model.quota_window import QuotaWindow

# Clients whose lane or mutation counter is remembered between requests; a client id is the client's
# own choice, so this has to have an end. 10,000 are about 4 MB, the counters themselves apart.
_KNOWN_CLIENTS_MAX = 10_000
# More counters than this are a crowd, in which counters as good as new are not kept for an hour.
_CROWD = 20_000


class QuotaEngine:
    """Quotas in force and the counters held against them. Time always comes in.

    ``version`` grows whenever a lane or counter handed out before may be another one now: with a
    new table, new windows, or a purge that forgot something. Whoever keeps a lane compares it.
    """

    __slots__ = ("_lanes", "_meters", "_mutations_of", "_table", "_windows", "version")

    def __init__(self, table: QuotaTable, windows: Mapping[QuotaType, QuotaWindow]) -> None:
        """Types without a window have Kafka's default of 11 x 1 s."""
        self.version = 0
        self._table = table
        self._windows = dict(windows)
        self._meters = Meters(table, self._windows)
        self._lanes: dict[tuple[QuotaType, int, str, str], BandwidthLane] = {}
        self._mutations_of: dict[tuple[str, str], MutationCounter] = {}

    @property
    def table(self) -> QuotaTable:
        """The quotas in force."""
        return self._table

    def replace_table(self, table: QuotaTable) -> None:
        """Put other quotas in force; counters keep their contents, only limits are replaced."""
        self._table = table
        self._reconfigure()

    def replace_windows(self, windows: Mapping[QuotaType, QuotaWindow]) -> None:
        """Put other windows in force; a counter under another window starts anew when charged.

        (Kafka changes them by a restart, which forgets all counters.)
        """
        self._windows = dict(windows)
        self._reconfigure()

    def purge_expired(self, now_ms: int) -> int:
        """Free counters without a record for over 3600 s, in a crowd earlier; returns how many.

        No decision differs for it. ``Meters.purge`` says when it is earlier.
        """
        forgotten = self._meters.purge(now_ms, crowd=_CROWD)
        if forgotten:
            self._forget_clients()
        return forgotten

    def bandwidth(
        self, quota_type: QuotaType, node_id: int, user: str, client_id: str, now_ms: int
    ) -> BandwidthLane:
        """The lane of a client for PRODUCE or FETCH at one broker; keep it while it is not stale."""
        known = self._lanes.get((quota_type, node_id, user, client_id))
        if known is not None:
            return known
        tags = self._table.tags(quota_type, user, client_id)
        if not self._table.enabled(quota_type):
            return BandwidthLane(tags=tags_text(tags))
        rate = self._meters.rate(quota_type, node_id, tags, now_ms)
        window = self._meters.window(quota_type)
        lane = BandwidthLane(
            tags=tags_text(tags),
            limit=self._table.limit(quota_type, tags),
            samples=window.samples,
            sample_ms=window.sample_ms,
            charge=rate.charge,
            allowance=rate.allowance,
            refuse=rate.refuse,
        )
        if len(self._lanes) >= _KNOWN_CLIENTS_MAX:
            self._lanes.clear()
        self._lanes[quota_type, node_id, user, client_id] = lane
        return lane

    def mutations(self, user: str, client_id: str, *, strict: bool, now_ms: int) -> MutationQuota:
        """The mutation quota for one request; ``strict`` by the request's version (KIP-599)."""
        counter = self._mutations_of.get((user, client_id))
        if counter is None:
            tags = self._table.tags(QuotaType.CONTROLLER_MUTATION, user, client_id)
            if not self._table.enabled(QuotaType.CONTROLLER_MUTATION):
                return MutationQuota(tags_text(tags))
            counter = self._meters.mutations(tags, now_ms)
            if len(self._mutations_of) >= _KNOWN_CLIENTS_MAX:
                self._mutations_of.clear()
            self._mutations_of[user, client_id] = counter
        return StrictQuota(counter) if strict else PermissiveQuota(counter)

    def _reconfigure(self) -> None:
        self._meters.configure(self._table, self._windows)
        self._forget_clients()

    def _forget_clients(self) -> None:
        self._lanes.clear()
        self._mutations_of.clear()
        self.version += 1
