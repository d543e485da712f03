"""One table has all that the gateway knows of each API; forwarding, patching and limits read it.

Kafka 4.3, with the lower versions that brokers up to 3.9 still answer. A key or version that is
not here is neither advertised nor forwarded. Left out on purpose: keys between brokers and
controllers (4-7, 52-54, 56, 58, 59, 62, 63, 67, 70, 73, 82-87; UpdateRaftVoter also answers with
the leader's address).
"""

from dataclasses import dataclass
from enum import IntEnum

PRODUCE = 0
FETCH = 1
LIST_OFFSETS = 2
METADATA = 3
FIND_COORDINATOR = 10
SASL_HANDSHAKE = 17
API_VERSIONS = 18
CREATE_TOPICS = 19
DELETE_TOPICS = 20
INIT_PRODUCER_ID = 22
ADD_PARTITIONS_TO_TXN = 24
ADD_OFFSETS_TO_TXN = 25
TXN_OFFSET_COMMIT = 28
DESCRIBE_ACLS = 29
DESCRIBE_CONFIGS = 32
ALTER_CONFIGS = 33
SASL_AUTHENTICATE = 36
CREATE_PARTITIONS = 37
INCREMENTAL_ALTER_CONFIGS = 44
DESCRIBE_CLIENT_QUOTAS = 48
ALTER_CLIENT_QUOTAS = 49
DESCRIBE_CLUSTER = 60
DESCRIBE_PRODUCERS = 61
SHARE_GROUP_HEARTBEAT = 76
SHARE_GROUP_DESCRIBE = 77
SHARE_FETCH = 78
SHARE_ACKNOWLEDGE = 79

# Share groups (KIP-932): a client that finds one of these takes the others for granted.
SHARE_GROUPS = frozenset(
    {SHARE_GROUP_HEARTBEAT, SHARE_GROUP_DESCRIBE, SHARE_FETCH, SHARE_ACKNOWLEDGE}
)
# A broker that serves this version of ShareFetch takes one that acquires nothing (``wire.share_fetch``).
SHARE_FETCH_OF_NOTHING_FROM = 2

# The gateway answers these itself, so clients may use them though their broker is too old for them.
ANSWERED_HERE = (DESCRIBE_CLIENT_QUOTAS, ALTER_CLIENT_QUOTAS)

# Versions are int16: no version reaches this one.
NEVER = 1 << 15

_KIB = 1024
_MIB = 1024 * _KIB

# The largest size that a request may announce. A broker seems to allocate the announced length at
# once, so only those APIs may announce much whose requests can really be that large.
PRODUCE_BYTES_MAX = 100 * _MIB  # Kafka's socket.request.max.bytes
SASL_BYTES_MAX = 512 * _KIB  # Kafka's sasl.server.max.receive.size
OPENING_BYTES_MAX = 8 * _KIB  # two names and a mechanism: the first messages of any stranger
PARTITION_LIST_BYTES_MAX = 8 * _MIB  # 200,000 partitions of a Fetch at 33 bytes
MUTATION_BYTES_MAX = 4 * _MIB  # 10,000 partitions (KRaft takes no more) with assignments, configs
TELEMETRY_BYTES_MAX = 4 * _MIB  # Kafka's telemetry.max.bytes is 1 MiB
OTHER_BYTES_MAX = 1 * _MIB


class Treatment(IntEnum):
    """How a connection treats the requests and answers of an API."""

    PASS = 0  # both go through; only their heads are read
    PRODUCE = 1  # the request is charged, its acks are read, the answer is patched
    FETCH = 2  # the request's limits are lowered, the answer is charged and patched
    REWRITE = 3  # the answer is read whole; its addresses become the gateway's, or are hidden
    EXCHANGE = 4  # the request is read whole: what goes on, who the client is, what it is told
    COUNTED = 5  # as PASS; as EXCHANGE for users whose producer ids are counted
    SHARE_FETCH = 6  # as FETCH, but that every answer is delivered: its records are acquired


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One row of the table describes one API key; its versions are inclusive."""

    key: int
    name: str
    version_min: int
    version_max: int
    flexible_from: int  # first version with tagged fields and compact lengths; NEVER
    throttle_from: int  # first version that has the field; NEVER where it is absent
    addresses_from: int  # first version with brokers' addresses (see kvota.wire.addresses); NEVER
    treatment: Treatment
    request_bytes_max: int

    @property
    def versions(self) -> tuple[int, int]:
        """Returns the lowest and the highest version."""
        return self.version_min, self.version_max


def _api(  # noqa: PLR0913 - one row of a table reads best as one call
    key: int,
    name: str,
    version_max: int,
    *,
    version_min: int = 0,
    flexible_from: int,
    throttle_from: int = 0,
    addresses_from: int = NEVER,
    treatment: Treatment | None = None,
    request_bytes_max: int = OTHER_BYTES_MAX,
) -> Api:
    # An answer with addresses is rewritten though its row does not say so: none is forgotten.
    default = Treatment.PASS if addresses_from == NEVER else Treatment.REWRITE
    return Api(
        key=key,
        name=name,
        version_min=version_min,
        version_max=version_max,
        flexible_from=flexible_from,
        throttle_from=throttle_from,
        addresses_from=addresses_from,
        treatment=default if treatment is None else treatment,
        request_bytes_max=request_bytes_max,
    )


_BIG = PARTITION_LIST_BYTES_MAX
_MUTATION = MUTATION_BYTES_MAX

_TABLE = (
    _api(
        PRODUCE,
        "Produce",
        13,
        flexible_from=9,
        throttle_from=1,
        addresses_from=10,
        treatment=Treatment.PRODUCE,
        request_bytes_max=PRODUCE_BYTES_MAX,
    ),
    _api(
        FETCH,
        "Fetch",
        18,
        flexible_from=12,
        throttle_from=1,
        addresses_from=16,
        treatment=Treatment.FETCH,
        request_bytes_max=_BIG,
    ),
    _api(LIST_OFFSETS, "ListOffsets", 11, flexible_from=6, throttle_from=2, request_bytes_max=_BIG),
    _api(
        METADATA,
        "Metadata",
        13,
        flexible_from=9,
        throttle_from=3,
        addresses_from=0,
        request_bytes_max=_BIG,
    ),
    _api(8, "OffsetCommit", 10, flexible_from=8, throttle_from=3, request_bytes_max=_BIG),
    _api(9, "OffsetFetch", 10, flexible_from=6, throttle_from=3, request_bytes_max=_BIG),
    _api(
        FIND_COORDINATOR,
        "FindCoordinator",
        6,
        flexible_from=3,
        throttle_from=1,
        addresses_from=0,
        # A few thousand groups; a broker asked for 170,000 at once needs many seconds, and so do we.
        request_bytes_max=64 * _KIB,
    ),
    _api(11, "JoinGroup", 9, flexible_from=6, throttle_from=2, request_bytes_max=_BIG),
    _api(12, "Heartbeat", 4, flexible_from=4, throttle_from=1),
    _api(13, "LeaveGroup", 5, flexible_from=4, throttle_from=1),
    _api(14, "SyncGroup", 5, flexible_from=4, throttle_from=1, request_bytes_max=_BIG),
    _api(15, "DescribeGroups", 6, flexible_from=5, throttle_from=1),
    _api(16, "ListGroups", 5, flexible_from=3, throttle_from=1),
    _api(
        SASL_HANDSHAKE,
        "SaslHandshake",
        1,
        flexible_from=NEVER,
        throttle_from=NEVER,
        treatment=Treatment.EXCHANGE,
        request_bytes_max=OPENING_BYTES_MAX,
    ),
    _api(
        API_VERSIONS,
        "ApiVersions",
        4,
        flexible_from=3,
        throttle_from=1,
        treatment=Treatment.EXCHANGE,
        request_bytes_max=OPENING_BYTES_MAX,
    ),
    _api(
        CREATE_TOPICS,
        "CreateTopics",
        7,
        flexible_from=5,
        throttle_from=2,
        treatment=Treatment.EXCHANGE,
        request_bytes_max=_MUTATION,
    ),
    _api(
        DELETE_TOPICS,
        "DeleteTopics",
        6,
        flexible_from=4,
        throttle_from=1,
        treatment=Treatment.EXCHANGE,
        request_bytes_max=_MUTATION,
    ),
    _api(21, "DeleteRecords", 2, flexible_from=2, request_bytes_max=_BIG),
    _api(INIT_PRODUCER_ID, "InitProducerId", 6, flexible_from=2),
    _api(23, "OffsetForLeaderEpoch", 4, flexible_from=4, throttle_from=2, request_bytes_max=_BIG),
    _api(
        ADD_PARTITIONS_TO_TXN,
        "AddPartitionsToTxn",
        5,
        flexible_from=3,
        treatment=Treatment.COUNTED,
        request_bytes_max=_BIG,
    ),
    _api(
        ADD_OFFSETS_TO_TXN,
        "AddOffsetsToTxn",
        4,
        flexible_from=3,
        treatment=Treatment.COUNTED,
    ),
    _api(26, "EndTxn", 5, flexible_from=3),
    _api(27, "WriteTxnMarkers", 2, flexible_from=1, throttle_from=NEVER),
    _api(
        TXN_OFFSET_COMMIT,
        "TxnOffsetCommit",
        5,
        flexible_from=3,
        treatment=Treatment.COUNTED,
        request_bytes_max=_BIG,
    ),
    _api(DESCRIBE_ACLS, "DescribeAcls", 3, flexible_from=2, treatment=Treatment.REWRITE),
    _api(30, "CreateAcls", 3, flexible_from=2, request_bytes_max=_BIG, treatment=Treatment.REWRITE),
    _api(31, "DeleteAcls", 3, flexible_from=2, request_bytes_max=_BIG, treatment=Treatment.REWRITE),
    _api(
        DESCRIBE_CONFIGS,
        "DescribeConfigs",
        4,
        flexible_from=4,
        addresses_from=0,
        request_bytes_max=_BIG,
    ),
    _api(
        ALTER_CONFIGS,
        "AlterConfigs",
        2,
        flexible_from=2,
        treatment=Treatment.EXCHANGE,
        request_bytes_max=_BIG,
    ),
    _api(34, "AlterReplicaLogDirs", 2, flexible_from=2, request_bytes_max=_BIG),
    _api(35, "DescribeLogDirs", 5, flexible_from=2, request_bytes_max=_BIG),
    _api(
        SASL_AUTHENTICATE,
        "SaslAuthenticate",
        2,
        flexible_from=2,
        throttle_from=NEVER,
        treatment=Treatment.EXCHANGE,
        request_bytes_max=SASL_BYTES_MAX,
    ),
    _api(
        CREATE_PARTITIONS,
        "CreatePartitions",
        3,
        flexible_from=2,
        treatment=Treatment.EXCHANGE,
        request_bytes_max=_MUTATION,
    ),
    _api(38, "CreateDelegationToken", 3, flexible_from=2),
    _api(39, "RenewDelegationToken", 2, flexible_from=2),
    _api(40, "ExpireDelegationToken", 2, flexible_from=2),
    _api(41, "DescribeDelegationToken", 3, flexible_from=2),
    _api(42, "DeleteGroups", 2, flexible_from=2),
    _api(
        43, "ElectLeaders", 2, flexible_from=2, request_bytes_max=_BIG, treatment=Treatment.REWRITE
    ),
    _api(
        INCREMENTAL_ALTER_CONFIGS,
        "IncrementalAlterConfigs",
        1,
        flexible_from=1,
        treatment=Treatment.EXCHANGE,
        request_bytes_max=_BIG,
    ),
    _api(
        45,
        "AlterPartitionReassignments",
        1,
        flexible_from=0,
        request_bytes_max=_BIG,
        treatment=Treatment.REWRITE,
    ),
    _api(
        46,
        "ListPartitionReassignments",
        0,
        flexible_from=0,
        request_bytes_max=_BIG,
        treatment=Treatment.REWRITE,
    ),
    _api(47, "OffsetDelete", 0, flexible_from=NEVER, request_bytes_max=_BIG),
    _api(
        DESCRIBE_CLIENT_QUOTAS,
        "DescribeClientQuotas",
        1,
        flexible_from=1,
        treatment=Treatment.EXCHANGE,
        request_bytes_max=128 * _KIB,  # three names as long as a text can be
    ),
    _api(
        ALTER_CLIENT_QUOTAS,
        "AlterClientQuotas",
        1,
        flexible_from=1,
        treatment=Treatment.EXCHANGE,
        request_bytes_max=_MUTATION,
    ),
    _api(50, "DescribeUserScramCredentials", 0, flexible_from=0, treatment=Treatment.REWRITE),
    _api(51, "AlterUserScramCredentials", 0, flexible_from=0, treatment=Treatment.REWRITE),
    # v2 (KIP-853) lists the controllers' own listeners; v1 is offered, so that no address leaks.
    _api(55, "DescribeQuorum", 1, flexible_from=0, throttle_from=NEVER),
    _api(57, "UpdateFeatures", 2, flexible_from=0, treatment=Treatment.REWRITE),
    _api(
        DESCRIBE_CLUSTER,
        "DescribeCluster",
        2,
        flexible_from=0,
        addresses_from=0,
    ),
    _api(DESCRIBE_PRODUCERS, "DescribeProducers", 0, flexible_from=0),
    _api(64, "UnregisterBroker", 0, flexible_from=0, treatment=Treatment.REWRITE),
    _api(65, "DescribeTransactions", 0, flexible_from=0),
    _api(66, "ListTransactions", 2, flexible_from=0),
    _api(68, "ConsumerGroupHeartbeat", 1, flexible_from=0),
    _api(69, "ConsumerGroupDescribe", 1, flexible_from=0),
    _api(71, "GetTelemetrySubscriptions", 0, flexible_from=0),
    _api(72, "PushTelemetry", 0, flexible_from=0, request_bytes_max=TELEMETRY_BYTES_MAX),
    _api(74, "ListConfigResources", 1, flexible_from=0),
    _api(75, "DescribeTopicPartitions", 0, flexible_from=0),
    # v0 of share groups was Kafka 4.0's early access: laid out otherwise, and spoken by nobody since.
    _api(
        SHARE_GROUP_HEARTBEAT,
        "ShareGroupHeartbeat",
        1,
        version_min=1,
        flexible_from=0,
    ),
    _api(SHARE_GROUP_DESCRIBE, "ShareGroupDescribe", 1, version_min=1, flexible_from=0),
    _api(
        SHARE_FETCH,
        "ShareFetch",
        2,
        version_min=1,
        flexible_from=0,
        addresses_from=0,
        treatment=Treatment.SHARE_FETCH,
        request_bytes_max=_BIG,
    ),
    _api(
        SHARE_ACKNOWLEDGE,
        "ShareAcknowledge",
        2,
        version_min=1,
        flexible_from=0,
        addresses_from=0,
        request_bytes_max=_BIG,
    ),
    _api(80, "AddRaftVoter", 1, flexible_from=0, treatment=Treatment.REWRITE),
    _api(81, "RemoveRaftVoter", 0, flexible_from=0, treatment=Treatment.REWRITE),
    _api(88, "StreamsGroupHeartbeat", 0, flexible_from=0),
    _api(89, "StreamsGroupDescribe", 0, flexible_from=0),
    _api(90, "DescribeShareGroupOffsets", 1, flexible_from=0),
    _api(91, "AlterShareGroupOffsets", 0, flexible_from=0),
    _api(92, "DeleteShareGroupOffsets", 0, flexible_from=0),
)

APIS: dict[int, Api] = {api.key: api for api in _TABLE}


def name_of(key: int) -> str:
    """Returns the API's name for messages, e.g. ``Fetch``, or ``key 78`` for an unknown one."""
    api = APIS.get(key)
    return f"key {key}" if api is None else api.name
