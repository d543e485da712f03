"""Shares a capacity by weighted max-min fairness: nobody gets more than they claim."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, inf

# A sum may be off by a rounding error; the level is lowered by this factor until the sum fits.
_LESS = 1 - 2**-50


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One tenant's claim, with the bounds of what it may get.

    Raises:
        ValueError: a weight that is not above 0, or a negative claim or bound.
    """

    claim: float
    weight: float = 1.0
    at_least: float = 0.0
    at_most: float = inf

    def __post_init__(self) -> None:
        """Refuse a claim for which no share exists."""
        if not 0 < self.weight < inf:
            msg = f"weight {self.weight} is not above 0"
            raise ValueError(msg)
        if not (0 <= self.claim < inf and 0 <= self.at_least < inf and self.at_most >= 0):
            msg = f"a claim and its bounds are not below 0 and finite: {self}"
            raise ValueError(msg)

    @property
    def top(self) -> float:
        """Return the most it can get: its claim within its bounds; ``at_least`` wins."""
        return max(self.at_least, min(self.claim, self.at_most))


@dataclass(frozen=True, slots=True)
class Shares:
    """The share of each claim, in the order of the claims."""

    shares: tuple[float, ...]
    level: float  # the share of one unit of weight where the capacity decides; inf: all claims fit
    spare: (
        float  # capacity nobody asked for; below 0: the lower bounds alone are more than there is
    )


def fair_shares(claims: Sequence[Claim], capacity: float) -> Shares:
    """Give each ``weight x level`` within its bounds and claim; the level uses up the capacity.

    Equal claims get equal shares; a larger claim, weight or capacity never gets less; the sum is at
    most the capacity, unless the lower bounds alone exceed it.

    >>> fair_shares([Claim(claim=2), Claim(claim=50), Claim(claim=50, weight=3)], 10.0).shares
    (2, 2.0, 6.0)
    """
    wanted = fsum(claim.top for claim in claims)
    if wanted <= capacity:
        return Shares(tuple(claim.top for claim in claims), inf, capacity - wanted)
    level = _level(claims, capacity)
    shares = _at(claims, level)
    floor = fsum(claim.at_least for claim in claims)
    while fsum(shares) > max(capacity, floor):
        level *= _LESS
        shares = _at(claims, level)
    return Shares(shares, level, min(0.0, capacity - floor))


def _at(claims: Sequence[Claim], level: float) -> tuple[float, ...]:
    return tuple(min(claim.top, max(claim.at_least, claim.weight * level)) for claim in claims)


def _level(claims: Sequence[Claim], capacity: float) -> float:
    """Find the level at which the sum of all shares, which grows with it, meets the capacity."""
    # The sum grows in straight pieces. Each turn has its level, the amount that becomes fixed there,
    # and the weight that begins (or stops) to grow.
    turns = [(claim.at_least / claim.weight, -claim.at_least, claim.weight) for claim in claims]
    turns += [(claim.top / claim.weight, claim.top, -claim.weight) for claim in claims]
    fixed, growing, level = fsum(claim.at_least for claim in claims), 0.0, 0.0
    for turn, more_fixed, more_growing in sorted(turns):
        if growing > 0 and fixed + growing * turn >= capacity:
            return max(level, (capacity - fixed) / growing)
        level = turn
        fixed += more_fixed
        growing += more_growing
    return level
