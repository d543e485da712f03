"""Strimzi's own tests, one by one: each is replayed under its name, or it is said why there is nothing to replay.

Source: the test classes of strimzi/kafka-quotas-plugin 0.4.0.
"""

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = (
    "volumes/test_strimzi_cases.py",
    "volumes/test_strimzi_callback_cases.py",
    "client/test_log_dirs.py",
)

CASES = {
    "VolumeSourceTest": """
        shouldProduceFailedObservationIfDescribeClusterFails
        shouldProduceFailedObservationIfDescribeClusterThrows
        shouldProduceFailedObservationOnDescribeClusterTimeout
        shouldProduceFailedObservationWhenDescribeClusterCompletesExceptionally
        shouldProduceFailedObservationWhenDescribeLogDirsFutureCompletesExceptionally
        shouldProduceCollectionOfVolumes
        shouldCreateConsumedBytesMetricForALogDir
        shouldTrackEvolutionOfConsumedBytesMetricForALogDir
        shouldTrackEvolutionOfAvailableBytesMetricForALogDir
        shouldCreateAvailableBytesMetricForALogDir
        shouldCreateConsumedBytesMetricForEachLogDir
        shouldCreateAvailableBytesMetricForEachLogDir
        shouldProduceMultipleVolumesForASingleBrokerIfItHasMultipleLogDirs
        shouldProduceMultipleVolumesForMultipleBrokers
        shouldFilterVolumesWithoutAvailableBytes
        shouldProduceEmptyIfDescribeLogDirsReturnsEmptyMaps
        shouldCountEachActiveBrokerInDescribeClusterResponse
        shouldCountEachActiveLogDirInDescribeLogDirsResponse
        shouldCountEachValidLogDirInDescribeLogDirsResponse
    """,
    "StaticQuotaCallbackTest": """
        quotaDefaults
        produceQuota
        shouldNotThrottleToZeroBytes
        shouldThrottleOnAvailableRatio
        configuringCheckIntervalWithNoVolumeLimitsDisablesStorageCheck
        configuringBothPerVolumeLimitTypesNotAllowed
        excludedPrincipal
        shouldScheduleStorageChecker
        shouldNotScheduleStorageCheckWhenCheckIntervalIsZero
        shouldShutdownExecutorOnClose
        observationsForNodesThatDropOutOfActiveSetAreValidUntilExpiry
        cachedObservationsExpireAfterValidityDuration
        quotaResetRequiredShouldRespectQuotaType
        quotaResetRequired
        staticQuotaMetrics
        shouldProduceValidMbeanObjectNamesWhenGroupContains
        shouldProduceValidMbeanObjectNamesWhenTypeContains
        shouldProduceValidMbeanObjectNamesWhenTypeClassContains
        shouldProduceValidMbeanObjectNamesWhenGroupContainsWithTags
        shouldProduceValidMbeanObjectNamesWhenTypeContainsWithTags
        shouldProduceValidMbeanObjectNamesWhenTypeClassContainsWithTags
        shouldSanitiseTagValues
    """,
    "StaticQuotaConfigTest": """
        shouldResolveAdminConfigurations
        generateDefaultClientIdWithPrefixIfNoneConfigured
        negativeAvailableBytesNotAllowed
        invalidThrottleValidityDurationNotAllowed
        validThrottleValidityDurationAllowed
        validFallbackThrottleFactorAllowed
        validFallbackThrottleFactorZeroAllowed
        validFallbackThrottleFactorOneAllowed
        negativeFallbackThrottleFactorNotAllowed
        fallbackThrottleFactorOverOneNotAllowed
        testDefaultValues
        adminBootstrapServersRequired
    """,
    "AvailableBytesThrottleFactorPolicyTest": """
        shouldNotThrottleIfHasAvailableBytesAboveLimit
        shouldThrottleIfHasAvailableBytesAtLimit
        shouldThrottleIfHasAvailableBytesBelowLimit
        shouldThrottleIfAnyVolumeHasAvailableBytesBelowLimit
        shouldNotIncrementViolationCounterWhenAllVolumesAreAboveTheLimit
        shouldIncrementViolationCounterWhenAllVolumesAreBelowTheLimit
    """,
    "AvailableRatioThrottleFactorPolicyTest": """
        shouldNotThrottleIfHasAvailableBytesAboveLimit
        shouldThrottleIfHasAvailableBytesAtLimit
        shouldThrottleIfHasAvailableRatioBelowLimit
        shouldThrottleIfAnyVolumeHasAvailableRatioBelowLimit
        shouldThrottleIfAnyVolumeHasZeroCapacity
    """,
    "CachingVolumeObserverTest": """
        shouldPassThroughFirstObservationUnaltered
        shouldMergeCachedObservationForMissingBroker
        shouldForwardFreshObservation
        shouldForwardFailedObservation
        shouldUseOldCacheEntryJustBeforeExpiry
        shouldExpireOldCacheEntriesOnUpdateExactlyAtExpiryBoundary
        shouldExpireOldCacheEntriesOnUpdateAfterExpiryBoundary
        shouldInitialiseEvictionsCounterPerLogDir
        shouldRecordCountOfEvictionsPerRemoteBroker
        shouldCountNumberOfEntriesInCache
        shouldReduceCountOfEntriesInCacheOnEviction
    """,
    "VolumeSourceBuilderTest": """
        shouldReturnClusterVolumeSource
        shouldFailIfKip827NotAvailable
    """,
    "VolumeUsageResultTest": """
        shouldSupplyObservedAt
        shouldSupplyMostRecentObservationTimestamp
        shoul
    """,
    "FixedDurationExpiryPolicyTest": """
        shouldNotExpireIfZeroTimeElapsed
        shouldNotExpireBeforeBoundary
        shouldNotExpireAtBoundary
        shouldExpireImmediatelyAfterBoundary
    """,
    "PolicyBasedThrottleTest": """
        testFallbackWhenFactorExpired
        testFallbackWhenFactorExpiredAndFailedVolumeUsageResult
        testCurrentFactorContinuesOnFailedVolumeUsageResult
        testCurrentFactorContinuesOnStalenessCheck
        testCurrentThrottleFactorValidFromUpdatedOnSuccessfulVolumeUsageResult
        shouldInitialiseQuotaFactorGauge
        shouldUpdateGaugeWhenFactorChanges
        shouldNotIncrementFallbackFactorApplied
        shouldCountFallbackFactorApplied
        shouldNotCountFallbackFactorAppliedWhenFactorIsValid
        shouldIncrementFallbackFactorAppliedWhenPreviousFactorExpires
        shouldIncrementFallbackFactorAppliedOnEachExpiry
    """,
}

_JMX = "names of JMX beans: there are none, see shouldSanitiseTagValues"
_ONE_CLOCK = (
    "an observation has no time of its own: all of it is judged by the one clock of who takes it"
)
NOTHING_TO_REPLAY = {
    "shouldProduceValidMbeanObjectNamesWhenGroupContains": _JMX,
    "shouldProduceValidMbeanObjectNamesWhenTypeContains": _JMX,
    "shouldProduceValidMbeanObjectNamesWhenTypeClassContains": _JMX,
    "shouldProduceValidMbeanObjectNamesWhenGroupContainsWithTags": _JMX,
    "shouldProduceValidMbeanObjectNamesWhenTypeContainsWithTags": _JMX,
    "shouldProduceValidMbeanObjectNamesWhenTypeClassContainsWithTags": _JMX,
    "shouldShutdownExecutorOnClose": "no executor: one task of the gateway, which ends with it",
    "shouldReturnClusterVolumeSource": "no builder: test_settings.py says which source a configuration has",
    "shouldSupplyObservedAt": _ONE_CLOCK,
    "shouldSupplyMostRecentObservationTimestamp": _ONE_CLOCK,
    "shoul": _ONE_CLOCK,
}


@pytest.mark.parametrize("of_class", CASES)
def test_each_of_their_tests_is_replayed_or_there_is_nothing_to_replay(of_class: str) -> None:
    text = "".join((TESTS / file).read_text() for file in FILES)

    missing = [
        name
        for name in CASES[of_class].split()
        if name not in text and name not in NOTHING_TO_REPLAY
    ]

    assert missing == []


def test_what_is_excused_is_one_of_their_tests() -> None:
    assert set(NOTHING_TO_REPLAY) <= {name for names in CASES.values() for name in names.split()}
