"""A storm of topic mutations: many connections create and delete topics of the same few names, and heed no throttle time.

What has come of it is read from the cluster's own log of metadata, which neither a client nor a gateway can make look better.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field

from tests.adversary.cluster_log import CarriedOut, carried_out
from tests.adversary.frames import create_topics, delete_topics, errors_by_topic
from tests.adversary.wire_client import WireClient

from kvota.localkafka import LocalKafka

NONE, UNKNOWN, EXISTS, REFUSED = 0, 3, 36, 89
SIZE_MAX = 5
# Fewer names than connections: most requests meet others for the same topic.
NAMES = 30
# A refused client waits for a topic's partitions at most, or a broker's reaper is late.
_LAST_ANSWERS_S = 60.0


@dataclass(kw_only=True)
class Storm:
    """One storm at one address, and what its clients were told.

    Attributes:
        prefix: of the names of all its topics.
        client_id: of all its connections.
        connections: how many.
        created: topics that somebody was told to have created, by name.
        deleted: topics that somebody was told to have deleted.
        answers: topics by the error that was told.
        waits_s: of all requests, from being sent to being answered.
        seconds: from before the first request to behind the last answer.
    """

    prefix: str
    client_id: str
    connections: int = 50
    created: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)
    answers: Counter[int] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)
    seconds: float = 0.0

    async def rage(self, address: tuple[str, int], seconds: float) -> None:
        """Goes on for so long, and waits for the last answers.

        Raises:
            ConnectionError: a connection was closed, so that nobody knows what has become of its request.
        """
        begin_s = time.monotonic()
        end_s = begin_s + seconds
        workers: list[Awaitable[None]] = [
            self._worker(address, end_s, random.Random(number))
            for number in range(self.connections)
        ]
        async with asyncio.timeout(seconds + _LAST_ANSWERS_S):
            await asyncio.gather(*workers)
        self.seconds = time.monotonic() - begin_s

    async def _worker(self, address: tuple[str, int], end_s: float, chance: random.Random) -> None:
        client = await WireClient.to(address)
        try:
            while time.monotonic() < end_s:
                await self._mutate(client, chance)
        finally:
            client.abort()

    async def _mutate(self, client: WireClient, chance: random.Random) -> None:
        """One to three topics in one request, which can be refused topic by topic."""
        numbers = chance.sample(range(NAMES), chance.randint(1, 3))
        names = [f"{self.prefix}{number}" for number in numbers]
        is_creation = chance.random() < 0.5
        if is_creation:
            size = chance.randint(1, SIZE_MAX)
            request = create_topics(names, size, client_id=self.client_id, strict=True)
        else:
            request = delete_topics(names, client_id=self.client_id, strict=True)
        sent_s = time.monotonic()
        told = errors_by_topic(request, await client.ask(request))
        self.waits_s.append(time.monotonic() - sent_s)
        assert set(told) == set(names)
        self.answers.update(told.values())
        done = [name for name, error in told.items() if error == NONE]
        (self.created if is_creation else self.deleted).update(done)

    def judge(self, kafka: LocalKafka, *, rate: float, burst: float) -> tuple[CarriedOut, float]:
        """Holds what was told against the cluster's own log; returns what was carried out, and the most that the quota allows.

        Kafka checks, then spends: one topic's partitions may be over.
        """
        found = carried_out(kafka, self.prefix)
        assert found.created == self.created, "created, and nobody was told so; or told, and not so"
        assert found.deleted == self.deleted, "deleted, and nobody was told so; or told, and not so"
        lives = found.created - found.deleted
        assert set(lives.values()) <= {1}, "there twice"
        assert set(self.answers) <= {NONE, UNKNOWN, EXISTS, REFUSED}, self.answers
        return found, rate * self.seconds + burst + SIZE_MAX
