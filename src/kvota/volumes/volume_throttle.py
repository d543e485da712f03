"""Observations in, factors out: what the limits, the cache and the validity make of them together."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kvota.volumes.limit import Verdict, VolumeLimit
from kvota.volumes.observation import Observation, Status
from kvota.volumes.throttle_factor import ThrottleFactor
from kvota.volumes.volume import Volume
from kvota.volumes.volume_cache import VolumeCache

_NOBODY = -1


class VolumeThrottle:
    """How much may be produced, by what was seen of the volumes.

    Args:
        limit: judges the volumes; None: somebody else tells the factor.
        fallback: the factor once no observation is valid.
        validity_ms: for how long an observation, and a volume whose broker is away, counts.
        per_broker: each broker has the factor of its own volumes; else all have that of the fullest.
        now_ms: the time, as in each call.

    Attributes:
        limit: as given.
        verdict: of the last observation that succeeded.
        volumes: that count now.
        broker_ids: the brokers that the cluster has named last, also where the look then failed.
        log_dirs: how many volumes the last look that succeeded has seen.
        dropped: log directories without a size, of that look.
        looks: how many have ended, by status.
        violations: breached volumes, summed over the looks.
        last_breached: the most severe volume of the last breach; it stays when that is over.
        fallback_reasons: how often the fallback came into force, by the status of the last look before it;
            None: since the last success no look has ended.
    """

    def __init__(
        self,
        limit: VolumeLimit | None,
        *,
        fallback: float,
        validity_ms: int,
        per_broker: bool,
        now_ms: int,
    ) -> None:
        self.limit = limit
        self._per_broker = per_broker
        self._cache = VolumeCache(validity_ms=validity_ms)
        self._factor = ThrottleFactor(fallback=fallback, validity_ms=validity_ms, now_ms=now_ms)
        self._of_broker: dict[int, float] = {}
        self.verdict = Verdict(factor=1.0)
        self.volumes: Sequence[Volume] = ()
        self.broker_ids: Sequence[int] = ()
        self.log_dirs = 0
        self.dropped = 0
        self.looks: dict[Status, int] = dict.fromkeys(Status, 0)
        self.violations = 0
        self.last_breached: Volume | None = None
        self.fallback_reasons: dict[Status | None, int] = {}
        self._last_failure: Status | None = None

    @property
    def factor(self) -> float:
        """Of the fullest volume, or the fallback."""
        return self._factor.value

    @property
    def is_fallback(self) -> bool:
        """True while no observation is valid."""
        return self._factor.is_fallback

    @property
    def fallbacks(self) -> int:
        """How often the fallback came into force."""
        return self._factor.fallbacks

    @property
    def evictions(self) -> Mapping[tuple[int, str], int]:
        """How often each volume was forgotten, by broker and log directory."""
        return self._cache.evictions

    @property
    def remembered(self) -> int:
        """How many volumes are remembered, those of absent brokers among them."""
        return len(self._cache)

    @property
    def factors(self) -> Mapping[int | None, float]:
        """The factor of each broker, and under None of those that are not named.

        A volume that is nobody's (a disk of the gateway's machine) counts for all of them.
        """
        if not self._per_broker or self._factor.is_fallback:
            return MappingProxyType({None: self._factor.value})
        of_all = self._of_broker.get(_NOBODY, 1.0)
        return MappingProxyType(
            {
                None if broker_id == _NOBODY else broker_id: min(factor, of_all)
                for broker_id, factor in {_NOBODY: of_all, **self._of_broker}.items()
            }
        )

    def take(self, observation: Observation, now_ms: int) -> bool:
        """A look has ended; returns whether the factors are other ones now."""
        before = self.factors
        self.looks[observation.status] += 1
        if observation.broker_ids:
            self.broker_ids = observation.broker_ids
        if observation.succeeded:
            self._last_failure = None
            self._judge(observation, now_ms)
            self._factor.observed(self.verdict.factor, now_ms)
        else:
            self._last_failure = observation.status
            self.volumes = self._cache.forget(now_ms)
            self._expire(now_ms)
        return self.factors != before

    def look(self, now_ms: int) -> bool:
        """Time has passed; returns whether the factors are other ones now."""
        before = self.factors
        self._expire(now_ms)
        return self.factors != before

    def _expire(self, now_ms: int) -> None:
        before = self.fallbacks
        self._factor.look(now_ms)
        if self.fallbacks > before:
            reason = self._last_failure
            self.fallback_reasons[reason] = self.fallback_reasons.get(reason, 0) + 1

    def _judge(self, observation: Observation, now_ms: int) -> None:
        self.log_dirs, self.dropped = len(observation.volumes), observation.dropped
        self.volumes = self._cache.observed(observation.volumes, now_ms)
        if observation.factor is not None or self.limit is None:
            self.verdict = Verdict(factor=1.0 if observation.factor is None else observation.factor)
            return
        self.verdict = self.limit.judge(self.volumes)
        self._of_broker = self._judged_apart(self.limit) if self._per_broker else {}
        self.violations += len(self.verdict.breached)
        self.last_breached = self.verdict.most_severe or self.last_breached

    def _judged_apart(self, limit: VolumeLimit) -> dict[int, float]:
        of_broker: dict[int, list[Volume]] = {}
        for volume in self.volumes:
            of_broker.setdefault(volume.broker_id, []).append(volume)
        return {
            broker_id: limit.judge(volumes).factor
            for broker_id, volumes in sorted(of_broker.items())
        }
