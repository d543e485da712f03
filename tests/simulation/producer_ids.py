"""A world of idempotent producers in front of two gateways that count producer ids, and one broker; drawn from a seed.

What is drawn
    Producers of one user that have several batches of each partition in flight and take the acknowledgement of one for that of all
    before it, as librdkafka does; they lose connections, come again at the other gateway, and send again what was
    not acknowledged, in order. Crash loops: each batch of an id of its own, cut anywhere, from clients that leave. Rates that
    change, gateways that restart in order, connections whose client has gone and that nobody has noticed.
    A broker that knows nothing of an id takes any first sequence, as Kafka does; some batches it refuses once.
What is checked
    Each batch that a producer counts as delivered is in the log, once, and in order; and no gateway admits more new
    ids in any interval than ``rate / window * elapsed + burst``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random

from kvota.engine.layered_bloom import Layering
from kvota.engine.producer_ids import ProducerIds
from kvota.engine.saved_producer_ids import from_bytes, to_bytes
from kvota.model.client_quotas import PRODUCER_IDS_KEY, KeyChange
from kvota.model.decision_sink import ADMITTED
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.session.producer_id_quota import ProducerIdQuota
from kvota.testing.frames import split
from kvota.testing.kafka_messages import body_offset
from kvota.testing.manual_clock import ManualClock
from kvota.testing.producer_frames import Of, answer_to, batch, errors_of, produce_of
from kvota.testing.stage import ALL_TYPES, Cluster, Rows, Stage
from kvota.wire.apis import PRODUCE
from kvota.wire.error_code import ErrorCode
from kvota.wire.producer_ids import BatchProducer, producers

WINDOW_MS = 60_000
IN_FLIGHT = 5
_EVERYBODY = QuotaEntity(user=DEFAULT)
_COUNTED = ALL_TYPES | {QuotaType.PRODUCER_ID}
_STEPS, _STEPS_MAX = 400, 20_000
_PARTITIONS = 2
# As Kafka's: the last batches of an id in a partition are known again.
_OUT_OF_ORDER = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
_NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)

Key = tuple[int, int]  # producer id, partition


@dataclass
class Log:
    """The broker: what it has stored, and of which ids it knows."""

    stored: dict[Key, list[int]] = field(default_factory=dict)

    def take(self, one: BatchProducer) -> int:
        sequences = self.stored.setdefault((one.producer_id, one.partition), [])
        if sequences and one.base_sequence <= sequences[-1]:
            return 0  # it has it
        if sequences and one.base_sequence != sequences[-1] + 1:
            return _OUT_OF_ORDER
        sequences.append(one.base_sequence)
        return 0


@dataclass
class Wire:
    """One connection: its machine, and what the broker has of it and has not answered."""

    stage: Stage
    gateway: int
    seen_bytes: int = 0
    told_bytes: int = 0
    with_broker: list[bytes] = field(default_factory=list)
    unsent: bytes = b""  # of the request that has begun

    def look(self) -> None:
        """What has gone up since the last look."""
        forwarded = self.stage.to_broker[self.seen_bytes :]
        whole = split(forwarded) if _is_whole(forwarded) else []
        if whole:
            self.seen_bytes += len(forwarded)
            self.with_broker += whole


def _is_whole(data: bytes) -> bool:
    at = 0
    while at + 4 <= len(data):
        at += 4 + int.from_bytes(data[at : at + 4], "big")
    return at == len(data)


@dataclass
class Producer:
    """One that reports what it takes for delivered.

    Attributes:
        waiting: by partition, the sequences that are to be sent, in order.
        in_flight: by correlation id, the partitions and sequences of a request.
        delivered: by partition, below which sequence all are reported as delivered.
        was_refused: batches that have come back with an error.
    """

    producer_id: int
    total: int
    waiting: list[list[int]]
    wire: Wire | None = None
    correlations: Iterator[int] = field(default_factory=count)
    in_flight: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    delivered: list[int] = field(default_factory=lambda: [0] * _PARTITIONS)
    was_refused: set[tuple[int, int]] = field(default_factory=set)

    @property
    def is_done(self) -> bool:
        return all(done == self.total for done in self.delivered)

    def next_request(self, rng: Random) -> bytes | None:
        """The next batches, of one partition or of each; what was refused goes before what follows."""
        partitions = [p for p in range(_PARTITIONS) if self.waiting[p]]
        if not partitions or len(self.in_flight) >= IN_FLIGHT:
            return None
        chosen = partitions if rng.random() < 0.3 else [rng.choice(partitions)]
        sent = [(p, self.waiting[p].pop(0)) for p in chosen]
        correlation = next(self.correlations)
        self.in_flight[correlation] = sent
        rows = [("orders", p, batch(Of(self.producer_id, sequence))) for p, sequence in sent]
        return produce_of(*rows, correlation=correlation)

    def told(self, answer: bytes) -> None:
        errors = errors_of(answer)
        for partition, sequence in self.in_flight.pop(int.from_bytes(answer[4:8], "big")):
            error = errors["orders", partition]
            if error:
                self._again(partition, sequence)
                self.was_refused.add((partition, sequence))
            else:  # as librdkafka: all before it as well
                self.delivered[partition] = max(self.delivered[partition], sequence + 1)
                left = [one for one in self.waiting[partition] if one > sequence]
                self.waiting[partition] = left

    def _again(self, partition: int, sequence: int) -> None:
        if sequence >= self.delivered[partition]:
            self.waiting[partition] = sorted({*self.waiting[partition], sequence})

    def lose(self) -> None:
        """The connection is gone: all that was not answered is sent again."""
        for sent in self.in_flight.values():
            for partition, sequence in sent:
                self._again(partition, sequence)
        self.in_flight.clear()
        self.wire = None


class Gateway:
    """One that may restart; its rows tell when it has admitted a new id."""

    def __init__(self, clock: ManualClock, rate: float) -> None:
        self.clock, self.rate = clock, rate
        self.ids = ProducerIds(Layering(window_ms=WINDOW_MS))
        self.sink = Rows()
        self.start()

    def start(self) -> None:
        quota = ProducerIdQuota(self.ids)
        quota.change([KeyChange(_EVERYBODY, PRODUCER_IDS_KEY, self.rate)])
        self.cluster = Cluster(
            enforced=_COUNTED, producer_ids=quota, clock=self.clock, sink=self.sink
        )

    def restart(self) -> None:
        """In order: known ids are saved, what was refused is not."""
        saved = to_bytes(self.ids)
        self.ids = from_bytes(saved, name="saved", like=self.ids)
        self.start()

    def configure(self, rate: float) -> None:
        self.rate = rate
        self.cluster.shared.change_producer_id_rates(
            [KeyChange(_EVERYBODY, PRODUCER_IDS_KEY, rate)]
        )

    @property
    def admitted_ms(self) -> list[int]:
        """When it has let new ids in, in order."""
        rows = [
            row
            for row in self.sink.rows
            if row.memo.quota_type is QuotaType.PRODUCER_ID and row.outcome == ADMITTED
        ]
        return sorted(row.ts_us // 1000 for row in rows for _ in range(int(row.value)))


class World:
    """One run; make it with its seed, then ``run`` it once.

    Attributes:
        refusals: batches that came back with an error.
        restarts: of gateways.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(f"producer ids {seed}")
        self.clock = ManualClock()
        self.rate_max = rng.choice((1.0, 3.0, 10.0))
        self.gateways = [Gateway(self.clock, self.rate_max) for _ in range(2)]
        self.log = Log()
        self.numbers = count(1)
        total = rng.randint(3, 12)
        self.producers = [
            Producer(1000 + n, total, [list(range(total)) for _ in range(_PARTITIONS)])
            for n in range(rng.randint(2, 6))
        ]
        self.zombies: list[Wire] = []
        self.looping_ids = count(10**6)
        self.refusals = self.restarts = 0

    def run(self) -> None:
        actions = {
            self._send: 12,
            self._answer: 10,
            self._pass_time: 5,
            self._crash_loop: 2,
            self._lose: 0.6,
            self._end_a_zombie: 0.6,
            self._restart: 0.15,
            self._change_a_rate: 0.15,
        }
        for _ in range(_STEPS):
            self.rng.choices(list(actions), weights=list(actions.values()))[0]()
            self._look()
        steps = 0
        while not all(producer.is_done for producer in self.producers):
            steps += 1
            assert steps < _STEPS_MAX, "a producer never comes to its end"
            self.rng.choices([self._send, self._answer, self._pass_time], weights=(12, 12, 2))[0]()
            self._look()
        self._check()

    # ------------------------------------------------------------------ what happens

    def _new_wire(self) -> Wire:
        at = self.rng.randrange(2)
        return Wire(Stage(self.gateways[at].cluster, number=next(self.numbers)), at)

    def _wires(self) -> list[Wire]:
        live = [producer.wire for producer in self.producers if producer.wire is not None]
        return live + self.zombies

    def _send(self) -> None:
        producer = self.rng.choice(self.producers)
        if producer.wire is None:
            producer.wire = self._new_wire()
        wire = producer.wire
        data = wire.unsent or producer.next_request(self.rng)
        if data is None:
            return
        at = self.rng.choice((len(data), len(data), self.rng.randrange(1, len(data) + 1)))
        wire.unsent = data[at:]
        wire.stage.client(data[:at])

    def _answer(self) -> None:
        """The broker takes the oldest request of a connection, and answers it."""
        wires = [wire for wire in self._wires() if wire.with_broker]
        if not wires:
            return
        wire = self.rng.choice(wires)
        frame = wire.with_broker.pop(0)
        wire.stage.broker(answer_to(frame, errors=self._stored(wire, frame)))

    def _stored(self, wire: Wire, frame: bytes) -> dict[int, int]:
        errors = {}
        for one in producers(frame, body_offset(frame, PRODUCE, 9, "request"), 9):
            # Of an id that it does not know it refuses only what this gateway has refused before: else it would take what
            # follows, with a gateway or without one.
            is_known = bool(self.log.stored.get((one.producer_id, one.partition)))
            may_fail = is_known or self._is_awaited(wire, one)
            fails = may_fail and self.rng.random() < 0.1
            errors[one.partition] = _NOT_LEADER if fails else self.log.take(one)
        return errors

    def _is_awaited(self, wire: Wire, one: BatchProducer) -> bool:
        """True where its gateway keeps back what follows until this one is answered on this connection."""
        refused = wire.stage.cluster.producer_ids.refused_batches.users.get("ANONYMOUS", {})
        refusal = refused.get((one.producer_id, one.topic, one.partition))
        return refusal is not None and refusal.connection == wire.stage.machine.caller.number

    def _pass_time(self) -> None:
        wires = self._wires()
        ms = self.rng.choice((1, 100, 5_000, WINDOW_MS // 2))
        if not wires:
            self.clock.advance(ms)
            return
        self.rng.shuffle(wires)
        wires[0].stage.advance(ms)
        for wire in wires[1:]:
            self._look()
            wire.stage.advance(0)

    def _crash_loop(self) -> None:
        """A client with a new id sends some batches at once, cut anywhere, and is gone; or that is not noticed yet."""
        wire = self._new_wire()
        looping = next(self.looping_ids)
        requests = [
            produce_of(("orders", 0, batch(Of(looping, sequence))), correlation=sequence)
            for sequence in range(self.rng.randint(1, 4))
        ]
        data = b"".join(requests)
        for part in (data[: self.rng.randrange(1, len(data) + 1)],):
            wire.stage.client(part)
        wire.look()
        if self.rng.random() < 0.5:
            self.zombies.append(wire)
        else:
            wire.stage.end()

    def _lose(self) -> None:
        producer = self.rng.choice(self.producers)
        wire = producer.wire
        if wire is None:
            return
        producer.lose()
        if self.rng.random() < 0.5:
            self.zombies.append(wire)
        else:
            self._end(wire)

    def _end_a_zombie(self) -> None:
        if self.zombies:
            self._end(self.zombies.pop(self.rng.randrange(len(self.zombies))))

    def _end(self, wire: Wire) -> None:
        """What the broker has of it is taken all the same, or is lost with it."""
        wire.look()
        for frame in wire.with_broker[: self.rng.randint(0, len(wire.with_broker))]:
            self._stored(wire, frame)
        wire.stage.end()

    def _restart(self) -> None:
        self.restarts += 1
        at = self.rng.randrange(2)
        for producer in self.producers:
            wire = producer.wire
            if wire is not None and wire.gateway == at:
                producer.lose()
                self._end(wire)
        for wire in [zombie for zombie in self.zombies if zombie.gateway == at]:
            self.zombies.remove(wire)
            self._end(wire)
        self.gateways[at].restart()

    def _change_a_rate(self) -> None:
        self.rng.choice(self.gateways).configure(self.rate_max * self.rng.choice((0.3, 1.0)))

    # ------------------------------------------------------------------ what is looked at

    def _look(self) -> None:
        for wire in self._wires():
            wire.look()
        for producer in self.producers:
            self._read(producer)

    def _read(self, producer: Producer) -> None:
        wire = producer.wire
        if wire is None:
            return
        if wire.stage.closed:
            producer.lose()
            return
        answers = split(wire.stage.to_client[wire.told_bytes :])
        wire.told_bytes = len(wire.stage.to_client)
        for answer in answers:
            before = len(producer.was_refused)
            producer.told(answer)
            self.refusals += len(producer.was_refused) - before
        for partition, below in enumerate(producer.delivered):
            stored = self.log.stored.get((producer.producer_id, partition), [])
            assert stored[:below] == list(range(below)), "reported as delivered, and not stored"

    def _check(self) -> None:
        for producer in self.producers:
            for partition in range(_PARTITIONS):
                stored = self.log.stored[producer.producer_id, partition]
                assert stored == list(range(producer.total))
        for gateway in self.gateways:
            self._check_admitted(gateway.admitted_ms)

    def _check_admitted(self, times_ms: list[int]) -> None:
        burst = max(1.0, self.rate_max)
        for first, from_ms in enumerate(times_ms):
            for last in range(first, len(times_ms)):
                at_most = self.rate_max / WINDOW_MS * (times_ms[last] - from_ms) + burst
                assert last - first + 1 <= at_most + 1e-6, "more new ids than the rate lets in"
