"""Who shares a counter, and what its limit is (KIP-257)."""

from kvota.callbacks.default import DefaultQuotaCallback
from kvota.callbacks.grouped import GroupQuotaCallback
from kvota.callbacks.loading import ChosenCallback, load_callback
from kvota.callbacks.partition_share import PartitionShareQuotaCallback
from kvota.callbacks.static import StaticQuotaCallback
from kvota.model.cluster_view import BrokerView, ClusterView, TopicView
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_entity import DEFAULT, ConfigEntity, ConfigEntityType, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.tags import Tags

__all__ = [
    "DEFAULT",
    "BrokerView",
    "ChosenCallback",
    "ClientQuotaCallback",
    "ClusterView",
    "ConfigEntity",
    "ConfigEntityType",
    "DefaultQuotaCallback",
    "GroupQuotaCallback",
    "PartitionShareQuotaCallback",
    "QuotaEntity",
    "QuotaType",
    "StaticQuotaCallback",
    "Tags",
    "TopicView",
    "load_callback",
]
