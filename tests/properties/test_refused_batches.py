"""Whatever clients send, and whatever happens to them: no batch goes on past one that was refused before it."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.engine.layered_bloom import Layering
from kvota.engine.producer_ids import ProducerIds
from kvota.model.client_quotas import PRODUCER_IDS_KEY, KeyChange
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.session.producer_id_quota import ProducerIdQuota
from kvota.testing.frames import split
from kvota.testing.kafka_messages import body_offset
from kvota.testing.producer_frames import Of, answer_to, batch, produce_of
from kvota.testing.stage import ALL_TYPES, Cluster, Stage
from kvota.wire.apis import PRODUCE
from kvota.wire.error_code import ErrorCode
from kvota.wire.producer_ids import producers

WINDOW_MS = 60_000
EVERYBODY = QuotaEntity(user=DEFAULT)
COUNTED = ALL_TYPES | {QuotaType.PRODUCER_ID}
CONNECTIONS = 2

Key = tuple[int, int]  # producer id, partition
Batches = tuple[tuple[Key, int, int], ...]  # key, epoch, sequence


@dataclass
class Kept:
    """What was refused of a producer in a partition, and has not come again."""

    epoch: int
    sequence: int
    passing_on: int = -1  # it has gone on, on this connection, and is not answered


@dataclass
class World:
    """Clients, the gateway, and what must hold of everything that it lets through."""

    cluster: Cluster
    stages: list[Stage] = field(default_factory=list)
    sent: list[list[Batches]] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    seen_bytes: list[int] = field(default_factory=list)
    unanswered: list[list[bytes]] = field(default_factory=list)
    kept: dict[Key, Kept] = field(default_factory=dict)
    refusals: int = 0
    went_on: int = 0

    def __post_init__(self) -> None:
        for _ in range(CONNECTIONS):
            self.stages.append(Stage(self.cluster, number=len(self.stages) + 1))
            for of_connection in (self.sent, self.unanswered):
                of_connection.append([])
            self.taken.append(0)
            self.seen_bytes.append(0)

    def send(self, connection: int, batches: Batches) -> None:
        """One request; its number on the connection is its correlation id."""
        rows = [
            ("orders", partition, batch(Of(producer_id, sequence, epoch)))
            for (producer_id, partition), epoch, sequence in batches
        ]
        self.sent[connection].append(batches)
        self.stages[connection].client(
            produce_of(*rows, correlation=len(self.sent[connection]) - 1)
        )
        self.look(connection)

    def look(self, connection: int) -> None:
        """What was taken since the last look, in its order."""
        stage = self.stages[connection]
        forwarded = split(stage.to_broker[self.seen_bytes[connection] :])
        self.seen_bytes[connection] = len(stage.to_broker)
        self.unanswered[connection] += forwarded
        by_number = {int.from_bytes(one[8:12], "big"): one for one in forwarded}
        for number in range(self.taken[connection], stage.machine.requests):
            frame = by_number.pop(number, None)
            self.judge(connection, self.sent[connection][number], frame)
        assert not by_number
        self.taken[connection] = stage.machine.requests

    def judge(self, connection: int, batches: Batches, frame: bytes | None) -> None:
        going = set()
        if frame is not None:
            found = producers(frame, body_offset(frame, PRODUCE, 9, "request"), 9)
            going = {(one.producer_id, one.partition) for one in found}
        for key, epoch, sequence in batches:
            kept = self.kept.get(key)
            if key in going:
                self.went_on += 1
                self.passes(connection, key, kept, epoch, sequence)
            elif kept is None or epoch > kept.epoch:
                self.refusals += 1
                self.kept[key] = Kept(epoch, sequence)
            elif epoch == kept.epoch and sequence < kept.sequence:
                self.kept[key] = Kept(epoch, sequence)

    def passes(
        self, connection: int, key: Key, kept: Kept | None, epoch: int, sequence: int
    ) -> None:
        if kept is None:
            return
        assert epoch >= kept.epoch, "an epoch that is over"
        if epoch > kept.epoch or sequence == kept.sequence:
            self.kept[key] = Kept(epoch, sequence, connection)
        elif sequence > kept.sequence:
            pytest.fail("a batch overtakes one that was refused")

    def answer(self, connection: int, error: int = 0) -> None:
        """The broker answers its oldest request."""
        if not self.unanswered[connection]:
            return
        frame = self.unanswered[connection].pop(0)
        self.stages[connection].broker(answer_to(frame, error=error))
        for one in producers(frame, body_offset(frame, PRODUCE, 9, "request"), 9):
            kept = self.kept.get((one.producer_id, one.partition))
            if (
                kept is not None
                and kept.passing_on == connection
                and (one.epoch, one.base_sequence) == (kept.epoch, kept.sequence)
            ):
                if error:
                    kept.passing_on = -1
                else:
                    del self.kept[one.producer_id, one.partition]
        self.look(connection)

    def reconnect(self, connection: int) -> None:
        self.stages[connection].end()
        for kept in self.kept.values():
            if kept.passing_on == connection:
                kept.passing_on = -1
        number = len(self.stages) + connection + self.cluster.sink.next_seq()
        self.stages[connection] = Stage(self.cluster, number=number + 1_000)
        self.sent[connection], self.unanswered[connection] = [], []
        self.taken[connection] = self.seen_bytes[connection] = 0

    def configure(self, rate: float | None) -> None:
        self.cluster.shared.change_producer_id_rates([KeyChange(EVERYBODY, PRODUCER_IDS_KEY, rate)])

    def advance(self, ms: int) -> None:
        for connection, stage in enumerate(self.stages):
            stage.advance(ms)
            self.look(connection)


IDS, PARTITIONS = st.integers(0, 2), st.integers(0, 1)
EPOCHS, SEQUENCES = st.sampled_from([0, 0, 0, 1]), st.integers(0, 2)
ONE = st.tuples(st.tuples(IDS, PARTITIONS), EPOCHS, SEQUENCES)
REQUESTS = st.lists(ONE, min_size=1, max_size=3, unique_by=lambda one: one[0]).map(tuple)
AT = st.integers(0, CONNECTIONS - 1)
ACTIONS = st.one_of(
    st.tuples(st.just("send"), AT, REQUESTS),
    st.tuples(st.just("send"), AT, ONE.map(lambda one: (one,))),
    st.tuples(st.just("answer"), AT),
    st.tuples(st.just("answer"), AT, st.just(int(ErrorCode.NOT_LEADER_OR_FOLLOWER))),
    st.tuples(st.just("advance"), st.sampled_from([1, 5_000, 20_000, WINDOW_MS])),
    st.tuples(st.just("reconnect"), AT),
    st.tuples(st.just("configure"), st.sampled_from([None, 0.5, 1.0, 3.0])),
    st.tuples(st.just("enforce"), st.sampled_from([COUNTED, ALL_TYPES])),
)


def world(rate: float = 1.0) -> World:
    quota = ProducerIdQuota(ProducerIds(Layering(window_ms=WINDOW_MS)))
    made = World(Cluster(enforced=COUNTED, producer_ids=quota))
    made.configure(rate)
    return made


@given(st.lists(ACTIONS, min_size=5, max_size=45))
@settings(deadline=None, max_examples=250)
def test_nothing_overtakes_what_was_refused(actions: list[tuple[object, ...]]) -> None:
    made = world()
    for name, *arguments in actions:
        method = made.cluster.enforce if name == "enforce" else getattr(made, str(name))
        method(*arguments)


def test_the_world_refuses_and_lets_go_on() -> None:
    made = world()
    made.send(0, (((1, 0), 0, 0),))
    made.send(1, (((2, 0), 0, 0),))
    made.send(1, (((2, 0), 0, 1),))
    made.advance(WINDOW_MS)
    made.send(1, (((2, 0), 0, 0),))
    made.answer(1)
    made.send(0, (((2, 0), 0, 1),))
    assert (made.refusals, made.went_on, made.kept) == (1, 3, {})
