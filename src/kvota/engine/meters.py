"""All counters, by what they count; forgotten when idle."""

from collections.abc import Callable

from kvota.engine.arithmetic import COUNTER_EXPIRES_MS, counter_expired
from kvota.engine.mutations import MutationCounter
from kvota.engine.quota_table import QuotaTable, Tags
from kvota.engine.sampled_rate import SampledRate
from kvota.engine.sanitising import tags_text
from kvota.model.quota_type import QuotaType
from kvota.model.quota_window import QuotaWindow

_DEFAULT_WINDOW = QuotaWindow()

Windows = dict[QuotaType, QuotaWindow]


class Meters:
    """Counters of bandwidth per (type, broker, tags) and of mutations per tags.

    A counter idle for more than 3600 s (strictly) counts as new. It finds that out itself at its
    next charge, so ``purge`` frees memory and moves no decision.
    Source: Kafka ``ClientQuotaManager`` sensors.
    """

    __slots__ = ("_mutations", "_rates", "_table", "_windows")

    def __init__(self, table: QuotaTable, windows: Windows) -> None:
        self._rates: dict[tuple[QuotaType, int, Tags], SampledRate] = {}
        self._mutations: dict[Tags, MutationCounter] = {}
        self._table = table
        self._windows = windows

    def __len__(self) -> int:
        return len(self._rates) + len(self._mutations)

    def window(self, quota_type: QuotaType) -> QuotaWindow:
        """The window of a type; Kafka's 11 x 1 s where none was given."""
        return self._windows.get(quota_type, _DEFAULT_WINDOW)

    def rate(self, quota_type: QuotaType, node_id: int, tags: Tags, now_ms: int) -> SampledRate:
        """The bandwidth counter of these tags at this broker; made at first use."""
        key = (quota_type, node_id, tags)
        counter = self._rates.get(key)
        if counter is None:
            counter = self._rates[key] = SampledRate(
                self.window(quota_type),
                self._table.limit(quota_type, tags),
                forget_after_ms=COUNTER_EXPIRES_MS,
                born_ms=now_ms,
            )
        return counter

    def mutations(self, tags: Tags, now_ms: int) -> MutationCounter:
        """The mutation counter of these tags; made at first use."""
        counter = self._mutations.get(tags)
        if counter is None:
            counter = self._mutations[tags] = MutationCounter(
                tags_text(tags),
                self.window(QuotaType.CONTROLLER_MUTATION),
                self._table.limit(QuotaType.CONTROLLER_MUTATION, tags),
                born_ms=now_ms,
            )
        return counter

    def configure(self, table: QuotaTable, windows: Windows) -> None:
        """Give every counter its limit and window of now; contents stay (Kafka, KIP-257)."""
        self._table = table
        self._windows = windows
        for (quota_type, _, tags), rate in self._rates.items():
            rate.configure(self.window(quota_type), table.limit(quota_type, tags))
        window = self.window(QuotaType.CONTROLLER_MUTATION)
        for tags, counter in self._mutations.items():
            counter.configure(window, table.limit(QuotaType.CONTROLLER_MUTATION, tags))

    def purge(self, now_ms: int, *, crowd: int) -> int:
        """Forget counters without a record for over 3600 s; returns how many.

        Of more than ``crowd`` counters, also those that are as good as new: clients choose their ids
        themselves, and an hour of invented ones would fill the memory. No decision depends on it
        (if the clock does not go back behind the purge).
        """
        before = len(self)
        self._keep(lambda counter: not counter_expired(counter.last_ms, now_ms))
        if len(self) > crowd:
            self._keep(lambda counter: not counter.is_as_new(now_ms))
        return before - len(self)

    def _keep(self, wanted: Callable[[SampledRate | MutationCounter], bool]) -> None:
        self._rates = {key: rate for key, rate in self._rates.items() if wanted(rate)}
        self._mutations = {tags: one for tags, one in self._mutations.items() if wanted(one)}
