"""The quota on new producer ids (KIP-936) as all connections of a gateway share it: rates, what is known, refusals."""

from collections.abc import Callable, Collection, Generator, Iterable, Sequence, Set
from math import ceil, isfinite
from typing import NamedTuple

from kvota.engine.arithmetic import unit_ms
from kvota.engine.producer_ids import NEW, UNLIMITED_FROM, ProducerIds
from kvota.engine.refused_batches import Batch, Key, RefusedBatches
from kvota.model.client_quotas import PRODUCER_IDS_KEY, ClientQuotas, KeyChange
from kvota.model.decision_sink import ChargeMemo
from kvota.model.quota_entity import DEFAULT
from kvota.model.quota_type import CLUSTER_NODE_ID, Algorithm, QuotaType
from kvota.model.tags import USER_TAG, tags_text
from kvota.wire.apis import PRODUCE
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


class Asker(NamedTuple):
    """On whose behalf batches are judged.

    Attributes:
        user: the authenticated name.
        connection: number of the client's connection, 1 or more.
        enforced: false in shadow mode: new ids are counted, and none is refused.
        awaits_answer: its acks are not 0. Who awaits none sends nothing again, and takes no answer for another one's:
            nothing has to be kept back behind what is refused.
    """

    user: str
    connection: int
    enforced: bool
    awaits_answer: bool


class Judgement(NamedTuple):
    """What becomes of the batches of one Produce.

    Attributes:
        new: how many ids have cost a token.
        over: how many ids are over the quota; in shadow mode they go on.
        over_ms: for how long they are refused, the longest; 0: none is.
        refused: the partitions that do not go on.
        awaited: those of the others of which a batch was refused before, now goes on, and will be answered; None: there
            is no place to remember the refusals, so that nothing of the request must be answered.
        throttle_ms: how long the client has to be kept back, uncapped; 0: not at all.
    """

    new: int
    over: int
    over_ms: int
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

    # ------------------------------------------------------------------ rates

    def replace(self, quotas: ClientQuotas) -> None:
        """Other quotas are in force; the lanes of PRODUCE have to be looked up anew."""
        had_rates = self.has_rates
        self._default = None
        self._rates.clear()
        self._set(
            KeyChange(entity, PRODUCER_IDS_KEY, values[PRODUCER_IDS_KEY])
            for entity, values in quotas.entries().items()
            if PRODUCER_IDS_KEY in values
        )
        if self.has_rates and not had_rates:
            self.on_first_rate()

    def change(self, changes: Iterable[KeyChange]) -> bool:
        """These of the quotas are others now; true where any of them is a rate of new producer ids."""
        had_rates = self.has_rates
        any_is = self._set(changes)
        if self.has_rates and not had_rates:
            self.on_first_rate()
        return any_is

    def _set(self, changes: Iterable[KeyChange]) -> bool:
        any_is = False
        for entity, key, value in changes:
            if key != PRODUCER_IDS_KEY or entity.client_id is not None or entity.ip is not None:
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
        return self._default is not None or any(rate is not None for rate in self._rates.values())

    def rate(self, user: str) -> float | None:
        """New producer ids that a user may bring per window; None: any number."""
        return self._rates.get(user, self._default)

    def counted_rate(self, user: str) -> float | None:
        """The same; as well a number as long as any batch of the user was refused and has not come again."""
        rate = self.rate(user)
        if rate is None and user in self.refused_batches.users:
            return float(UNLIMITED_FROM)
        return rate

    # ------------------------------------------------------------------ judging

    def judge(
        self, asker: Asker, batches: Iterable[BatchProducer], now_ms: int
    ) -> Generator[None, None, Judgement]:
        """Decide about each producer id, and with it about each partition; a little at a time."""
        (user, _, enforced, awaits_answer), rate = asker, self.rate(asker.user)
        refused_batches = self.refused_batches
        answers: dict[int, int] = {}
        refused: dict[Place, None] = {}
        asked: list[tuple[Batch, Place]] = []
        keeps_unknown_back, has_room, new, over, over_ms = False, True, 0, 0, 0
        for number, one in enumerate(batches, 1):
            if number % STEP_PARTS == 0:
                yield None
            producer_id = one.producer_id
            if producer_id < 0:
                continue
            batch = Batch((producer_id, *one.place), one.epoch, one.base_sequence)
            if refused_batches.keeps_back(user, batch):
                refused[one.place] = None
                if rate is not None and not self.ids.knows(user, rate, producer_id, now_ms):
                    keeps_unknown_back = True
                continue
            answer = answers.get(producer_id)
            if answer is None:
                answer = answers[producer_id] = self.ids.admit(user, rate, producer_id, now_ms)
                new, over = new + (answer == NEW), over + (answer > 0)
                over_ms = max(over_ms, answer)
            if answer <= 0 or not enforced:
                asked.append((batch, one.place))
                continue
            refused[one.place] = None
            # At once: before the next step another connection may bring what comes behind it.
            if awaits_answer:
                has_room = refused_batches.refuse(user, batch, now_ms) and has_room
        throttle_ms = 0
        if enforced:
            throttle_ms = max(over_ms, self._wait_ms(user, now_ms) if keeps_unknown_back else 0)
        going_on = self._let_go_on(asker, asked, refused, now_ms)
        awaited = (yield from going_on) if has_room else None
        self.connections_closed += awaited is None
        return Judgement(new, over, over_ms, refused.keys(), awaited, throttle_ms)

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
            elif not (batches.keeps_back(user, batch) or batches.refuse(user, batch, now_ms)):
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

    def new_memo(
        self, asker: Asker, *, client_id: str, api_version: int, api_key: int = PRODUCE
    ) -> ChargeMemo:
        """The columns of a row on behalf of this user."""
        rate, window_ms = self.rate(asker.user), self.ids.memory.layering.window_ms
        limit = None if rate is None else rate * 1000.0 / window_ms
        burst_ms = window_ms
        if limit:
            burst_ms = max(window_ms, ceil(unit_ms(limit)))
        return ChargeMemo(
            node_id=CLUSTER_NODE_ID,
            quota_type=QuotaType.PRODUCER_ID,
            connection=asker.connection,
            user=asker.user,
            client_id=client_id,
            tags=tags_text({USER_TAG: asker.user}),
            api_key=api_key,
            api_version=api_version,
            limit=limit,
            samples=1,
            sample_ms=burst_ms,
            algorithm=Algorithm.TOKEN_BUCKET,
            enforced=asker.enforced,
        )


def _nothing() -> None:
    """Nobody wants to know."""


def _rate(value: float) -> float | None:
    """What Kafka takes and holds nobody back is no quota."""
    return value if isfinite(value) and value < UNLIMITED_FROM else None
