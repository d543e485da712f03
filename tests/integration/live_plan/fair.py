"""What greedy tenants should have of a broker, from its capacity and the known demand alone.

Nothing of the planner is in here: needs are what docs/what-replay-tells.md says they are, found by trying rates on the demand
itself, and the share of each is worked out by hand. So it tells whether a plan is right, and not only whether it was kept.
"""

from collections.abc import Sequence

from tests.integration.live_plan.clients import charged_bytes
from tests.integration.live_plan.demand import Demand, Tenant

# What is set aside for who behaves: its need, and so much of it more.
HEADROOM = 0.2
LEARN = 0.7
# A need: at most so many of the requests wait, none for longer, under a bucket that holds a second.
OVER_MAX, WORST_S, BURST_S = 0.001, 1.0, 1.0
_HALVINGS = 40

Charge = tuple[float, int]  # when, and how many bytes


def shares(demand: Demand, capacity: float, brokers: int) -> dict[str, float]:
    """What each greedy tenant may have of a broker, through all gateways, in bytes per second.

    All of them want more than they can have. A quota is one number, so who is on every broker is stopped by the one
    of which the others leave least; of that each has its part by weight.
    """
    left = min(
        capacity - sum(set_aside(demand, tenant, broker, brokers) for tenant in _behaving(demand))
        for broker in range(brokers)
    )
    return _by_weight(demand, left)


def unused_shares(demand: Demand, capacity: float, brokers: int) -> dict[str, float]:
    """The same, if nothing were set aside for busy moments: of what the others do not use on average."""
    used = max(
        sum(tenant.rate for tenant in _behaving(demand) if _is_on(tenant, broker, brokers))
        for broker in range(brokers)
    )
    return _by_weight(demand, capacity - used)


def set_aside(demand: Demand, tenant: Tenant, broker: int, brokers: int) -> float:
    """What a tenant that behaves may take of a broker through all gateways."""
    if not _is_on(tenant, broker, brokers):
        return 0.0
    needs = (need(_learnt(demand, tenant, gateway, broker)) for gateway in range(demand.gateways))
    return sum(needs) * (1 + HEADROOM)


def need(charges: Sequence[Charge]) -> float:
    """The smallest rate that is enough for these charges."""
    low, high = 0.0, float(sum(size for _, size in charges))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _is_enough(charges, middle):
            high = middle
        else:
            low = middle
    return high


def _is_enough(charges: Sequence[Charge], rate: float) -> bool:
    owed_s, last_s, over = -BURST_S, 0.0, 0
    for at_s, size in charges:
        owed_s = max(-BURST_S, owed_s - (at_s - last_s)) + size / rate
        last_s = at_s
        over += owed_s > 0
        if owed_s > WORST_S:
            return False
    return over <= len(charges) * OVER_MAX


def _learnt(demand: Demand, tenant: Tenant, gateway: int, broker: int) -> list[Charge]:
    """What it wants in the part of the time that a plan is learnt from."""
    until_s = round(demand.seconds * LEARN)
    return [
        (wanted.at_s, charged_bytes(tenant.name, wanted.value_bytes))
        for wanted in demand.of(tenant, gateway, broker)
        if wanted.at_s < until_s
    ]


def _by_weight(demand: Demand, left: float) -> dict[str, float]:
    greedy = [tenant for tenant in demand.tenants if tenant.is_greedy]
    weights = sum(tenant.weight for tenant in greedy)
    return {tenant.name: left * tenant.weight / weights for tenant in greedy}


def _behaving(demand: Demand) -> list[Tenant]:
    return [tenant for tenant in demand.tenants if not tenant.is_greedy]


def _is_on(tenant: Tenant, broker: int, brokers: int) -> bool:
    return tenant.on_every_broker or broker == brokers - 1
