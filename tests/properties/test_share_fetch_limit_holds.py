"""What share consumers get of a counter never runs away from its limit, though every answer is delivered."""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.session.test_share_fetch import BUCKET, asked

from kvota.engine.answer_room import RESERVED_MS_MAX, AnswerRoom, Verdict
from kvota.model.quota_type import QuotaType
from kvota.session.share_fetch_requests import SHARE_FETCH_WAIT_MS_MAX
from kvota.testing.frames import split
from kvota.testing.share_frames import share_answer, share_fetch
from kvota.testing.stage import Cluster, Stage, quotas

LIMIT = 10_000
WINDOW = 10 * LIMIT
BUCKET_MS_MAX = 3_000  # burst and debt_max of BUCKET
BATCH_BYTES = 4_000
STEPS = 120


@dataclass
class Reader:
    """One connection: a client that always asks, and its broker."""

    stage: Stage
    correlation: int = 0
    answered: int = 0
    sent_ms: int = 0
    waits_ms: list[int] = field(default_factory=list)

    def ask(self, now_ms: int) -> None:
        self.correlation += 1
        self.sent_ms = now_ms
        self.stage.client(share_fetch(correlation=self.correlation, acknowledges=False))

    def under_way(self) -> bytes | None:
        """The request that the broker has not answered."""
        ups = split(self.stage.to_broker)
        return ups[-1] if len(ups) > self.answered else None

    def answer(self, rng: Random) -> int:
        """The broker has records for ever; it sends a whole batch, however little was asked for."""
        up = self.under_way()
        assert up is not None
        self.answered += 1
        wanted = asked(up)
        size = 0 if not wanted else max(rng.randrange(wanted + 1), rng.randrange(BATCH_BYTES))
        sent = share_answer(
            correlation=self.correlation, records=b"f" * size, partitions=int(wanted > 0)
        )
        self.stage.broker(sent)
        return size


def most_over(seed: int, readers: int, slow: bool, bucket: bool) -> float:
    """By how much what came in any time was more than the limit lets through in it."""
    rng = Random(seed)
    cluster = Cluster(quotas(FETCH=LIMIT), buckets=BUCKET if bucket else {})
    all_readers = [Reader(Stage(cluster, number=number)) for number in range(1, readers + 1)]
    for reader in all_readers:
        reader.ask(cluster.now_ms)
    level = most = 0.0
    for _ in range(STEPS):
        step_ms = rng.choice((0, 20, RESERVED_MS_MAX - 1, *((900, 3_000) if slow else ())))
        for other in all_readers:
            before_ms = cluster.now_ms
            other.stage.advance(step_ms if other is all_readers[0] else 0)
            level = max(0.0, level - (cluster.now_ms - before_ms) * LIMIT / 1000)
        for reader in rng.sample(all_readers, k=rng.randint(1, readers)) if slow else all_readers:
            if reader.under_way() is None:
                reader.waits_ms.append(cluster.now_ms - reader.sent_ms)
                continue
            level += reader.answer(rng)
            most = max(most, level)
            reader.ask(cluster.now_ms)
    longest_ms = max((max(reader.waits_ms, default=0) for reader in all_readers), default=0)
    assert longest_ms <= SHARE_FETCH_WAIT_MS_MAX + 3_000
    return most


def bound(readers: int, slow: bool, bucket: bool) -> float:
    filled = LIMIT * BUCKET_MS_MAX / 1000 if bucket else 1.1 * WINDOW
    # A broker that waits for longer than a reservation: each may have been promised half of the room.
    return filled + readers * (BATCH_BYTES + 200 + (filled / 2 if slow else 0))


@given(
    seed=st.integers(0, 2**32), readers=st.integers(1, 6), slow=st.booleans(), bucket=st.booleans()
)
@settings(deadline=None, max_examples=40)
def test_readers_get_no_more_than_the_limit_and_a_window(
    seed: int, readers: int, slow: bool, bucket: bool
) -> None:
    assert most_over(seed, readers, slow, bucket) <= bound(readers, slow, bucket)


def test_without_paying_for_what_came_too_much_it_would_not_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The law of this file can be broken."""

    def free_of_charge(room: AnswerRoom, lane: object, value: int, now_ms: int) -> Verdict:
        return Verdict(0, 0)

    monkeypatch.setattr(AnswerRoom, "deliver", free_of_charge)

    assert most_over(1, 4, slow=False, bucket=False) > bound(4, slow=False, bucket=False)


@pytest.mark.parametrize("readers", [1, 4, 30])
def test_readers_get_most_of_what_they_may(readers: int) -> None:
    """However often they ask in vain, and however little room each of them finds."""
    rng, cluster = Random(1), Cluster(quotas(FETCH=LIMIT))
    all_readers = [Reader(Stage(cluster, number=number)) for number in range(readers)]
    came = 0
    for reader in all_readers:
        reader.ask(cluster.now_ms)
    begun_ms = cluster.now_ms
    while cluster.now_ms - begun_ms < 60_000:
        for number, reader in enumerate(all_readers):
            reader.stage.advance(0 if number else 200)
            if reader.under_way() is not None:
                came += reader.answer(rng)
                reader.ask(cluster.now_ms)

    assert came >= 60 * LIMIT * 0.6


def test_each_counter_is_of_fetches() -> None:
    cluster = Cluster(quotas(FETCH=LIMIT))
    reader = Reader(Stage(cluster))
    reader.ask(0)
    reader.answer(Random(1))

    assert {row.memo.quota_type for row in cluster.rows} == {QuotaType.FETCH}
