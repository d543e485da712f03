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
from kvota.admin.errors import ApiTimeoutError, OutcomeUnknownError, ThrottlingQuotaExceededError
from kvota.admin.results import Results
from kvota.client import BrokerError, Security, UnreachableError
from kvota.model.errors import KvotaError, UsageError
from kvota.model.quota_entity import DEFAULT, QuotaEntity

__all__ = [
    "DEFAULT",
    "AdminClient",
    "ApiTimeoutError",
    "BrokerError",
    "ClientQuotaAlteration",
    "ClientQuotaFilter",
    "ClientQuotaFilterComponent",
    "KvotaError",
    "OutcomeUnknownError",
    "Patience",
    "QuotaEntity",
    "Results",
    "Security",
    "ThrottlingQuotaExceededError",
    "UnreachableError",
    "UsageError",
]
