"""All metrics of a gateway. ``docs/metrics.md`` is held to this list by a test."""

from kvota.metrics.metric import Metric, MetricKind
from kvota.metrics.volume_metrics import VOLUME_METRICS

_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

# ---------------------------------------------------------------- Kafka's own names
# As the JMX exporter writes a broker's: domain, type, attribute. ``node_id`` is ours: a gateway counts for
# several brokers, and each broker's counters are its own.

COUNTER_LABELS = ("user", "client_id", "node_id")
CLUSTER_LABELS = ("user", "client_id")

PRODUCE_BYTE_RATE = Metric(
    "kafka_server_produce_byte_rate",
    _GAUGE,
    COUNTER_LABELS,
    "What was produced per second, in bytes, over the quota window (token_bucket: over 10 s)",
)
FETCH_BYTE_RATE = Metric(
    "kafka_server_fetch_byte_rate",
    _GAUGE,
    COUNTER_LABELS,
    "What was fetched per second, in bytes, over the quota window (token_bucket: over 10 s)",
)
REQUEST_TIME = Metric(
    "kafka_server_request_request_time",
    _GAUGE,
    CLUSTER_LABELS,
    "What requests took of the gateway's thread, in percent, over the quota window",
)
EXEMPT_REQUEST_TIME = Metric(
    "kafka_server_request_exempt_request_time",
    _GAUGE,
    (),
    "What requests took for which no time is charged (acks=0), in percent of the gateway's thread, over 30 to 60 s",
)
MUTATION_RATE = Metric(
    "kafka_server_controllermutation_mutation_rate",
    _GAUGE,
    CLUSTER_LABELS,
    "Partitions created, added and deleted per second, over 30 to 60 s",
)
MUTATION_RATE_KIP = Metric(
    "kafka_server_controllermutation_rate",
    _GAUGE,
    CLUSTER_LABELS,
    "The same under the name that KIP-599 gives it",
)
MUTATION_TOKENS = Metric(
    "kafka_server_controllermutation_tokens",
    _GAUGE,
    CLUSTER_LABELS,
    "Partitions that may be mutated now; below 0: the next mutation is rejected or throttled",
)
PRODUCER_IDS_RATE = Metric(
    "kafka_server_producerids_rate",
    _GAUGE,
    ("user",),
    "New producer ids that were let in per second, over the window's samples (producer.id.quota.window.num)",
)
PRODUCER_IDS_TOKENS = Metric(
    "kafka_server_producerids_tokens",
    _GAUGE,
    ("user",),
    "New producer ids that may come now; below 1: the next one is refused",
)
PRODUCER_IDS_DISTINCT = Metric(
    "kvota_producer_ids_distinct",
    _GAUGE,
    ("user",),
    "Producer ids that have produced within the window, known and new, but for false positives",
)
_THROTTLE_MEANING = "Mean of the throttle times in ms over the last 30 to 60 s, of those that were enforced; NaN: none was"
PRODUCE_THROTTLE_TIME = Metric(
    "kafka_server_produce_throttle_time", _GAUGE, COUNTER_LABELS, _THROTTLE_MEANING
)
FETCH_THROTTLE_TIME = Metric(
    "kafka_server_fetch_throttle_time", _GAUGE, COUNTER_LABELS, _THROTTLE_MEANING
)
REQUEST_THROTTLE_TIME = Metric(
    "kafka_server_request_throttle_time", _GAUGE, CLUSTER_LABELS, _THROTTLE_MEANING
)
MUTATION_THROTTLE_TIME = Metric(
    "kafka_server_controllermutation_throttle_time", _GAUGE, CLUSTER_LABELS, _THROTTLE_MEANING
)
PRODUCER_IDS_THROTTLE_TIME = Metric(
    "kafka_server_producerids_throttle_time", _GAUGE, ("user",), _THROTTLE_MEANING
)
_QUEUE_MEANING = "Connections that a quota of this type mutes now"
PRODUCE_QUEUE_SIZE = Metric("kafka_server_produce_queue_size", _GAUGE, (), _QUEUE_MEANING)
FETCH_QUEUE_SIZE = Metric("kafka_server_fetch_queue_size", _GAUGE, (), _QUEUE_MEANING)
REQUEST_QUEUE_SIZE = Metric("kafka_server_request_queue_size", _GAUGE, (), _QUEUE_MEANING)
MUTATION_QUEUE_SIZE = Metric(
    "kafka_server_controllermutation_queue_size", _GAUGE, (), _QUEUE_MEANING
)

PRODUCER_IDS_QUEUE_SIZE = Metric("kafka_server_producerids_queue_size", _GAUGE, (), _QUEUE_MEANING)

# ---------------------------------------------------------------- producer ids

PRODUCER_IDS_USERS = Metric(
    "kvota_producer_ids_users", _GAUGE, (), "Users of whom producer ids are known"
)
PRODUCER_IDS_BYTES = Metric(
    "kvota_producer_ids_filter_bytes", _GAUGE, (), "What the filters of known producer ids take"
)
PRODUCER_IDS_KEPT_BACK = Metric(
    "kvota_producer_ids_refused_partitions",
    _GAUGE,
    (),
    "Partitions of producers of which a refused batch has to come again before what follows",
)
PRODUCER_IDS_UNTRACKED = Metric(
    "kvota_producer_ids_untracked_total",
    _COUNTER,
    (),
    "Producer ids that passed uncounted: there were too many users",
)
PRODUCER_IDS_OVERFILLED = Metric(
    "kvota_producer_ids_overfilled_total",
    _COUNTER,
    (),
    "Producer ids that were put into a filter without room for them: more new ones pass as known",
)
PRODUCER_IDS_CLOSED = Metric(
    "kvota_producer_ids_connections_closed_total",
    _COUNTER,
    (),
    "Connections that were closed because no more refused partitions are remembered",
)
INIT_PRODUCER_IDS = Metric(
    "kvota_init_producer_id_total",
    _COUNTER,
    ("user", "kind"),
    "Requests for a producer id (InitProducerId); transactional: with a transactional id, which gets the same one again",
)
INIT_PRODUCER_ID_RATE = Metric(
    "kvota_init_producer_id_rate",
    _GAUGE,
    ("user",),
    "Those of them without a transactional id per second, over 30 to 60 s",
)

# ---------------------------------------------------------------- one counter of a quota

_OF_COUNTER = ("quota_type", *COUNTER_LABELS)

QUOTA_LIMIT = Metric(
    "kvota_quota_limit",
    _GAUGE,
    _OF_COUNTER,
    "The limit in force per second, in the unit of the type (bytes, percent, partitions), its factor included",
)
QUOTA_WAIT = Metric(
    "kvota_quota_wait_seconds",
    _GAUGE,
    _OF_COUNTER,
    "How long a request would be told to wait that costs nothing; in shadow mode: would be",
)
QUOTA_DEBT = Metric(
    "kvota_quota_debt_seconds",
    _GAUGE,
    _OF_COUNTER,
    "token_bucket: what is owed, as time at the limit; below 0: what is left of the burst",
)
QUOTA_WAITING = Metric(
    "kvota_quota_requests_waiting",
    _GAUGE,
    _OF_COUNTER,
    "Requests that wait for their turn, or Fetches for room",
)
QUOTA_CHARGED = Metric(
    "kvota_quota_charged_total",
    _COUNTER,
    _OF_COUNTER,
    "What was charged, in the unit of the type (bytes, percent-seconds, partitions)",
)
QUOTA_DECISIONS = Metric(
    "kvota_quota_decisions_total",
    _COUNTER,
    ("outcome", *_OF_COUNTER),
    "Decisions, by outcome (admitted, throttled, rejected)",
)
QUOTA_THROTTLE = Metric(
    "kvota_quota_throttle_seconds_total",
    _COUNTER,
    _OF_COUNTER,
    "The sum of the throttle times that were enforced",
)

# ---------------------------------------------------------------- decisions in all

DECISIONS = Metric(
    "kvota_decisions_total",
    _COUNTER,
    ("quota_type", "outcome", "enforced"),
    "Decisions; as many as the record has rows, but for those without charge that give something back",
)
CHARGED = Metric(
    "kvota_charged_total",
    _COUNTER,
    ("quota_type", "enforced"),
    "What was charged, in the unit of the type (bytes, percent-seconds, partitions)",
)
GIVEN_BACK = Metric(
    "kvota_given_back_total",
    _COUNTER,
    ("quota_type", "enforced"),
    "What was charged and given back: refused by the broker, or never sent whole",
)
GIVEN_BACK_ROWS = Metric(
    "kvota_given_back_rows_total",
    _COUNTER,
    ("quota_type", "enforced"),
    "How often something was given back",
)
COUNTERS = Metric(
    "kvota_quota_counters", _GAUGE, (), "Counters that are kept, with those that are put away"
)
COUNTERS_LOST = Metric(
    "kvota_quota_counters_lost_total",
    _COUNTER,
    (),
    "Counters that were forgotten although they still counted: there were too many",
)
SERIES = Metric(
    "kvota_quota_series",
    _GAUGE,
    ("shown",),
    "Counters that are summed up one by one; those that are not shown are in __other__",
)
UNCOUNTED = Metric(
    "kvota_decisions_uncounted_total",
    _COUNTER,
    (),
    "Decisions that no metric counts: they came faster than they are summed up or written",
)

# ---------------------------------------------------------------- connections and requests

CONNECTIONS = Metric("kvota_connections", _GAUGE, (), "Connections of clients")
CONNECTIONS_MAX = Metric(
    "kvota_connections_max", _GAUGE, (), "How many there may be (limits.connections_max)"
)
CONNECTIONS_ACCEPTED = Metric(
    "kvota_connections_accepted_total", _COUNTER, (), "Connections that were let in"
)
CONNECTIONS_REFUSED = Metric(
    "kvota_connections_refused_total",
    _COUNTER,
    ("reason",),
    "Connections that were refused (address: it has its share; full: all are in use; draining)",
)
CONNECTIONS_CLOSED = Metric(
    "kvota_connections_closed_total",
    _COUNTER,
    ("reason",),
    "Connections that have ended: by the client, the broker, or the gateway and why (made_room: gave way to others; idle: asked nothing)",
)
CONNECTIONS_PAUSED = Metric(
    "kvota_connections_paused",
    _GAUGE,
    ("reason",),
    "Connections whose next request is not taken yet; one may have several reasons",
)
REQUESTS = Metric("kvota_requests_total", _COUNTER, ("api",), "Requests that were taken")
REQUEST_BYTES = Metric("kvota_request_bytes_total", _COUNTER, ("api",), "Their sizes")
FETCHED_BYTES = Metric(
    "kvota_response_bytes_total",
    _COUNTER,
    ("api",),
    "Sizes of answers, for the API where they are charged (Fetch); emptied ones included",
)
REQUEST_TIME_EXEMPT = Metric(
    "kvota_request_time_exempt_seconds_total",
    _COUNTER,
    (),
    "What requests took for which no time is charged (acks=0), while it is charged for others",
)
BAD_FRAMES = Metric(
    "kvota_bad_frames_total",
    _COUNTER,
    ("reason",),
    "Bytes of clients that were no request, or over a limit; each ended its connection",
)
UPSTREAM_ERRORS = Metric(
    "kvota_upstream_errors_total",
    _COUNTER,
    ("reason",),
    "Brokers that could not be reached, closed with answers due, or answered what is not forwarded",
)

# ---------------------------------------------------------------- the gateway itself

MUTES = Metric("kvota_mutes_total", _COUNTER, (), "Mutes of connections that have ended by time")
MUTE_LATENESS = Metric(
    "kvota_mute_lateness_seconds", _HISTOGRAM, (), "How much later than due mutes ended"
)
LOOP_LAG = Metric(
    "kvota_loop_lag_seconds",
    _HISTOGRAM,
    (),
    "How late a timer of the gateway's event loop was, four times a second",
)
BUDGET = Metric(
    "kvota_budget_bytes",
    _GAUGE,
    ("budget",),
    "Memory in use (announced: by requests that are not here whole; mutations; answers; fetches)",
)
BUDGET_LIMIT = Metric(
    "kvota_budget_limit_bytes", _GAUGE, ("budget",), "How much that may be (announced: per broker)"
)
ROWS_WRITTEN = Metric("kvota_record_rows_written_total", _COUNTER, (), "Rows that are on disk")
ROWS_DROPPED = Metric(
    "kvota_record_rows_dropped_total", _COUNTER, (), "Rows that will be in no file"
)
TOPIC_ROWS_WRITTEN = Metric(
    "kvota_record_topic_rows_written_total", _COUNTER, (), "Rows that the topic of record.topic has"
)
TOPIC_ROWS_DROPPED = Metric(
    "kvota_record_topic_rows_dropped_total",
    _COUNTER,
    (),
    "Rows that the topic of record.topic will not have",
)
RECORDING_TO_TOPIC = Metric(
    "kvota_recording_to_topic",
    _GAUGE,
    (),
    "1 while the topic of record.topic takes decisions, 0 while the cluster does not",
)
RECORD_FILES = Metric("kvota_record_files", _GAUGE, (), "Files of the record")
RECORD_BYTES = Metric("kvota_record_bytes", _GAUGE, (), "Their sizes")
RECORDING = Metric(
    "kvota_recording", _GAUGE, (), "1 while decisions are recorded, 0 while the disk refuses"
)
QUOTAS_VERSION = Metric(
    "kvota_quotas_version", _GAUGE, (), "How often configured quotas have been put in force"
)
QUOTAS_ENTITIES = Metric("kvota_quotas_entities", _GAUGE, (), "Entities that have quotas")
QUOTAS_ENFORCED = Metric(
    "kvota_quotas_enforced", _GAUGE, ("quota_type",), "1: the type is enforced, 0: shadow mode"
)
RELOADS = Metric(
    "kvota_reloads_total",
    _COUNTER,
    ("result",),
    "Reloads of the files (done; refused: what was in force stays)",
)
CALLBACK_ERRORS = Metric(
    "kvota_callback_errors_total",
    _COUNTER,
    ("method",),
    "How often a quota callback, in force or closed since, has raised, answered nonsense or hung",
)
CLUSTER_STALE = Metric(
    "kvota_cluster_stale",
    _GAUGE,
    (),
    "1 while what is known of topics and leaders is old, or nothing is: the gateway looks, and nobody answers",
)
BUILD_INFO = Metric("kvota_build_info", _GAUGE, ("version",), "1, with the version of kvota")
DRAINING = Metric("kvota_draining", _GAUGE, (), "1 while the gateway drains")
HTTP_REQUESTS = Metric(
    "kvota_http_requests_total", _COUNTER, ("path", "code"), "Requests to this HTTP port"
)
HTTP_REFUSED = Metric(
    "kvota_http_connections_closed_total",
    _COUNTER,
    ("reason",),
    "Connections to this HTTP port that were closed (crowded: for a newer one; late)",
)
CPU = Metric(
    "process_cpu_seconds_total", _COUNTER, (), "CPU time of the gateway's process, all threads"
)
MEMORY = Metric("process_resident_memory_bytes", _GAUGE, (), "Memory of the gateway's process")
OPEN_FDS = Metric("process_open_fds", _GAUGE, (), "Open files of the gateway's process")
MAX_FDS = Metric("process_max_fds", _GAUGE, (), "How many it may open")
START_TIME = Metric(
    "process_start_time_seconds", _GAUGE, (), "When the gateway began to run, in Unix time"
)

DECLARED: tuple[Metric, ...] = (
    *(value for value in tuple(globals().values()) if isinstance(value, Metric)),
    *VOLUME_METRICS,
)
