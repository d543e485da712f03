"""A record that looks like a gateway's, made by driving the engine itself over seeded random traffic."""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import Lane, QuotaEngine
from kvota.engine.debt_bucket import MUST_WAIT
from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.event import Outcome
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import CLUSTER_NODE_ID, Algorithm, QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.model.strict_mutations import STRICT_FROM
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, tags_text

START_US = 1_900_000_000_000_000
NODES = (0, 1, 2)
USERS = ("alice", "bob", "team a", "ANONYMOUS")
CLIENT_IDS = ("app-1", "app,2=x", "", "größe", "app-3")

# api key, lowest and highest version used
_PRODUCE, _FETCH = (0, 3, 13), (1, 4, 17)
_MUTATIONS = ((19, 4, 7), (20, 3, 6), (37, 1, 3))

# Who waits behind so many others has given up.
_WAITING_MAX = 40

EventRow = tuple[object, ...]

_EVERYBODY = QuotaEntity(user=DEFAULT)
# The tags of a counter of its own.
_BOB = {USER_TAG: "bob", CLIENT_ID_TAG: "app-1"}


@dataclass(frozen=True, slots=True)
class _Charge:
    """What one row says beyond the request; in the order of the table where it is used."""

    quota_type: QuotaType
    node_id: int
    tags: str
    value: float
    limit: float | None
    samples: int
    sample_ms: int
    algorithm: Algorithm
    outcome: Outcome
    throttle_ms: int


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A Produce that waits for its turn."""

    node_id: int
    user: str
    client_id: str
    version: int
    value: float


def quotas_at_start() -> ConfiguredQuotas:
    """Quotas of several kinds, tight enough that a good part of the traffic is throttled."""
    return ConfiguredQuotas(
        {
            QuotaEntity(user=DEFAULT): {
                QuotaType.PRODUCE: 40_000.0,
                QuotaType.FETCH: 30_000.0,
                QuotaType.CONTROLLER_MUTATION: 8.0,
            },
            QuotaEntity(user="alice"): {QuotaType.PRODUCE: 30_000.0},
            QuotaEntity(user="bob", client_id="app-1"): {
                QuotaType.FETCH: 8_000.0,
                QuotaType.CONTROLLER_MUTATION: 2.5,
            },
            QuotaEntity(client_id="app-3"): {QuotaType.PRODUCE: 20_000.0},
        }
    )


class RecordedTraffic:
    """One run of a gateway: rows of the events table in the order of ``seq``.

    In the course of a run quotas are changed, removed and set again, windows, bursts and algorithms are
    replaced, the clock steps back, and nothing happens for over an hour. Some of what a Produce was
    charged is given back; where quotas are enforced it waits for its turn, and may give up.
    """

    def __init__(
        self,
        seed: int,
        *,
        gateway: str = "gateway-1",
        run_id: str = "run-1",
        enforced: bool = False,
        start_us: int = START_US,
    ) -> None:
        self._random = random.Random(seed)
        self._gateway = gateway
        self._run_id = run_id
        self._enforced = enforced
        self._now_us = start_us
        self._seq = 0
        self._engine = QuotaEngine(DefaultQuotaCallback(quotas_at_start()), {})
        self._waiting: deque[_Waiting] = deque(maxlen=_WAITING_MAX)  # a client gives up, too

    def rows(self, count: int) -> Iterator[EventRow]:
        """At least ``count`` rows, in the order of ``EVENT_COLUMNS``."""
        last = self._seq + count
        changes = [self._seq + count * (i + 1) // 10 for i in range(9)]
        while self._seq < last:
            if changes and self._seq >= changes[0]:
                self._change(9 - len(changes))
                changes.pop(0)
            self._let_time_pass()
            yield from self._turn()
            yield from self._request()

    def _let_time_pass(self) -> None:
        dice = self._random.random()
        if dice < 0.0005:
            self._now_us += 3_600_000_000 + self._random.randrange(-2_000_000, 60_000_000)
        elif dice < 0.002:
            self._now_us -= self._random.randrange(1, 4_000_000)
        elif dice < 0.005:
            self._now_us += self._random.randrange(500_000, 15_000_000)
        else:
            self._now_us += self._random.randrange(40_000)
        if dice > 0.999:
            self._engine.purge_expired(self._now_us // 1000)

    def _change(self, step: int) -> None:
        """Nine changes in the course of a run."""
        engine, everybody, alice = self._engine, _EVERYBODY, QuotaEntity(user="alice")
        mutation = QuotaType.CONTROLLER_MUTATION
        if step == 0:
            engine.apply([QuotaChange(everybody, QuotaType.PRODUCE, 25_000.0)])
            engine.replace_countings({}, {QuotaType.PRODUCE: BucketSettings()})
        elif step == 1:  # removed while others of the kind stay: recorded, unlimited
            engine.apply([QuotaChange(everybody, mutation, None)])
        elif step == 2:
            engine.apply([QuotaChange(everybody, mutation, 6.0)])
            buckets = {QuotaType.FETCH: BucketSettings(burst_ms=700)}
            engine.replace_countings({}, buckets)
        elif step == 3:  # the last of a type: nothing is recorded any more
            engine.replace_quotas(ConfiguredQuotas({alice: {QuotaType.PRODUCE: 30_000.0}}))
        elif step == 4:
            engine.replace_quotas(quotas_at_start())
        elif step == 5:
            windows = {QuotaType.PRODUCE: QuotaWindow(3, 700), mutation: QuotaWindow(5, 2000)}
            buckets = {QuotaType.FETCH: BucketSettings(burst_ms=2_500)}
            engine.replace_countings(windows, buckets)
        elif step == 6:  # a kind that did not exist: other counters for everybody
            engine.apply([QuotaChange(QuotaEntity(client_id=DEFAULT), QuotaType.FETCH, 50_000.0)])
        elif step == 7:  # below the floors: blocked, with and without a factor
            engine.apply([QuotaChange(alice, QuotaType.PRODUCE, 0.0125)])
            engine.set_factor(QuotaType.FETCH, 0.0, node_id=NODES[1])
            engine.set_factor(mutation, 0.0, tags=tags_text(_BOB))
        else:
            buckets = {QuotaType.PRODUCE: BucketSettings(burst_ms=300, debt_max_ms=4_000)}
            engine.replace_countings({}, buckets)
            engine.set_factor(QuotaType.FETCH, 0.25)
            engine.set_factor(mutation, 1.0, tags=tags_text(_BOB))

    def _request(self) -> Iterator[EventRow]:
        user = self._random.choice(USERS)
        client_id = self._random.choice(CLIENT_IDS)
        kind = self._random.random()
        if kind < 0.4:
            yield from self._bandwidth(QuotaType.PRODUCE, _PRODUCE, user, client_id)
        elif kind < 0.75:
            yield from self._bandwidth(QuotaType.FETCH, _FETCH, user, client_id)
        else:
            yield from self._mutation(user, client_id)

    def _turn(self) -> Iterator[EventRow]:
        """The Produce that waits for the longest time goes on, if its turn has come."""
        if not self._waiting:
            return
        waiting = self._waiting[0]
        lane = self._lane(QuotaType.PRODUCE, waiting.node_id, waiting.user, waiting.client_id)
        now_ms = self._now_us // 1000
        if lane.turn_in_ms(now_ms) > 0:
            self._waiting.rotate(-1)
            return
        self._waiting.popleft()
        charge = _charge(lane, waiting.value, lane.admit(waiting.value, now_ms))
        yield self._row(charge, (_PRODUCE[0], waiting.version), waiting.user, waiting.client_id)

    def _bandwidth(
        self, quota_type: QuotaType, api: tuple[int, int, int], user: str, client_id: str
    ) -> Iterator[EventRow]:
        node_id, now_ms = self._random.choice(NODES), self._now_us // 1000
        lane = self._lane(quota_type, node_id, user, client_id)
        value = int(self._random.paretovariate(1.1) * 20_000) % 5_000_000
        version = self._random.randint(api[1], api[2])
        # What a Fetch was answered cannot wait any more.
        decide = lane.charge if quota_type is QuotaType.PRODUCE else lane.admit
        throttle_ms = decide(value, now_ms)
        if throttle_ms == MUST_WAIT:
            rejected = _charge(lane, value, lane.reject(value, now_ms), Outcome.REJECTED)
            yield self._row(rejected, (api[0], version), user, client_id)
            if self._enforced:
                self._waiting.append(_Waiting(node_id, user, client_id, version, value))
            return
        charge = _charge(lane, value, throttle_ms)
        yield self._row(charge, (api[0], version), user, client_id)
        if quota_type is QuotaType.PRODUCE and self._random.random() < 0.03:  # it ended early
            lane.admit(-value // 3, now_ms)
            given_back = _charge(lane, -value // 3, 0)
            yield self._row(given_back, (api[0], version), user, client_id)
        if self._enforced and quota_type is QuotaType.FETCH and lane.allowance(now_ms) < value:
            rejected = _charge(lane, value, lane.refuse(value, now_ms), Outcome.REJECTED)
            yield self._row(rejected, (api[0], version), user, client_id)

    def _lane(self, quota_type: QuotaType, node_id: int, user: str, client_id: str) -> Lane:
        lane = self._engine.lane(quota_type, node_id, user, client_id, self._now_us // 1000)
        assert lane is not None, "the default callback answers at once"
        return lane

    def _mutation(self, user: str, client_id: str) -> Iterator[EventRow]:
        api_key, lowest, highest = self._random.choice(_MUTATIONS)
        version = self._random.randint(lowest, highest)
        strict = version >= STRICT_FROM[api_key]
        quota = self._engine.mutations(user, client_id, strict=strict, now_ms=self._now_us // 1000)
        for _ in range(self._random.randint(1, 4)):
            value = self._random.randint(0, 40)
            decision = quota.charge(value, self._now_us // 1000)
            charge = _Charge(
                QuotaType.CONTROLLER_MUTATION,
                CLUSTER_NODE_ID,
                quota.tags,
                value,
                quota.limit,
                quota.samples,
                quota.sample_ms,
                Algorithm.TOKEN_BUCKET,
                decision.outcome,
                decision.throttle_ms,
            )
            yield self._row(charge, (api_key, version), user, client_id)
            if decision.outcome is not Outcome.REJECTED and self._random.random() < 0.05:
                self._now_us += self._random.randrange(5_000)
                quota.give_back(value or 1, self._now_us // 1000)
                back = replace(charge, value=-(value or 1), outcome=Outcome.ADMITTED, throttle_ms=0)
                yield self._row(back, (api_key, version), user, client_id)

    def _row(self, charge: _Charge, api: tuple[int, int], user: str, client_id: str) -> EventRow:
        seq, self._seq = self._seq, self._seq + 1
        return (
            self._now_us,
            seq,
            self._gateway,
            self._run_id,
            charge.node_id,
            charge.quota_type.value,
            hash_of_connection(user, client_id),
            user,
            client_id,
            charge.tags,
            *api,
            float(charge.value),
            charge.limit,
            charge.samples,
            charge.sample_ms,
            charge.algorithm.value,
            charge.outcome.value,
            self._enforced,
            charge.throttle_ms,
            None if seq % 17 == 0 else 0,
            None,
            None,
        )


def hash_of_connection(user: str, client_id: str) -> int:
    """A connection per user and client id."""
    return USERS.index(user) * len(CLIENT_IDS) + CLIENT_IDS.index(client_id)


def _charge(lane: Lane, value: float, throttle_ms: int, outcome: Outcome | None = None) -> _Charge:
    """What the row of a charge on this lane says; the outcome follows from the throttle if not given."""
    if outcome is None:
        outcome = Outcome.THROTTLED if throttle_ms > 0 else Outcome.ADMITTED
    return _Charge(
        lane.quota_type,
        lane.node_id,
        lane.tags,
        value,
        lane.limit,
        lane.samples,
        lane.sample_ms,
        lane.algorithm,
        outcome,
        throttle_ms,
    )
