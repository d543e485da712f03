"""kvota's side of the comparison: the same operations, answered by the engine."""

from collections.abc import Callable

from kvota.engine import QuotaEngine, QuotaTable, QuotaType, QuotaWindow, SampledRate, TokenBucket
from kvota.engine.arithmetic import COUNTER_EXPIRES_MS, UNLIMITED
from kvota.engine.bandwidth import BandwidthLane
from kvota.engine.mutations import MutationCounter, MutationQuota, PermissiveQuota, StrictQuota
from kvota.model.event import Outcome
from kvota.model.quota_entity import DEFAULT, EntityName, QuotaEntity

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
        self.bucket = MutationCounter("", self.window, None, born_ms=0)

    def __call__(self, op: list[str]) -> Answer:
        match op:
            case ["new", kind, samples, sample_ms, limit]:
                self.window = _window(samples, sample_ms)
                self.rate = None
                self.bucket = MutationCounter("", self.window, _limit(limit), born_ms=0)
                if kind == "rate":
                    self.rate = SampledRate(
                        self.window, _limit(limit), forget_after_ms=COUNTER_EXPIRES_MS
                    )
            case ["limit", limit]:
                (self.rate or self.bucket).configure(self.window, _limit(limit))
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


def _entity(user: str, client: str) -> QuotaEntity:
    return QuotaEntity(user=_name(user), client_id=_name(client))


def _name(text: str) -> EntityName:
    if text == "-":
        return None
    return DEFAULT if text == "*" else text[1:]


class ClientQuotaManagerSubject:
    def __init__(self) -> None:
        self.engine = QuotaEngine(QuotaTable(), {})
        self.lanes: dict[tuple[str, str], tuple[int, BandwidthLane]] = {}

    def __call__(self, op: list[str]) -> Answer:
        match op:
            case ["new", samples, sample_s]:
                window = _window(samples, f"{sample_s}000")
                self.engine = QuotaEngine(QuotaTable(), {QuotaType.PRODUCE: window})
                self.lanes = {}
                return _OK
            case ["quota", user, client, limit]:
                table = self.engine.table.with_quota(
                    _entity(user, client), QuotaType.PRODUCE, _limit(limit)
                )
                self.engine.replace_table(table)
                return [table.enabled(QuotaType.PRODUCE)]
            case ["purge", t]:
                return [self.engine.purge_expired(int(t))]
            case ["charge" | "refuse" as how, user, client, value, t]:
                return self._charge(how, user, client, _number(value), int(t))
        raise AssertionError(op)

    def _charge(self, how: str, user: str, client: str, value: float, now_ms: int) -> Answer:
        version, lane = self.lanes.get((user, client), (-1, None))
        if lane is None or version != self.engine.version:  # as a connection keeps it
            lane = self.engine.bandwidth(QuotaType.PRODUCE, _NODE_ID, user, client, now_ms)
            self.lanes[user, client] = (self.engine.version, lane)
        if lane.samples == 0:
            return ["off", lane.charge(value, now_ms)]
        tags = self.engine.table.tags(QuotaType.PRODUCE, user, client)
        limit = UNLIMITED if lane.limit is None else lane.limit
        told = lane.refuse if how == "refuse" else lane.charge
        return [*tags, limit, told(value, now_ms)]


class MutationManagerSubject:
    def __init__(self) -> None:
        self.engine = QuotaEngine(QuotaTable(), {})
        self.quotas: dict[str, MutationQuota] = {}

    def __call__(self, op: list[str]) -> Answer:
        match op:
            case ["new", samples, sample_s]:
                window = _window(samples, f"{sample_s}000")
                self.engine = QuotaEngine(QuotaTable(), {QuotaType.CONTROLLER_MUTATION: window})
                self.quotas = {}
            case ["quota", user, client, limit]:
                table = self.engine.table.with_quota(
                    _entity(user, client), QuotaType.CONTROLLER_MUTATION, _limit(limit)
                )
                self.engine.replace_table(table)
                return [table.enabled(QuotaType.CONTROLLER_MUTATION)]
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
                return [*head, quota.is_exceeded, quota.throttle_ms(int(t))]
            case ["back", value, t]:
                quota.give_back(_number(value), int(t))
                return _OK
            case ["left", t]:
                return [quota.is_exceeded, quota.throttle_ms(int(t))]
        raise AssertionError(word)


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "token_bucket": TokenBucketSubject,
    "rate": RateSubject,
    "sensor": SensorSubject,
    "client_quota_manager": ClientQuotaManagerSubject,
    "controller_mutation_quota_manager": MutationManagerSubject,
}
