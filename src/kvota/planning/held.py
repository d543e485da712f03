"""Judges from the record alone whether a limit held.

What a token bucket promises, in every interval, short or long, in seconds of quota (value / limit in
force):

    admitted <= elapsed + burst + debt_max + one request

where the limit is not raised within the interval: a debt is then as many bytes of the higher one, and what
holds over the raise is the same under the highest limit. ``elapsed`` is how far the decision clock went
forward: a step back counts as nothing. Of Fetches their answers are charged, so it is one answer in place of
the request. Of a sampled rate nothing is claimed, so there is nothing to judge.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

# The sums are of doubles.
_ROUNDING = 1e-9


class Decided(NamedTuple):
    """One row of one counter, in the order of the decisions.

    ``spent_s`` is value / limit in force, below 0: given back; None: rejected, only its time counts.
    """

    now_ms: int
    spent_s: float | None


class Charged(NamedTuple):
    """One row of one counter under the limit that was in force, None: none.

    ``value`` is in its unit, below 0: given back; None: rejected, only its time counts.
    """

    now_ms: int
    value: float | None
    limit: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """The time that a counter may be ahead of the clock, beside one request.

    Attributes:
        burst_s: what a full bucket holds.
        debt_max_s: what may be owed when one more is admitted (Kafka's mutations: nothing).
    """

    burst_s: float
    debt_max_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The interval of one counter in which it came nearest to its promise, or broke it most."""

    holds: bool
    admitted_s: float
    allowed_s: float
    elapsed_s: float


def held(rows: Iterable[Decided], promise: Promise) -> Held:
    """Judge whether in *every* interval no more was admitted than was promised.

    It is enough to look at the intervals that end with a charge, and of those at the one that has most
    ahead of the clock: it begins where everything before had been paid for. The one request is the
    last, as one is admitted only while no more than ``debt_max`` is owed.

    >>> rows = [Decided(0, 1.0), Decided(0, 2.0), Decided(500, 0.25), Decided(500, 0.25)]
    >>> held(rows[:3], Promise(burst_s=1.0, debt_max_s=1.5)).holds
    True
    >>> held(rows, Promise(burst_s=1.0, debt_max_s=1.5))
    Held(holds=False, admitted_s=3.5, allowed_s=3.25, elapsed_s=0.5)
    """
    worst = Held(holds=True, admitted_s=0.0, allowed_s=float("inf"), elapsed_s=0.0)
    last_ms: int | None = None
    admitted_s, elapsed_ms = 0.0, 0  # of the interval that has most ahead of the clock
    for now_ms, spent_s in rows:
        elapsed_ms += max(0, now_ms - (now_ms if last_ms is None else last_ms))
        last_ms = now_ms
        if admitted_s <= elapsed_ms / 1000:
            admitted_s, elapsed_ms = 0.0, 0
        if spent_s is None:
            continue
        admitted_s += spent_s
        if spent_s <= 0:
            continue
        allowed_s = elapsed_ms / 1000 + promise.burst_s + promise.debt_max_s + spent_s
        found = _judged(admitted_s, allowed_s, elapsed_ms / 1000)
        if found.admitted_s - found.allowed_s > worst.admitted_s - worst.allowed_s:
            worst = found
    return worst


def held_by_debt(rows: Iterable[Charged], promise: Promise) -> Held:
    """Judge a debt bucket whose limit may change; the worst of what is found.

    The promise is kept in every interval in which the limit is not raised; and in every interval of what
    is worth a second under the highest limit of all rows.

    >>> rows = [Charged(0, 9000.0, 1.0), Charged(0, 1.0, 1e4), Charged(1000, 1.0, 1.0)]
    >>> held_by_debt(rows, Promise(burst_s=1.0)).holds
    True
    >>> held_by_debt(
    ...     [*rows, Charged(1000, 1.0, 1.0), Charged(1000, 1.0, 1.0)], Promise(burst_s=1.0)
    ... ).holds
    False
    """
    stretches: list[list[Decided]] = [[]]
    all_rows = list(rows)
    last = 0.0
    for row in all_rows:
        limit = inf if row.limit is None else row.limit
        if limit > last:
            stretches.append([])
        stretches[-1].append(_decided(row, limit))
        last = limit
    highest = max((inf if row.limit is None else row.limit for row in all_rows), default=inf)
    accounts = [*stretches, [_decided(row, highest) for row in all_rows]]
    found = (held(account, promise) for account in accounts)
    return max(found, key=lambda one: one.admitted_s - one.allowed_s)


def _decided(row: Charged, limit: float) -> Decided:
    if row.value is None:
        return Decided(row.now_ms, None)
    # What is charged under a limit of 0 adds no debt.
    return Decided(row.now_ms, row.value / limit if limit > 0 and row.limit != 0 else 0.0)


def _judged(admitted_s: float, allowed_s: float, elapsed_s: float) -> Held:
    return Held(
        holds=admitted_s <= allowed_s + _ROUNDING * (1 + admitted_s),
        admitted_s=admitted_s,
        allowed_s=allowed_s,
        elapsed_s=elapsed_s,
    )
