"""The metrics of the volume quota: Strimzi's own of every generation, and what they do not tell.

Strimzi's as the JMX exporter writes them: ``io.strimzi.kafka.quotas:type=T,name=N`` in small letters, with its
tags as labels. ``observingBrokerId`` is the gateway's name: it is who observes here.
"""

from kvota.metrics.metric import Metric, MetricKind

_COUNTER, _GAUGE = MetricKind.COUNTER, MetricKind.GAUGE
_STRIMZI = "io_strimzi_kafka_quotas_"

OBSERVER = "observingBrokerId"
_OBSERVER = (OBSERVER,)
_LOG_DIR = (OBSERVER, "remoteBrokerId", "logDir")

# ---------------------------------------------------------------- all generations

STATIC_PRODUCE = Metric(
    f"{_STRIMZI}staticquotacallback_produce",
    _GAUGE,
    (),
    "The produce limit of the static callback as configured, in bytes per second, without the factor",
)
STATIC_FETCH = Metric(
    f"{_STRIMZI}staticquotacallback_fetch",
    _GAUGE,
    (),
    "The fetch limit of the static callback, in bytes per second",
)
STATIC_REQUEST = Metric(
    f"{_STRIMZI}staticquotacallback_request",
    _GAUGE,
    (),
    "The request limit of the static callback, in percent of a thread",
)

# ---------------------------------------------------------------- used bytes of one machine

TOTAL_USED = Metric(
    f"{_STRIMZI}storagechecker_totalstorageusedbytes",
    _GAUGE,
    (),
    "Used bytes of all volumes together (limits storage.soft and storage.hard)",
)
SOFT_LIMIT = Metric(
    f"{_STRIMZI}storagechecker_softlimitbytes", _GAUGE, (), "storage.soft: used bytes"
)
HARD_LIMIT = Metric(
    f"{_STRIMZI}storagechecker_hardlimitbytes", _GAUGE, (), "storage.hard: used bytes"
)

# ---------------------------------------------------------------- the released cluster mode

THROTTLE_FACTOR = Metric(
    f"{_STRIMZI}throttlefactor_throttlefactor",
    _GAUGE,
    _OBSERVER,
    "The factor of produce limits, 0 to 1; with throttle.factor.scope = broker: of the fullest broker",
)
FALLBACKS = Metric(
    f"{_STRIMZI}throttlefactor_fallbackthrottlefactorapplied_total",
    _COUNTER,
    _OBSERVER,
    "How often the fallback factor came into force",
)
VIOLATED = Metric(
    f"{_STRIMZI}throttlefactor_limitviolated_total",
    _COUNTER,
    _OBSERVER,
    "Volumes that breached a limit, added up over the looks",
)
ACTIVE_BROKERS = Metric(
    f"{_STRIMZI}volumesource_activebrokers",
    _GAUGE,
    _OBSERVER,
    "Brokers that the cluster named at the last look",
)
ACTIVE_LOG_DIRS = Metric(
    f"{_STRIMZI}volumesource_activelogdirs",
    _GAUGE,
    _OBSERVER,
    "Log directories with a size, at the last look that succeeded",
)
AVAILABLE = Metric(
    f"{_STRIMZI}volumesource_availablebytes",
    _GAUGE,
    _LOG_DIR,
    "What is available of each volume that counts now",
)
CONSUMED = Metric(
    f"{_STRIMZI}volumesource_consumedbytes",
    _GAUGE,
    _LOG_DIR,
    "What is used of each volume that counts now, by whomever",
)
CACHED = Metric(
    f"{_STRIMZI}cachingvolumeobserver_cachedentries",
    _GAUGE,
    _OBSERVER,
    "Volumes that are remembered, those of brokers that are away among them",
)
EVICTIONS = Metric(
    f"{_STRIMZI}cachingvolumeobserver_logdirevictions_total",
    _COUNTER,
    _LOG_DIR,
    "How often a volume was forgotten because it had not been seen for the validity",
)

# ---------------------------------------------------------------- the proposal (which writes ClusterVolumeSouce)

LOCAL_FACTOR = Metric(
    f"{_STRIMZI}localthrottlefactor_throttlefactor",
    _GAUGE,
    (),
    "The same as throttlefactor_throttlefactor, under the proposal's name",
)
LOCAL_FALLBACKS = Metric(
    f"{_STRIMZI}localthrottlefactor_fallbackthrottlefactorapplied_total",
    _COUNTER,
    ("reason",),
    "How often the fallback factor came into force, by how the last look ended (NO_OBSERVATION: none has)",
)
THROTTLING_VOLUME = Metric(
    f"{_STRIMZI}localthrottlefactor_throttlingvolume",
    _GAUGE,
    ("brokerId", "volumeLogDir"),
    "The volume that breached a limit last and most severely: 1 while it does, 0 afterwards",
)
PROPOSED_BROKERS = Metric(
    f"{_STRIMZI}clustervolumesource_activebrokers",
    _GAUGE,
    (),
    "The same as volumesource_activebrokers, under the proposal's name",
)
PROPOSED_LOG_DIRS = Metric(
    f"{_STRIMZI}clustervolumesource_activelogdirs",
    _GAUGE,
    (),
    "The same as volumesource_activelogdirs, under the proposal's name",
)

# ---------------------------------------------------------------- what these do not tell

FACTOR = Metric(
    "kvota_produce_factor",
    _GAUGE,
    ("node_id",),
    "The factor in force: of each broker where it has its own, and without node_id of all others",
)
FALLBACK = Metric(
    "kvota_produce_factor_is_fallback", _GAUGE, (), "1 while no look at the volumes is valid"
)
LOOKS = Metric(
    "kvota_volume_looks_total",
    _COUNTER,
    ("status",),
    "Looks at the volumes that have ended, by how (SUCCESS, DESCRIBE_LOG_DIR_ERROR, …)",
)
DROPPED = Metric(
    "kvota_volumes_without_size",
    _GAUGE,
    (),
    "Log directories that tell no size (offline) and do not count, at the last look that succeeded",
)

VOLUME_METRICS: tuple[Metric, ...] = tuple(
    value for value in tuple(globals().values()) if isinstance(value, Metric)
)
