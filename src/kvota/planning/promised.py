"""What the quotas of a plan add up to: they promise it, whatever tenants take.

A plan counts a tenant at what it takes, which is mostly less than its quota: quotas have headroom and floors, one
that comes down step by step is still large, and not all tenants need theirs at every gateway. So quotas may add up to
more than a capacity. That is no fault, but whoever applies them has to know it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum

from kvota.model.quota_type import QuotaType
from kvota.planning.plan_line import PlanLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    """What may be let in of the broker where that is most, if all used their quotas at once.

    Attributes:
        node_id: the broker; -1: the cluster.
        rate: per second, over all gateways.
        unlimited: so many more tenants of that broker have no quota.
    """

    node_id: int
    rate: float
    unlimited: int


def promised(lines: Iterable[PlanLine], gateways: int) -> dict[QuotaType, Promised]:
    """Add up quotas, by type, for the broker where the sum is largest.

    Args:
        lines: of a plan; a quota holds at each broker where its tenant was seen.
        gateways: each holds a tenant to its quota by itself.
    """
    quotas: dict[QuotaType, dict[int, list[float | None]]] = {}
    for line in lines:
        of_type = quotas.setdefault(line.quota_type, {})
        for node_id in line.node_ids:
            of_type.setdefault(node_id, []).append(line.proposed)
    return {
        quota_type: max(
            (_of_broker(node_id, of_type[node_id], gateways) for node_id in sorted(of_type)),
            key=lambda found: (found.rate, found.unlimited),
        )
        for quota_type, of_type in quotas.items()
        if of_type
    }


def _of_broker(node_id: int, quotas: list[float | None], gateways: int) -> Promised:
    limits = [quota for quota in quotas if quota is not None]
    return Promised(
        node_id=node_id, rate=fsum(limits) * gateways, unlimited=len(quotas) - len(limits)
    )
