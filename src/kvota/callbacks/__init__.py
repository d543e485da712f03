"""Who shares a counter, and what its limit is (KIP-257)."""

from kvota.callbacks.default import DefaultQuotaCallback
from kvota.callbacks.grouped import GroupQuotaCallback
from kvota.callbacks.loading import load_callback
from kvota.callbacks.static import StaticQuotaCallback
from kvota.model.quota_callback import ClientQuotaCallback

__all__ = [
    "ClientQuotaCallback",
    "DefaultQuotaCallback",
    "GroupQuotaCallback",
    "StaticQuotaCallback",
    "load_callback",
]
