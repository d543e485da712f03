"""StaticQuotaCallbackTest of strimzi/kafka-quotas-plugin 0.4.0: the callback and the factor together, on a real engine."""

import pytest

from kvota.callbacks import StaticQuotaCallback
from kvota.engine import Factored, Lane, QuotaEngine
from kvota.metrics.exposition import Family
from kvota.metrics.labels import label_text
from kvota.metrics.volume_families import facts_of, static_families, volume_families
from kvota.model.errors import ConfigurationError
from kvota.model.quota_type import QuotaType
from kvota.volumes import Observation, Status, Volume, VolumeThrottle
from kvota.volumes.settings import read_volume_settings

P = "client.quota.callback.static"
SERVERS = {f"{P}.kafka.admin.bootstrap.servers": "localhost:9092"}
BYTES = f"{P}.storage.per.volume.limit.min.available.bytes"
RATIO = f"{P}.storage.per.volume.limit.min.available.ratio"
INTERVAL = f"{P}.storage.check-interval"
MINIMUM = {**SERVERS, INTERVAL: "20", BYTES: "2"}
VALIDITY_MS = 300_000
PRODUCE, FETCH = QuotaType.PRODUCE, QuotaType.FETCH


class Broker:
    """What one broker of theirs has: the callback, and who observes."""

    def __init__(self, properties: dict[str, str]) -> None:
        settings, faults = read_volume_settings(properties)
        assert faults == []
        callback = StaticQuotaCallback()
        callback.configure(properties)
        self.engine = QuotaEngine(callback, {}, factored=Factored(frozenset({PRODUCE})))
        self.throttle = VolumeThrottle(
            settings.limit,
            fallback=settings.fallback,
            validity_ms=settings.validity_ms,
            per_broker=False,
            now_ms=0,
        )

    def observe(self, available: int, now_ms: int = 0, *, broker: int = 0, total: int = 50) -> bool:
        """Whether the produce limit is another one now (their quotaResetRequired)."""
        volume = Volume(
            broker_id=broker, log_dir="dir1", total_bytes=total, available_bytes=available
        )
        changed = self.throttle.take(Observation(status=Status.SUCCESS, volumes=[volume]), now_ms)
        self.engine.set_factor(PRODUCE, self.throttle.factor)
        return changed

    def lane(self, quota_type: QuotaType = PRODUCE, user: str = "foo") -> Lane:
        found = self.engine.lane(quota_type, 1, user, "clientId", 0)
        assert found is not None
        return found


def test_quota_defaults() -> None:
    """quotaDefaults: theirs are 1.8e308."""
    broker = Broker(SERVERS)

    assert (broker.lane(PRODUCE).limit, broker.lane(FETCH).limit) == (None, None)


def test_produce_quota() -> None:
    """produceQuota."""
    assert Broker({**SERVERS, f"{P}.produce": "1024"}).lane().limit == 1024


@pytest.mark.parametrize(
    ("name", "limit", "total", "available"),
    [
        ("shouldNotThrottleToZeroBytes", {BYTES: "15"}, 50, 10),
        ("shouldThrottleOnAvailableRatio", {RATIO: "0.5"}, 30, 15),
    ],
)
def test_a_breached_limit(name: str, limit: dict[str, str], total: int, available: int) -> None:
    """Theirs lets 1 byte/s pass, for which clients are told to wait for days; here nothing passes, for bounded times."""
    broker = Broker({**SERVERS, **limit, INTERVAL: "10"})

    broker.observe(available, total=total)

    assert (broker.lane().limit, broker.lane().is_shut) == (0.0, True), name


def test_configuring_check_interval_with_no_volume_limits_disables_storage_check() -> None:
    """configuringCheckIntervalWithNoVolumeLimitsDisablesStorageCheck."""
    assert read_volume_settings({**SERVERS, INTERVAL: "10"})[0].source == "none"


def test_configuring_both_per_volume_limit_types_not_allowed() -> None:
    """configuringBothPerVolumeLimitTypesNotAllowed."""
    _, faults = read_volume_settings({**SERVERS, BYTES: "1", RATIO: "0.5", INTERVAL: "10"})

    assert [fault.place for fault in faults] == [RATIO]


def test_excluded_principal() -> None:
    """excludedPrincipal, which has a name with commas, and one without its type."""
    names = "User:foo;User:bar;User:CN=my-cluster,O=io.strimzi"
    given = {**MINIMUM, f"{P}.produce": "1024", f"{P}.excluded.principal.name.list": names}
    with pytest.raises(ConfigurationError, match="arnost"):
        StaticQuotaCallback().configure(
            given | {f"{P}.excluded.principal.name.list": f"{names};arnost"}
        )
    broker = Broker(given)

    users = ("foo", "baz", "CN=my-cluster,O=io.strimzi", "arnost")
    assert [broker.lane(user=user).limit for user in users] == [None, 1024, None, 1024]
    broker.observe(0)
    assert [broker.lane(user=user).limit for user in users] == [None, 0.0, None, 0.0]


@pytest.mark.parametrize(
    ("name", "interval", "scheduled"),
    [
        ("shouldScheduleStorageChecker", "20", ("cluster", 20_000)),
        ("shouldNotScheduleStorageCheckWhenCheckIntervalIsZero", "0", ("none", 0)),
    ],
)
def test_what_is_scheduled(name: str, interval: str, scheduled: tuple[str, int]) -> None:
    settings, _ = read_volume_settings(MINIMUM | {INTERVAL: interval})

    assert (settings.source, settings.check_interval_ms) == scheduled, name


@pytest.mark.parametrize(
    ("name", "later_ms", "changed", "limit"),
    [
        ("observationsForNodesThatDropOutOfActiveSetAreValidUntilExpiry", VALIDITY_MS - 1, False, 0.0),
        ("cachedObservationsExpireAfterValidityDuration", VALIDITY_MS, True, None),
    ],
)  # fmt: skip
def test_a_full_broker_that_drops_out(
    name: str, later_ms: int, *, changed: bool, limit: float | None
) -> None:
    broker = Broker(MINIMUM)
    assert broker.observe(0, broker=0)

    assert broker.observe(50, later_ms, broker=1) is changed, name
    assert broker.lane().limit == limit


def test_quota_reset_required() -> None:
    """quotaResetRequired, quotaResetRequiredShouldRespectQuotaType."""
    broker = Broker(MINIMUM)
    callback = broker.engine.callback
    for quota_type in (PRODUCE, FETCH):
        assert [callback.quota_reset_required(quota_type) for _ in range(2)] == [True, False]
    fetch = broker.lane(FETCH).version

    assert [broker.observe(available) for available in (1, 1, 3, 2)] == [True, False, True, True]
    assert broker.lane(FETCH).version == fetch


def values(families: list[Family]) -> dict[str, list[float]]:
    return {family.metric.name: [value for _, value in family.samples] for family in families}


def test_static_quota_metrics() -> None:
    """staticQuotaMetrics: names are part of the public API."""
    callback = StaticQuotaCallback()
    callback.configure({**SERVERS, f"{P}.produce": "15", f"{P}.fetch": "16", f"{P}.request": "17"})

    prefix = "io_strimzi_kafka_quotas_staticquotacallback"
    assert values(list(static_families(callback.limits))) == {
        f"{prefix}_produce": [15],
        f"{prefix}_fetch": [16],
        f"{prefix}_request": [17],
    }


def test_metrics_of_a_look() -> None:
    """VolumeSourceTest: shouldCreateConsumedBytesMetricForALogDir, shouldCreateAvailableBytesMetricForALogDir,
    shouldTrackEvolutionOfConsumedBytesMetricForALogDir, shouldTrackEvolutionOfAvailableBytesMetricForALogDir,
    shouldCreateConsumedBytesMetricForEachLogDir, shouldCreateAvailableBytesMetricForEachLogDir,
    shouldCountEachActiveBrokerInDescribeClusterResponse, shouldCountEachActiveLogDirInDescribeLogDirsResponse.
    """
    broker = Broker(MINIMUM)
    prefix = "io_strimzi_kafka_quotas_volumesource_"

    def look(*rows: tuple[int, str, int, int]) -> dict[str, dict[str, float]]:
        volumes = [
            Volume(broker_id=node, log_dir=log_dir, total_bytes=total, available_bytes=free)
            for node, log_dir, total, free in rows
        ]
        ids = sorted({row[0] for row in rows})
        broker.throttle.take(Observation(status=Status.SUCCESS, volumes=volumes, broker_ids=ids), 0)
        families = list(volume_families(facts_of(broker.throttle, "gw")))
        return {
            family.metric.name.removeprefix(prefix): dict(family.samples)
            for family in families
            if family.metric.name.startswith(prefix)
        }

    def labels(node: int, log_dir: str) -> str:
        return label_text(
            {"observingBrokerId": "gw", "remoteBrokerId": str(node), "logDir": log_dir}
        )

    assert look((1, "dir1", 50, 10))["consumedbytes"] == {labels(1, "dir1"): 40}
    assert look((1, "dir1", 50, 20))["consumedbytes"] == {labels(1, "dir1"): 30}
    assert look((1, "dir1", 50, 20))["availablebytes"] == {labels(1, "dir1"): 20}
    found = look((1, "dir1", 50, 10), (1, "dir2", 60, 15), (2, "dir3", 40, 1))
    keys = [labels(1, "dir1"), labels(1, "dir2"), labels(2, "dir3")]
    assert found["consumedbytes"] == dict(zip(keys, (40, 45, 39), strict=True))
    assert found["availablebytes"] == dict(zip(keys, (10, 15, 1), strict=True))
    assert found["activebrokers"] == {label_text({"observingBrokerId": "gw"}): 2}
    assert found["activelogdirs"] == {label_text({"observingBrokerId": "gw"}): 3}


@pytest.mark.parametrize("illegal", [":", "//", "*", "?", ",", "="])
def test_a_label_holds_whatever_a_log_directory_is_called(illegal: str) -> None:
    """shouldSanitiseTagValues: names of JMX lose these, and may collide; a label in quotes needs not."""
    assert label_text({"logDir": f"value{illegal}", "key2": "value2"}) == (
        f'logDir="value{illegal}",key2="value2"'
    )
