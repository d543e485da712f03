"""Shares capacities by weighted max-min fairness: one number per tenant, which holds on every broker.

A quota is one number, and each broker holds a tenant to it by itself. What a tenant takes of a broker is
the least of its share and what it wants there, so who wants much on one broker takes nothing from those on
another. All shares grow together, each by its weight; where a broker is full, those stop who would take more of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One tenant's claims, with the bounds of what it may get.

    Attributes:
        wants: what it wants, by broker; infinite: all it can get.
        weight: above 0.
        at_least: the share is never below; what it wants of a broker may be.
        at_most: of the share; ``at_least`` wins.

    Raises:
        ValueError: a weight that is not above 0, or a negative claim or bound.
    """

    wants: Mapping[int, float]
    weight: float = 1.0
    at_least: float = 0.0
    at_most: float = inf

    def __post_init__(self) -> None:
        """Refuse a claim for which no share exists."""
        if not 0 < self.weight < inf:
            msg = f"weight {self.weight} is not above 0"
            raise ValueError(msg)
        if not (
            all(wanted >= 0 for wanted in self.wants.values())
            and 0 <= self.at_least < inf
            and self.at_most >= 0
        ):
            msg = f"a claim and its bounds are not below 0: {self}"
            raise ValueError(msg)

    @property
    def top(self) -> float:
        """The most it can get: its largest claim within its bounds; ``at_least`` wins."""
        return max(self.at_least, min(max(self.wants.values(), default=0.0), self.at_most))

    def share_at(self, level: float) -> float:
        """Its share where a unit of weight gets ``level``."""
        return min(self.top, max(self.at_least, self.weight * level))

    def taken(self, share: float, broker: int) -> float:
        """What it takes of a broker with this share."""
        return min(share, self.wants.get(broker, 0.0))


@dataclass(frozen=True, slots=True)
class Shares:
    """The share of each claim, in the order of the claims.

    Attributes:
        shares: none above the most that its tenant wants anywhere.
        levels: of each claim, the share of one unit of weight at which it stopped; infinite: it got all that it may.
        spare: by broker, what nobody takes; below 0: the lower bounds alone are more than there is.
    """

    shares: tuple[float, ...]
    levels: tuple[float, ...]
    spare: Mapping[int, float]


def fair_shares(claims: Sequence[Claim], capacities: Mapping[int, float]) -> Shares:
    """Fill progressively: all shares grow by their weights, until a broker is full or all have what they want.

    On every broker what is taken is at most its capacity, unless the lower bounds alone exceed it. Nobody's
    share can be raised without lowering that of somebody who has no more per weight.

    Args:
        claims: a broker that they name and ``capacities`` does not is without bound.
        capacities: by broker.

    >>> here, there = {0: 12.0}, {1: 12.0}
    >>> fair_shares([Claim(wants=here), Claim(wants=there)], {0: 20.0, 1: 20.0}).shares
    (12.0, 12.0)
    >>> fair_shares([Claim(wants={0: inf}), Claim(wants={0: 10.0})], {0: 20.0}).shares
    (10.0, 10.0)
    """
    levels = [inf] * len(claims)
    on_broker = {
        broker: [place for place, claim in enumerate(claims) if claim.wants.get(broker, 0.0) > 0]
        for broker in capacities
    }
    open_brokers = set(capacities)
    while open_brokers:
        found = {
            broker: _level(
                ((claims[place], levels[place], broker) for place in on_broker[broker]),
                capacities[broker],
            )
            for broker in sorted(open_brokers)
        }
        fullest = min(found, key=lambda broker: found[broker])
        if found[fullest] == inf:
            break
        for place in on_broker[fullest]:
            claim, level = claims[place], found[fullest]
            share = claim.share_at(min(level, levels[place]))
            # Who takes all it wants of this broker may grow on; what it takes here stays.
            if levels[place] == inf and share < min(claim.top, claim.wants[fullest]):
                levels[place] = level
        open_brokers.remove(fullest)
    shares = tuple(claim.share_at(level) for claim, level in zip(claims, levels, strict=True))
    spare = {
        broker: capacity
        - fsum(claims[place].taken(shares[place], broker) for place in on_broker[broker])
        for broker, capacity in capacities.items()
    }
    return Shares(shares, tuple(levels), spare)


def _level(claims: Iterable[tuple[Claim, float, int]], capacity: float) -> float:
    """Find the level at which a broker is full; infinite: it never is, 0: the lower bounds alone fill it."""
    # What is taken grows in straight pieces: each claim from its lower bound to the most it takes here.
    turns: list[tuple[float, float, float]] = []
    lows, highs = [], []
    for claim, level, broker in claims:
        low = claim.taken(claim.at_least, broker)
        high = claim.taken(claim.share_at(level), broker)
        lows.append(low)
        highs.append(high)
        if high > low:
            turns += [
                (low / claim.weight, -low, claim.weight),
                (high / claim.weight, high, -claim.weight),
            ]
    if fsum(highs) <= capacity:
        return inf
    fixed, growing, level_now = fsum(lows), 0.0, 0.0
    if fixed >= capacity:
        return 0.0
    for turn, more_fixed, more_growing in sorted(turns):
        if growing > 0 and fixed + growing * turn >= capacity:
            break
        level_now = turn
        fixed += more_fixed
        growing += more_growing
    return max(level_now, (capacity - fixed) / growing) if growing > 0 else level_now
