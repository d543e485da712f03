"""The cases of strimzi/kafka-quotas-plugin 0.4.0 for factor, validity, cache and settings, by the names they have there."""

import pytest

from kvota.volumes import (
    Observation,
    PerVolumeLimit,
    Status,
    Threshold,
    ThrottleFactor,
    Volume,
    VolumeCache,
    VolumeThrottle,
)
from kvota.volumes.settings import read_volume_settings

MINUTE = 60_000
P = "client.quota.callback.static"
SERVERS = {f"{P}.kafka.admin.bootstrap.servers": "localhost:9093"}


def volume(broker: int, *, free: int = 1000, log_dir: str = "/var/lib/data") -> Volume:
    return Volume(broker_id=broker, log_dir=log_dir, total_bytes=1000, available_bytes=free)


SUCCESS = Observation(status=Status.SUCCESS, volumes=[volume(1)])
FAILURE = Observation(status=Status.EXCEPTION)
LOOK = None


@pytest.mark.parametrize(
    ("name", "validity_ms", "steps", "factor", "fallbacks"),
    [
        # Steps: minutes that pass before it, and what happens then.
        ("testFallbackWhenFactorExpired", 30_000, [(1, LOOK)], 0.0, 1),
        ("testFallbackWhenFactorExpiredAndFailedVolumeUsageResult", 30_000, [(1, FAILURE)], 0.0, 1),
        ("testCurrentFactorContinuesOnFailedVolumeUsageResult", MINUTE, [(0, FAILURE)], 1.0, 0),
        ("testCurrentFactorContinuesOnStalenessCheck", MINUTE, [(0, LOOK)], 1.0, 0),
        (
            "testCurrentThrottleFactorValidFromUpdatedOnSuccessfulVolumeUsageResult",
            MINUTE,
            [(1, SUCCESS), (1, LOOK)],
            1.0,
            0,
        ),
        ("shouldInitialiseQuotaFactorGauge", MINUTE, [], 1.0, 0),
        ("shouldUpdateGaugeWhenFactorChanges", MINUTE, [(0, SUCCESS)], 1.0, 0),
        ("shouldNotIncrementFallbackFactorApplied", MINUTE, [(0, FAILURE)], 1.0, 0),
        ("shouldCountFallbackFactorApplied", 30_000, [(1, LOOK)], 0.0, 1),
        ("shouldNotCountFallbackFactorAppliedWhenFactorIsValid", MINUTE, [(1, FAILURE)], 1.0, 0),
        (
            "shouldIncrementFallbackFactorAppliedWhenPreviousFactorExpires",
            30_000,
            [(1, FAILURE)],
            0.0,
            1,
        ),
        (
            "shouldIncrementFallbackFactorAppliedOnEachExpiry",
            30_000,
            [(1, FAILURE), (1, SUCCESS), (1, FAILURE)],
            0.0,
            2,
        ),
    ],
)
def test_policy_based_throttle(
    name: str,
    validity_ms: int,
    steps: list[tuple[int, Observation | None]],
    factor: float,
    fallbacks: int,
) -> None:
    limit = PerVolumeLimit(hard=Threshold(available_bytes=10))
    state = VolumeThrottle(limit, fallback=0.0, validity_ms=validity_ms, per_broker=False, now_ms=0)
    now_ms = 0
    for minutes, observation in steps:
        now_ms += minutes * MINUTE
        if observation is None:
            state.look(now_ms)
        else:
            state.take(observation, now_ms)

    assert (state.factor, state.fallbacks) == (factor, fallbacks), name


@pytest.mark.parametrize(
    ("name", "after_ms", "is_expired"),
    [
        ("shouldNotExpireIfZeroTimeElapsed", 0, False),
        ("shouldNotExpireBeforeBoundary", MINUTE - 1, False),
        ("shouldNotExpireAtBoundary", MINUTE, False),
        ("shouldExpireImmediatelyAfterBoundary", MINUTE + 1, True),
    ],
)
def test_fixed_duration_expiry_policy(name: str, after_ms: int, *, is_expired: bool) -> None:
    factor = ThrottleFactor(fallback=0.0, validity_ms=MINUTE, now_ms=5)

    assert factor.look(5 + after_ms) is is_expired, name


@pytest.mark.parametrize(
    ("name", "first", "after_ms", "second", "counted"),
    [
        ("shouldPassThroughFirstObservationUnaltered", [], 0, [], {}),
        ("shouldMergeCachedObservationForMissingBroker", [0, 1], 0, [1], {0: 1000, 1: 500}),
        ("shouldForwardFreshObservation", [0, 1], 0, [0, 1], {0: 500, 1: 500}),
        ("shouldUseOldCacheEntryJustBeforeExpiry", [0, 1], MINUTE - 1, [1], {0: 1000, 1: 500}),
        (
            "shouldExpireOldCacheEntriesOnUpdateExactlyAtExpiryBoundary",
            [0, 1],
            MINUTE,
            [1],
            {1: 500},
        ),
        (
            "shouldExpireOldCacheEntriesOnUpdateAfterExpiryBoundary",
            [0, 1],
            MINUTE + 1,
            [1],
            {1: 500},
        ),
    ],
)
def test_caching_volume_observer(
    name: str, first: list[int], after_ms: int, second: list[int], counted: dict[int, int]
) -> None:
    cache = VolumeCache(validity_ms=MINUTE)
    cache.observed([volume(broker) for broker in first], 0)

    found = cache.observed([volume(broker, free=500) for broker in second], after_ms)

    assert {each.broker_id: each.available_bytes for each in found} == counted, name


def test_should_count_evictions_of_each_log_dir_from_its_first_sight() -> None:
    """shouldInitialiseEvictionsCounterPerLogDir, shouldRecordCountOfEvictionsPerRemoteBroker, and of entries
    shouldCountNumberOfEntriesInCache, shouldReduceCountOfEntriesInCacheOnEviction.
    """
    cache = VolumeCache(validity_ms=MINUTE)
    cache.observed([volume(0), volume(0, log_dir="/var/lib/data2"), volume(1)], 0)
    assert set(cache.evictions.values()) == {0}
    assert len(cache) == 3

    cache.observed([volume(1)], MINUTE)
    assert len(cache) == 1

    assert cache.evictions == {
        (0, "/var/lib/data"): 1,
        (0, "/var/lib/data2"): 1,
        (1, "/var/lib/data"): 0,
    }


@pytest.mark.parametrize(
    ("name", "properties", "refused"),
    [
        ("negativeAvailableBytesNotAllowed", {"storage.per.volume.limit.min.available.bytes": "-1"}, True),
        ("invalidThrottleValidityDurationNotAllowed", {"throttle.factor.validity.duration": "NOT 8601 FRIENDLY"}, True),
        ("validThrottleValidityDurationAllowed", {"throttle.factor.validity.duration": "PT10M"}, False),
        ("validFallbackThrottleFactorAllowed", {"throttle.factor.fallback": "0.5"}, False),
        ("validFallbackThrottleFactorZeroAllowed", {"throttle.factor.fallback": "0"}, False),
        ("validFallbackThrottleFactorOneAllowed", {"throttle.factor.fallback": "1"}, False),
        ("negativeFallbackThrottleFactorNotAllowed", {"throttle.factor.fallback": "-0.001"}, True),
        ("fallbackThrottleFactorOverOneNotAllowed", {"throttle.factor.fallback": "1.001"}, True),
        ("testDefaultValues", {}, False),
    ],
)  # fmt: skip
def test_static_quota_config(name: str, properties: dict[str, str], *, refused: bool) -> None:
    given = {f"{P}.{key}": value for key, value in properties.items()}

    _, faults = read_volume_settings(SERVERS | given)

    assert [fault.place for fault in faults] == (list(given) if refused else []), name


def test_a_failed_observation_goes_on_to_who_decides() -> None:
    """shouldForwardFailedObservation: the cache only forgets, and its status is counted."""
    limit = PerVolumeLimit(hard=Threshold(available_bytes=10))
    state = VolumeThrottle(limit, fallback=0.0, validity_ms=1, per_broker=False, now_ms=0)

    state.take(Observation(status=Status.DESCRIBE_CLUSTER_ERROR), 0)

    assert state.looks[Status.DESCRIBE_CLUSTER_ERROR] == 1
    assert state.volumes == ()


BYTES, RATIO = Threshold(available_bytes=500), Threshold(available_ratio=0.1)


@pytest.mark.parametrize(
    ("name", "limit", "volumes", "factor", "violations"),
    [
        ("AvailableBytes: shouldNotThrottleIfHasAvailableBytesAboveLimit", BYTES, [(1000, 1000)], 1.0, 0),
        ("AvailableBytes: shouldThrottleIfHasAvailableBytesAtLimit", BYTES, [(1000, 500)], 0.0, 1),
        ("AvailableBytes: shouldThrottleIfHasAvailableBytesBelowLimit", BYTES, [(1000, 499)], 0.0, 1),
        ("AvailableBytes: shouldThrottleIfAnyVolumeHasAvailableBytesBelowLimit", BYTES, [(1000, 510), (1000, 499)], 0.0, 1),
        ("AvailableBytes: shouldNotIncrementViolationCounterWhenAllVolumesAreAboveTheLimit", BYTES, [(1000, 1000)], 1.0, 0),
        # Its name says below, what it does is above.
        ("AvailableBytes: shouldIncrementViolationCounterWhenAllVolumesAreBelowTheLimit", BYTES, [(1000, 501)], 1.0, 0),
        ("AvailableRatio: shouldNotThrottleIfHasAvailableBytesAboveLimit", RATIO, [(909, 100)], 1.0, 0),
        ("AvailableRatio: shouldThrottleIfHasAvailableBytesAtLimit", RATIO, [(1000, 100)], 0.0, 1),
        ("AvailableRatio: shouldThrottleIfHasAvailableRatioBelowLimit", RATIO, [(1111, 100)], 0.0, 1),
        ("AvailableRatio: shouldThrottleIfAnyVolumeHasAvailableRatioBelowLimit", RATIO, [(200, 100), (1000, 100)], 0.0, 1),
        ("AvailableRatio: shouldThrottleIfAnyVolumeHasZeroCapacity", RATIO, [(200, 100), (0, 100)], 0.0, 1),
    ],
)  # fmt: skip
def test_throttle_factor_policies(
    name: str, limit: Threshold, volumes: list[tuple[int, int]], factor: float, violations: int
) -> None:
    state = VolumeThrottle(
        PerVolumeLimit(hard=limit), fallback=1.0, validity_ms=MINUTE, per_broker=False, now_ms=0
    )
    seen = [
        Volume(broker_id=number, log_dir="/var/lib/data", total_bytes=total, available_bytes=free)
        for number, (total, free) in enumerate(volumes)
    ]

    state.take(Observation(status=Status.SUCCESS, volumes=seen), 0)

    assert (state.factor, state.violations) == (factor, violations), name


@pytest.mark.parametrize("name", ["security.protocol", "sasl.mechanism", "client.id", "any.thing"])
def test_should_resolve_admin_configurations(name: str) -> None:
    """shouldResolveAdminConfigurations: passed through without the prefix."""
    settings, _ = read_volume_settings(SERVERS | {f"{P}.kafka.admin.{name}": "arbitrary"})

    assert settings.admin[name] == "arbitrary"


def test_a_client_id_is_there_without_one_configured() -> None:
    """generateDefaultClientIdWithPrefixIfNoneConfigured; here it is always kvota-volumes, so that brokers can know it."""
    settings, _ = read_volume_settings(SERVERS)

    assert "client.id" not in settings.admin


def test_admin_bootstrap_servers_required() -> None:
    """adminBootstrapServersRequired: here only where the cluster is asked."""
    limit = {f"{P}.storage.per.volume.limit.min.available.bytes": "5"}

    assert read_volume_settings({})[1] == []
    assert [fault.place for fault in read_volume_settings(limit)[1]] == [*SERVERS]
