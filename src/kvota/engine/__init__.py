"""Decides. Time comes in as ``now_ms``, a decision goes out. Kafka's arithmetic bit for bit."""

from kvota.engine.bandwidth import BandwidthLane
from kvota.engine.decision import Decision
from kvota.engine.engine import QuotaEngine
from kvota.engine.mutations import MutationQuota
from kvota.engine.quota_table import QuotaTable
from kvota.engine.sampled_rate import SampledRate
from kvota.engine.token_bucket import TokenBucket
from kvota.model.quota_type import QuotaType
from kvota.model.quota_window import QuotaWindow

__all__ = [
    "BandwidthLane",
    "Decision",
    "MutationQuota",
    "QuotaEngine",
    "QuotaTable",
    "QuotaType",
    "QuotaWindow",
    "SampledRate",
    "TokenBucket",
]
