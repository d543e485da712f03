"""What all connections of one gateway have in common."""

from dataclasses import dataclass

from kvota.engine import QuotaEngine
from kvota.model.decision_sink import DecisionSink
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.session.budget import AnnouncedBudgets
from kvota.session.facts import ClusterFacts
from kvota.session.produce_quota import ProduceQuota
from kvota.session.settings import ConnectionSettings
from kvota.session.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The gateway's one engine, one record, and what it knows of the cluster.

    Attributes:
        default_callback: decides for clients about which ``engine.callback`` has not answered in time.
        produce_quotas: what a Produce is charged on beside its bytes.
    """

    engine: QuotaEngine
    sink: DecisionSink
    topology: Topology
    budgets: AnnouncedBudgets
    facts: ClusterFacts
    settings: ConnectionSettings
    default_callback: ClientQuotaCallback
    produce_quotas: tuple[ProduceQuota, ...] = ()
