"""All connections are looked at a part at a time: what arrives meanwhile does not wait for the whole round."""

from collections.abc import Iterable, Iterator
from itertools import islice

from kvota.gateway.driver import Driver

# Some µs each: whoever is in the way of nobody waits some 100 µs for a part.
PART = 40
# With very many connections parts are larger, so that a round is over soon where each turn of the loop takes long.
PARTS_MAX = 100


def in_parts(drivers: Iterable[Driver]) -> Iterator[list[Driver]]:
    """Those who are there now, in their order; whoever is given a later part may have left meanwhile."""
    all_now = list(drivers)
    size = max(PART, -(-len(all_now) // PARTS_MAX))
    rest = iter(all_now)
    while part := list(islice(rest, size)):
        yield part
