"""The quota on new producer ids (KIP-936) as all connections of a gateway share it: rates, what is known, refusals."""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence, Set
from math import ceil, isfinite
from typing import NamedTuple

from kvota.engine.producer_ids import UNLIMITED_FROM, ProducerIds
from kvota.engine.refused_batches import Batch, Key, RefusedBatches
from kvota.engine.saved_producer_ids import SavedRate, SavedRates
from kvota.model.client_quotas import PRODUCER_IDS_KEY, ClientQuotas, KeyChange
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.session.id_decisions import Asker, Deciding, Decisions
from kvota.wire.error_code import ErrorCode
from kvota.wire.producer_ids import BatchProducer, Place
from kvota.wire.steps import STEP_PARTS

# What a partition may be answered whose batch is refused.
REFUSALS = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
)
# Of the Java client: from then on it sends again what was answered with THROTTLING_QUOTA_EXCEEDED.
_JAVA, _JAVA_FROM = "apache-kafka-java", (2, 7)
# Looked at by one sweep: some ms.
_SWEPT_USERS, _SWEPT_REFUSALS = 2_000, 5_000


class Judgement(NamedTuple):
    """What becomes of the batches of one Produce.

    Attributes:
        refused: the partitions that do not go on.
        awaited: those of the others of which a batch was refused before, now goes on, and will be answered; None: there
            is no place to remember the refusals, so that nothing of the request must be answered.
        throttle_ms: how long the client has to be kept back, uncapped; 0: not at all.
    """

    refused: Set[Place]
    awaited: Sequence[Key] | None
    throttle_ms: int


class ProducerIdQuota:
    """Which producer ids may produce.

    Attributes:
        ids: what is known of each user's; may be replaced before there are connections.
        refused_batches: what must not be overtaken.
        refuses_with: what a refused partition is answered, one of ``REFUSALS``.
        on_first_rate: called when the first user gets a quota while nobody has one.
        connections_closed: how many, because there was no place for their refusals.
    """

    def __init__(self, ids: ProducerIds | None = None) -> None:
        self.ids = ProducerIds() if ids is None else ids  # one without users is false
        self.refused_batches = RefusedBatches()
        self.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS
        self.on_first_rate: Callable[[], object] = _nothing
        self.connections_closed = 0
        self._default: float | None = None
        self._rates: dict[str, float | None] = {}
        # Who had no rate before, until a window later.
        self._learns_until_ms: dict[str, int] = {}
        self._default_learns_until_ms = 0

    # ------------------------------------------------------------------ rates

    def replace(self, quotas: ClientQuotas, now_ms: int | None = None) -> None:
        """Other quotas are in force; the lanes of PRODUCE have to be looked up anew.

        Args:
            quotas: all of them.
            now_ms: from when on (Unix ms); None: they were in force before.
        """
        default, rates = self._default, self._rates
        self._default, self._rates = None, {}
        self._set(
            KeyChange(entity, PRODUCER_IDS_KEY, values[PRODUCER_IDS_KEY])
            for entity, values in quotas.entries().items()
            if PRODUCER_IDS_KEY in values
        )
        self._come_into_force(default, rates, now_ms)

    def change(self, changes: Iterable[KeyChange], now_ms: int | None = None) -> bool:
        """These of the quotas are others now; true where any of them is a rate of new producer ids.

        Args:
            changes: of the quotas.
            now_ms: as ``replace``.
        """
        of_ids = [change for change in changes if change.key == PRODUCER_IDS_KEY]
        if not of_ids:
            return False
        default, rates = self._default, dict(self._rates)
        any_is = self._set(of_ids)
        self._come_into_force(default, rates, now_ms)
        return any_is

    def saved_rates(self) -> SavedRates:
        """All quotas and until when running producers are learned, for ``restore``."""
        until_ms = self._learns_until_ms
        of_users: dict[str | None, SavedRate] = {
            user: SavedRate(self.rate(user), until_ms.get(user, 0))
            for user in self._rates.keys() | until_ms.keys()
        }
        if self._default is not None:
            of_users[None] = SavedRate(self._default, self._default_learns_until_ms)
        return of_users

    def restore(self, saved: SavedRates) -> None:
        """What ``saved_rates`` of the gateway before has told; call ``replace`` with what is in force now."""
        of_users = {user: one for user, one in saved.items() if user is not None}
        self._rates = {user: one.rate for user, one in of_users.items()}
        self._learns_until_ms = {
            user: one.learns_until_ms for user, one in of_users.items() if one.learns_until_ms
        }
        self._default, self._default_learns_until_ms = saved.get(None, SavedRate(None, 0))

    def _come_into_force(
        self, default_before: float | None, before: Mapping[str, float | None], now_ms: int | None
    ) -> None:
        """Whoever had no rate, and has one now, may have producers that have been running for long."""
        if self.has_rates and not _any_rate(default_before, before):
            self.on_first_rate()
        if now_ms is None:
            return
        until_ms = now_ms + self.ids.memory.layering.window_ms
        if default_before is None and self._default is not None:
            self._default_learns_until_ms = until_ms
        learning = self._learns_until_ms
        for user in [user for user, end_ms in learning.items() if end_ms <= now_ms]:
            del learning[user]
        for user in self._rates.keys() | before.keys():
            if before.get(user, default_before) is None and self.rate(user) is not None:
                learning[user] = until_ms

    def _learns(self, user: str, now_ms: int) -> bool:
        """True within a window of when a user who had no rate got one."""
        of_default = 0 if user in self._rates else self._default_learns_until_ms
        until_ms = self._learns_until_ms.get(user, of_default)
        # A clock that went back makes it no longer.
        return 0 < until_ms - now_ms <= self.ids.memory.layering.window_ms

    def _set(self, changes: Iterable[KeyChange]) -> bool:
        any_is = False
        for entity, _, value in changes:
            if entity.client_id is not None or entity.ip is not None:
                continue
            any_is = True
            rate = value if value is None else _rate(value)
            if entity.user is DEFAULT:
                self._default = rate
            elif value is None:
                self._rates.pop(str(entity.user), None)
            else:
                self._rates[str(entity.user)] = rate
        return any_is

    @property
    def has_rates(self) -> bool:
        """True where anybody has a quota."""
        return _any_rate(self._default, self._rates)

    def rate(self, user: str) -> float | None:
        """New producer ids that a user may bring per window; None: any number."""
        return self._rates.get(user, self._default)

    def deciding_entity(self, user: str) -> QuotaEntity | None:
        """Whose quota a user has; None: nobody's."""
        if user in self._rates:
            return QuotaEntity(user=user)
        return None if self._default is None else QuotaEntity(user=DEFAULT)

    def counted_rate(self, user: str) -> float | None:
        """The same; as well a number as long as any batch of the user was refused and has not come again."""
        rate = self.rate(user)
        if rate is None and user in self.refused_batches.users:
            return float(UNLIMITED_FROM)
        return rate

    # ------------------------------------------------------------------ judging

    def judge(
        self,
        asker: Asker,
        batches: Iterable[BatchProducer],
        now_us: Callable[[], int],
        note: Callable[[Decisions], object],
    ) -> Generator[None, None, Judgement]:
        """Decide about each producer id, and with it about each partition; a little at a time.

        Args:
            asker: whose request it is.
            batches: of the request.
            now_us: tells the time, Unix µs; the same one until the next step.
            note: is told of decisions before anybody else's can follow.
        """
        user, connection, enforced, awaits_answer = asker
        refused_batches = self.refused_batches
        deciding = Deciding(self.ids, asker, rate=lambda: self.rate(user), now_us=now_us, note=note)
        refused: dict[Place, None] = {}
        asked: list[tuple[Batch, Place]] = []
        keeps_unknown_back, has_room = False, True
        for number, one in enumerate(batches, 1):
            if number % STEP_PARTS == 0:
                yield from deciding.others_turn()
            producer_id = one.producer_id
            if producer_id < 0:
                continue
            batch = Batch((producer_id, *one.place), one.epoch, one.base_sequence)
            if refused_batches.keeps_back(user, batch, connection, deciding.now_ms):
                refused[one.place] = None
                keeps_unknown_back = keeps_unknown_back or not deciding.knows(producer_id)
                continue
            has_written = one.base_sequence > 0 and self._learns(user, deciding.now_ms)
            if deciding.lets_on(producer_id, has_written=has_written) or not enforced:
                asked.append((batch, one.place))
                continue
            refused[one.place] = None
            # At once: before the next step another connection may bring what comes behind it.
            if awaits_answer:
                has_room = (
                    refused_batches.refuse(user, batch, connection, deciding.now_ms) and has_room
                )
        deciding.tell()
        now_ms = deciding.now_ms
        wait_ms = self._wait_ms(user, now_ms) if keeps_unknown_back else 0
        throttle_ms = max(deciding.throttle_ms, wait_ms) if enforced else 0
        going_on = self._let_go_on(asker, asked, refused, now_ms)
        awaited = (yield from going_on) if has_room else None
        self.connections_closed += awaited is None
        return Judgement(refused.keys(), awaited, throttle_ms)

    def _wait_ms(self, user: str, now_ms: int) -> int:
        """How long a new id would be refused."""
        reading = self.ids.reading(user, now_ms)
        return 0 if reading is None else reading.throttle_ms

    def _let_go_on(
        self,
        asker: Asker,
        asked: Sequence[tuple[Batch, Place]],
        refused: Collection[Place],
        now_ms: int,
    ) -> Generator[None, None, list[Key] | None]:
        """Of batches that may go on, refuse those of refused partitions; returns the awaited ones among the others.

        None: there was no place for a refusal.
        """
        user, connection, _, awaits_answer = asker
        batches = self.refused_batches
        awaited: list[Key] = []
        if refused and not awaits_answer:
            return awaited  # nothing of the request goes on
        for number, (batch, place) in enumerate(asked, 1):
            if number % STEP_PARTS == 0:
                yield None
            if place not in refused:
                if not batches.goes_on(user, batch, connection, now_ms):
                    continue
                if awaits_answer:
                    awaited.append(batch.key)
                else:
                    batches.answered(user, batch.key, connection)
            elif not (
                batches.keeps_back(user, batch, connection, now_ms)
                or batches.refuse(user, batch, connection, now_ms)
            ):
                return None
        return awaited

    # ------------------------------------------------------------------ beside

    def refusal_code(self, software: tuple[str, str]) -> ErrorCode:
        """What this client is answered: never what it would take for the end of its batch.

        Args:
            software: name and version, as the client has told with ApiVersions.
        """
        if self.refuses_with is not ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            return self.refuses_with
        name, version = software
        numbers = version.split(".")[:2]
        is_new = (
            len(numbers) == 2
            and all(number.isdecimal() and len(number) < 9 for number in numbers)
            and tuple(map(int, numbers)) >= _JAVA_FROM
        )
        return self.refuses_with if name == _JAVA and is_new else ErrorCode.NOT_ENOUGH_REPLICAS

    def sweep(self, now_ms: int, *, share: float) -> None:
        """Forget idle users and old refusals; ``share`` of the users are looked at, those longest ago first."""
        self.ids.sweep(now_ms, at_most=min(_SWEPT_USERS, ceil(share * len(self.ids))))
        self.refused_batches.sweep(now_ms, at_most=_SWEPT_REFUSALS)


def _nothing() -> None:
    """Nobody wants to know."""


def _rate(value: float) -> float | None:
    """What Kafka takes and holds nobody back is no quota."""
    return value if isfinite(value) and value < UNLIMITED_FROM else None


def _any_rate(default: float | None, rates: Mapping[str, float | None]) -> bool:
    return default is not None or any(rate is not None for rate in rates.values())
