"""An admin client for Kafka: asyncio, typed, with KIP-599's waits and retries.

    async with AdminClient("127.0.0.1:9092") as admin:
        results = await admin.create_topics([NewTopic("orders", 12, 3)])
        results.all()

The page docs/admin-client.md shows it at work; names that are not here are nobody's to rely on.
"""

from kvota.admin.admin_client import AdminClient
from kvota.admin.asking import Patience
from kvota.admin.client_quotas import (
    ClientQuotaAlteration,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from kvota.admin.configs import (
    AlterConfigOp,
    Config,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
    OpType,
)
from kvota.admin.errors import ApiTimeoutError, OutcomeUnknownError, ThrottlingQuotaExceededError
from kvota.admin.group_offsets import OffsetAndMetadata
from kvota.admin.log_dirs import LogDirDescription, ReplicaInfo
from kvota.admin.offsets import OffsetInfo, OffsetSpec
from kvota.admin.producers import ProducerState
from kvota.admin.results import Results
from kvota.admin.scram_users import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kvota.admin.topics import (
    ClusterDescription,
    CreatedTopic,
    NewPartitions,
    NewTopic,
    TopicListing,
    TopicPartition,
)
from kvota.client import (
    Broker,
    BrokerError,
    Partition,
    ProtocolError,
    Security,
    Tls,
    TlsError,
    Topic,
    UnreachableError,
)
from kvota.model.errors import KvotaError, UsageError
from kvota.model.quota_entity import DEFAULT, QuotaEntity

__all__ = [
    "DEFAULT",
    "AdminClient",
    "AlterConfigOp",
    "ApiTimeoutError",
    "Broker",
    "BrokerError",
    "ClientQuotaAlteration",
    "ClientQuotaFilter",
    "ClientQuotaFilterComponent",
    "ClusterDescription",
    "Config",
    "ConfigEntry",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSource",
    "ConfigSynonym",
    "CreatedTopic",
    "KvotaError",
    "LogDirDescription",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetInfo",
    "OffsetSpec",
    "OpType",
    "OutcomeUnknownError",
    "Partition",
    "Patience",
    "ProducerState",
    "ProtocolError",
    "QuotaEntity",
    "ReplicaInfo",
    "Results",
    "ScramCredentialInfo",
    "ScramMechanism",
    "Security",
    "ThrottlingQuotaExceededError",
    "Tls",
    "TlsError",
    "Topic",
    "TopicListing",
    "TopicPartition",
    "UnreachableError",
    "UsageError",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
]
