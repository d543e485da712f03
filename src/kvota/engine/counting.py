"""How the counters of a quota type count, and a new counter that counts so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from kvota.engine.arithmetic import COUNTER_EXPIRES_MS
from kvota.engine.bucket_counter import BucketCounter
from kvota.engine.debt_bucket import DebtBucket
from kvota.engine.sampled_rate import SampledRate
from kvota.engine.thread_share import ThreadShare
from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import FACTS, Algorithm, QuotaType
from kvota.model.quota_window import QuotaWindow

_DEFAULT_WINDOW = QuotaWindow()


@dataclass(frozen=True, slots=True)
class Counting:
    """Algorithm, window and, for a debt bucket, what may be owed before others have to wait."""

    quota_type: QuotaType
    algorithm: Algorithm
    window: QuotaWindow
    debt_max_ms: int = 0

    @classmethod
    def of_kafka(cls, quota_type: QuotaType, window: QuotaWindow) -> Self:
        """As Kafka's own managers count this type."""
        return cls(quota_type, FACTS[quota_type].algorithms[0], window)

    @property
    def rate_class(self) -> type[SampledRate]:
        """What a sampled rate of this type is."""
        return ThreadShare if self.quota_type is QuotaType.REQUEST else SampledRate

    def new_counter(
        self, limit: float | None, now_ms: int
    ) -> SampledRate | BucketCounter | DebtBucket:
        """An empty counter."""
        if self.algorithm is Algorithm.SAMPLED_RATE:
            return self.rate_class(
                self.window, limit, forget_after_ms=COUNTER_EXPIRES_MS, born_ms=now_ms
            )
        if FACTS[self.quota_type].algorithms[0] is Algorithm.TOKEN_BUCKET:
            return BucketCounter(self.window, limit, born_ms=now_ms)
        return DebtBucket(self.window, limit, debt_max_ms=self.debt_max_ms, born_ms=now_ms)


def countings(
    windows: Mapping[QuotaType, QuotaWindow], buckets: Mapping[QuotaType, BucketSettings]
) -> dict[QuotaType, Counting]:
    """One for each type: those in ``buckets`` by a debt bucket, the others as Kafka does.

    Raises:
        ValueError: a type in ``buckets`` that cannot be counted so.
    """
    result = {}
    for quota_type in QuotaType:
        bucket = buckets.get(quota_type)
        algorithms = FACTS[quota_type].algorithms
        if bucket is None:
            window = windows.get(quota_type, _DEFAULT_WINDOW)
            result[quota_type] = Counting.of_kafka(quota_type, window)
        elif Algorithm.TOKEN_BUCKET in algorithms[1:]:
            result[quota_type] = Counting(
                quota_type, Algorithm.TOKEN_BUCKET, bucket.window, bucket.debt_max_ms
            )
        else:
            msg = f"{quota_type} has one algorithm only, {algorithms[0]}"
            raise ValueError(msg)
    return result
