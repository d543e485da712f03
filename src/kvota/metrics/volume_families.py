"""From what is known of the volumes to the series of their metrics."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvota.metrics import volume_metrics as metrics
from kvota.metrics.exposition import Family, Sample
from kvota.metrics.labels import label_text
from kvota.model.quota_type import QuotaType
from kvota.volumes import SummedUsedLimit, Volume, VolumeThrottle

# The proposal's label must have a value where no look has ended.
_NO_OBSERVATION = "NO_OBSERVATION"
_STATIC = {
    QuotaType.PRODUCE: metrics.STATIC_PRODUCE,
    QuotaType.FETCH: metrics.STATIC_FETCH,
    QuotaType.REQUEST: metrics.STATIC_REQUEST,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeFacts:
    """What is known of the volumes at one moment; a copy.

    Attributes:
        observer: who looks: the gateway's name.
        factor: in force, or where brokers have their own: of the fullest one.
        factors: in force, by broker; under None: of those that are not named.
        is_fallback: no look is valid.
        fallbacks: how often the fallback came into force, by the status of the last look.
        violations: breached volumes, summed over the looks.
        breached: those of the last look.
        last_breached: the most severe one of the last breach.
        broker_ids: how many brokers the cluster has named.
        log_dirs: how many volumes were seen.
        dropped: log directories without a size.
        volumes: that count.
        remembered: how many are remembered.
        evictions: by broker and log directory.
        looks: by status.
        used_limit: where used bytes of all volumes together are limited.
    """

    observer: str
    factor: float
    factors: Mapping[int | None, float]
    is_fallback: bool
    fallbacks: Mapping[str, int]
    violations: int
    breached: tuple[Volume, ...]
    last_breached: Volume | None
    broker_ids: int
    log_dirs: int
    dropped: int
    volumes: tuple[Volume, ...]
    remembered: int
    evictions: Mapping[tuple[int, str], int]
    looks: Mapping[str, int]
    used_limit: SummedUsedLimit | None


def facts_of(throttle: VolumeThrottle, observer: str) -> VolumeFacts:
    """Copy what a throttle knows; on the thread that it belongs to."""
    limit = throttle.limit
    return VolumeFacts(
        observer=observer,
        factor=throttle.factor,
        factors=dict(throttle.factors),
        is_fallback=throttle.is_fallback,
        fallbacks={
            (reason.value if reason else _NO_OBSERVATION): count
            for reason, count in throttle.fallback_reasons.items()
        },
        violations=throttle.violations,
        breached=throttle.verdict.breached,
        last_breached=throttle.last_breached,
        broker_ids=len(throttle.broker_ids),
        log_dirs=throttle.log_dirs,
        dropped=throttle.dropped,
        volumes=tuple(throttle.volumes),
        remembered=throttle.remembered,
        evictions=dict(throttle.evictions),
        looks={status.value: count for status, count in throttle.looks.items()},
        used_limit=limit if isinstance(limit, SummedUsedLimit) else None,
    )


def static_families(limits: Mapping[QuotaType, float]) -> Iterator[Family]:
    """The limits of the static callback as configured; one that is not limited has no series."""
    for quota_type, metric in _STATIC.items():
        yield Family(metric, [("", limits[quota_type])] if quota_type in limits else [])


def volume_families(facts: VolumeFacts) -> Iterator[Family]:
    """All metrics of the volumes, of every generation."""
    yield from _of_used_bytes(facts)
    yield from _released(facts)
    yield from _proposed(facts)
    yield Family(
        metrics.FACTOR,
        [
            (label_text({"node_id": "" if node_id is None else str(node_id)}), factor)
            for node_id, factor in facts.factors.items()
        ],
    )
    yield Family.one(metrics.FALLBACK, int(facts.is_fallback))
    yield Family.by("status", metrics.LOOKS, facts.looks)
    yield Family.one(metrics.DROPPED, facts.dropped)


def _of_used_bytes(facts: VolumeFacts) -> Iterator[Family]:
    limit = facts.used_limit
    used = [] if limit is None else [("", sum(volume.used_bytes for volume in facts.volumes))]
    yield Family(metrics.TOTAL_USED, used)
    yield Family(metrics.SOFT_LIMIT, [] if limit is None else [("", limit.soft_bytes)])
    yield Family(metrics.HARD_LIMIT, [] if limit is None else [("", limit.hard_bytes)])


def _released(facts: VolumeFacts) -> Iterator[Family]:
    observer = label_text({metrics.OBSERVER: facts.observer})
    for metric, value in (
        (metrics.THROTTLE_FACTOR, facts.factor),
        (metrics.FALLBACKS, sum(facts.fallbacks.values())),
        (metrics.VIOLATED, facts.violations),
        (metrics.ACTIVE_BROKERS, facts.broker_ids),
        (metrics.ACTIVE_LOG_DIRS, facts.log_dirs),
        (metrics.CACHED, facts.remembered),
    ):
        yield Family(metric, [(observer, value)])
    volumes = [(_log_dir(facts, each.broker_id, each.log_dir), each) for each in facts.volumes]
    yield Family(metrics.AVAILABLE, [(labels, each.available_bytes) for labels, each in volumes])
    yield Family(metrics.CONSUMED, [(labels, each.used_bytes) for labels, each in volumes])
    evicted: list[Sample] = [
        (_log_dir(facts, *volume), count) for volume, count in facts.evictions.items()
    ]
    yield Family(metrics.EVICTIONS, evicted)


def _proposed(facts: VolumeFacts) -> Iterator[Family]:
    yield Family.one(metrics.LOCAL_FACTOR, facts.factor)
    yield Family.by("reason", metrics.LOCAL_FALLBACKS, facts.fallbacks)
    yield Family(metrics.THROTTLING_VOLUME, list(_throttling(facts)))
    yield Family.one(metrics.PROPOSED_BROKERS, facts.broker_ids)
    yield Family.one(metrics.PROPOSED_LOG_DIRS, facts.log_dirs)


def _throttling(facts: VolumeFacts) -> Iterator[Sample]:
    last = facts.last_breached
    if last is not None:
        labels = {"brokerId": _broker(last.broker_id), "volumeLogDir": last.log_dir}
        yield label_text(labels), int(bool(facts.breached))


def _log_dir(facts: VolumeFacts, broker_id: int, log_dir: str) -> str:
    return label_text(
        {metrics.OBSERVER: facts.observer, "remoteBrokerId": _broker(broker_id), "logDir": log_dir}
    )


def _broker(broker_id: int) -> str:
    """Disks of this machine are no broker's."""
    return str(broker_id) if broker_id >= 0 else ""
