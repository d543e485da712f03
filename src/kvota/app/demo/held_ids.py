"""How many producer ids the broker holds: asked of the broker itself, not of the gateway."""

import asyncio
from dataclasses import dataclass
from math import ceil

from kvota.admin import AdminClient, TopicPartition
from kvota.engine import Layering


@dataclass(frozen=True, slots=True)
class HeldIds:
    """What a broker holds of one topic's producers, before and after a run.

    Attributes:
        before, after: how many producer ids.
        elapsed_s: between the two.
    """

    before: int
    after: int
    elapsed_s: float

    @property
    def more(self) -> int:
        """How many it has learnt."""
        return self.after - self.before

    def allowed(self, rate: float, window_s: float, *, tried: int) -> int:
        """How many it may have learnt at most under a quota of so many new ids per window.

        Of those that are tried a few look like known ones, and pass uncounted.

        >>> HeldIds(0, 21, 30.0).allowed(20.0, 3600.0, tried=100)
        21
        """
        uncounted = tried * Layering().false_positive_rate
        return ceil(rate * (1 + self.elapsed_s / window_s) + uncounted)


def held_ids(bootstrap_servers: str, topic: str, partitions: int) -> int:
    """Ask the leaders of a topic's partitions for the producers that they know; return how many ids these have.

    Raises:
        KvotaError: there was no answer.
    """

    async def ask() -> int:
        async with AdminClient(bootstrap_servers) as admin:
            wanted = [TopicPartition(topic, number) for number in range(partitions)]
            found = (await admin.describe_producers(wanted)).all()
        return len({state.producer_id for states in found.values() for state in states})

    return asyncio.run(ask())
