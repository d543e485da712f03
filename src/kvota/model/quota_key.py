"""Kafka's own names of the configurable quotas."""

from kvota.model.quota_type import QuotaType

# Kafka's configuration key → quota type. Source: spec of AlterClientQuotas, KIP-257, KIP-599.
QUOTA_KEYS: dict[str, QuotaType] = {
    "producer_byte_rate": QuotaType.PRODUCE,
    "consumer_byte_rate": QuotaType.FETCH,
    "controller_mutation_rate": QuotaType.CONTROLLER_MUTATION,
}

KEY_OF_TYPE: dict[QuotaType, str] = {quota_type: key for key, quota_type in QUOTA_KEYS.items()}
