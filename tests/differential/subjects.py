"""kvota's side of the comparison: the same operations, answered by the engine."""

from collections.abc import Callable

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import Lane, QuotaEngine, QuotaType, QuotaWindow, SampledRate, TokenBucket
from kvota.engine.arithmetic import COUNTER_EXPIRES_MS, UNLIMITED
from kvota.engine.bucket_counter import BucketCounter
from kvota.engine.counting import Counting
from kvota.engine.mutations import MutationQuota, PermissiveQuota, StrictQuota
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.event import Outcome
from kvota.model.quota_entity import DEFAULT, EntityName, QuotaEntity
from kvota.model.quota_type import CLUSTER_NODE_ID
from kvota.model.tags import sanitise

Answer = list[str | int | float | bool]
Subject = Callable[[list[str]], Answer]

_OK: Answer = ["ok"]
_NODE_ID = 1


def _number(text: str) -> float:
    """Whole numbers as int, as the gateway gives bytes: they take the engine's fast way."""
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _limit(text: str) -> float | None:
    return None if text == "none" else float(text)


def _window(samples: str, sample_ms: str) -> QuotaWindow:
    return QuotaWindow(int(samples), int(sample_ms))


class TokenBucketSubject:
    def __init__(self) -> None:
        self.bucket = TokenBucket(QuotaWindow())

    def __call__(self, op: list[str]) -> Answer:
        match op:
            case ["new", samples, sample_ms, limit]:
                self.bucket = TokenBucket(_window(samples, sample_ms), _limit(limit))
            case ["configure", samples, sample_ms, limit]:
                self.bucket.configure(_window(samples, sample_ms), _limit(limit))
            case ["record", value, t]:
                self.bucket.record(_number(value), int(t))
            case ["measure", t]:
                return [self.bucket.measure(int(t))]
            case _:
                raise AssertionError(op)
        return _OK


class RateSubject:
    def __init__(self) -> None:
        self.rate = SampledRate(QuotaWindow())

    def __call__(self, op: list[str]) -> Answer:
        match op:
            case ["new", samples, sample_ms]:
                self.rate = SampledRate(_window(samples, sample_ms))
            case ["record", value, t]:
                self.rate.record(_number(value), int(t))
            case ["measure", t]:
                return [self.rate.measure(int(t))]
            case _:
                raise AssertionError(op)
        return _OK


class SensorSubject:
    def __init__(self) -> None:
        self.window = QuotaWindow()
        self.rate: SampledRate | None = None
        self.bucket = self._bucket_lane(None)

    def __call__(self, op: list[str]) -> Answer:
        match op:
            case ["new", kind, samples, sample_ms, limit]:
                self.window = _window(samples, sample_ms)
                self.rate = None
                self.bucket = self._bucket_lane(_limit(limit))
                if kind == "rate":
                    self.rate = SampledRate(
                        self.window, _limit(limit), forget_after_ms=COUNTER_EXPIRES_MS
                    )
            case ["limit", limit] if self.rate is not None:
                self.rate.configure(self.window, _limit(limit))
            case ["limit", limit]:
                self.bucket.configure(
                    counting=Counting.of_kafka(self.bucket.quota_type, self.window),
                    configured_limit=_limit(limit),
                )
            case ["record", value, t] if self.rate is not None:
                self.rate.record(_number(value), int(t))
            case ["record", value, t]:
                PermissiveQuota(self.bucket).give_back(-_number(value), int(t))
            case ["charge", value, t] if self.rate is not None:
                return [self.rate.charge(_number(value), int(t))]
            case ["charge", value, t]:
                return [PermissiveQuota(self.bucket).charge(_number(value), int(t)).throttle_ms]
            case ["take", value, t]:
                return [StrictQuota(self.bucket).charge(_number(value), int(t)).throttle_ms]
            case _:
                raise AssertionError(op)
        return _OK

    def _bucket_lane(self, limit: float | None) -> Lane:
        """Without a floor: Kafka has none."""
        counter = BucketCounter(self.window, limit, born_ms=0)
        lane = Lane(QuotaType.CONTROLLER_MUTATION, CLUSTER_NODE_ID, {}, counter, floor=0.0)
        lane.configure(
            counting=Counting.of_kafka(lane.quota_type, self.window), configured_limit=limit
        )
        return lane


def _entity(user: str, client: str) -> QuotaEntity:
    return QuotaEntity(user=_name(user), client_id=_name(client))


def _name(text: str) -> EntityName:
    if text == "-":
        return None
    return DEFAULT if text == "*" else text[1:]


class ClientQuotaManagerSubject:
    def __init__(self) -> None:
        self.engine = QuotaEngine(DefaultQuotaCallback(ConfiguredQuotas()), {})
        self.lanes: dict[tuple[str, str], tuple[int, Lane]] = {}

    def __call__(self, op: list[str]) -> Answer:
        match op:
            case ["new", samples, sample_s]:
                window = _window(samples, f"{sample_s}000")
                self.engine = QuotaEngine(
                    DefaultQuotaCallback(ConfiguredQuotas()), {QuotaType.PRODUCE: window}
                )
                self.lanes = {}
                return _OK
            case ["quota", user, client, limit]:
                change = QuotaChange(_entity(user, client), QuotaType.PRODUCE, _limit(limit))
                self.engine.apply([change])
                return [self.engine.callback.enabled(QuotaType.PRODUCE)]
            case ["purge", t]:
                return [self.engine.purge_expired(int(t))]
            case ["charge" | "refuse" as how, user, client, value, t]:
                return self._charge(how, user, client, _number(value), int(t))
        raise AssertionError(op)

    def _charge(self, how: str, user: str, client: str, value: float, now_ms: int) -> Answer:
        version, lane = self.lanes.get((user, client), (-1, None))
        if lane is None or version != lane.version:  # as a connection keeps it
            lane = self.engine.lane(QuotaType.PRODUCE, _NODE_ID, user, client, now_ms)
            assert lane is not None
            self.lanes[user, client] = (lane.version, lane)
        if lane.samples == 0:
            return ["off", lane.charge(value, now_ms)]
        # What the lane says and what the callback would say now are the same counter.
        now = self.engine.callback.quota_metric_tags(QuotaType.PRODUCE, user, client)
        assert lane.tag_values == now
        tags = [sanitise(now["user"]), now["client-id"]]
        limit = UNLIMITED if lane.limit is None else lane.limit
        told = lane.refuse if how == "refuse" else lane.charge
        return [*tags, limit, told(value, now_ms)]


class MutationManagerSubject:
    def __init__(self) -> None:
        self.engine = QuotaEngine(DefaultQuotaCallback(ConfiguredQuotas()), {})
        self.quotas: dict[str, MutationQuota] = {}

    def __call__(self, op: list[str]) -> Answer:
        match op:
            case ["new", samples, sample_s]:
                window = _window(samples, f"{sample_s}000")
                self.engine = QuotaEngine(
                    DefaultQuotaCallback(ConfiguredQuotas()),
                    {QuotaType.CONTROLLER_MUTATION: window},
                )
                self.quotas = {}
            case ["quota", user, client, limit]:
                mutation = QuotaType.CONTROLLER_MUTATION
                self.engine.apply([QuotaChange(_entity(user, client), mutation, _limit(limit))])
                return [self.engine.callback.enabled(mutation)]
            case ["purge", t]:
                self.engine.purge_expired(int(t))
            case ["open", number, kind, user, client, t]:
                quota = self.engine.mutations(user, client, strict=kind == "strict", now_ms=int(t))
                self.quotas[number] = quota
                if quota.samples == 0:
                    return ["unbounded"]
                return [UNLIMITED if quota.limit is None else quota.limit]
            case ["plain", user, client, value, t]:
                quota = self.engine.mutations(user, client, strict=True, now_ms=int(t))
                return [quota.charge(_number(value), int(t)).throttle_ms]
            case [word, number, *rest]:
                return self._step(word, self.quotas[number], rest)
            case _:
                raise AssertionError(op)
        return _OK

    def _step(self, word: str, quota: MutationQuota, rest: list[str]) -> Answer:
        match [word, *rest]:
            case ["charge", value, t]:
                decision = quota.charge(_number(value), int(t))
                rejected = decision.outcome is Outcome.REJECTED
                head: Answer = ["rejected", decision.throttle_ms] if rejected else ["taken", 0]
                return [*head, _is_exceeded(quota), quota.throttle_ms(int(t))]
            case ["back", value, t]:
                quota.give_back(_number(value), int(t))
                return _OK
            case ["left", t]:
                return [_is_exceeded(quota), quota.throttle_ms(int(t))]
        raise AssertionError(word)


def _is_exceeded(quota: MutationQuota) -> bool:
    """Kafka's ``isExceeded``, which the gateway needs nowhere."""
    return isinstance(quota, StrictQuota) and quota._throttle > 0


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "token_bucket": TokenBucketSubject,
    "rate": RateSubject,
    "sensor": SensorSubject,
    "client_quota_manager": ClientQuotaManagerSubject,
    "controller_mutation_quota_manager": MutationManagerSubject,
}
