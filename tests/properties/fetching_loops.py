"""A world of consumers in closed loops: each asks, reads its answer, and asks again.

As ``closed_loops`` has it for producers: engine and connections are the gateway's own; drivers,
brokers and both clocks are played, from one seed. Brokers keep fetch sessions as KIP-227 has them, and each
answer says from where to where it reads: so what a client has missed, or read twice, is seen.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from struct import Struct

from tests.properties.closed_loops import BUCKET, EVERY_CLIENT_ID, Change

from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.decision_sink import REJECTED
from kvota.model.quota_type import QuotaType
from kvota.session.commands import Do
from kvota.session.connection import Connection
from kvota.session.pausing import Pausing
from kvota.testing.manual_clock import START_MS
from kvota.testing.stage import ALL_TYPES, BROKER, Cluster, Row

FETCH = QuotaType.FETCH
_SECOND_US = 1_000_000
_SWEEP_US = 2_000_000
_CHUNK_BYTES = 65_536
_EVENTS_PER_CHECK = 25
# v12 behind its header: replica, max_wait, min_bytes, max_bytes, isolation level, session id and epoch; then our own:
# whether the position is another one than in the request before, and the position.
_REQUEST = Struct(">iiiibii?q")
# throttle time, error, session id; our own: from where to where.
_ANSWER = Struct(">ihiqq")
_WRONG_EPOCH = 71


@dataclass(frozen=True, slots=True, kw_only=True)
class Appetite:
    """How the connections of one crowd behave; times in seconds, sizes in seconds of the configured limit.

    Attributes:
        answer_s: between which bounds lies what a broker has for a Fetch.
        batch_s: the first batch of it, which it answers however small ``max_bytes`` is.
        depth: Fetches sent before the first answer is awaited; above 1 without a session.
        honours: whether the client waits as it is told.
        reconnects: comes again for each Fetch.
        together_s: the broker answers all of them at the same moments, so far apart; None: each at once.
        patience_s: a connection that has waited for so long is given up.
    """

    connections: int = 1
    client_id: str = "app"
    answer_s: tuple[float, float] = (0.45, 0.45)
    batch_s: float = 0.01
    think_s: tuple[float, float] = (0.001, 0.001)
    depth: int = 1
    honours: bool = False
    reconnects: bool = False
    together_s: float | None = None
    patience_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A world before it begins; ``bucket`` None: by ``sampled_rate``."""

    seed: int = 0
    limit: float = 20_000.0
    bucket: BucketSettings | None = BUCKET
    seconds: float = 122.0
    late_s: float = 0.002
    crowds: tuple[Appetite, ...] = (Appetite(),)
    changes: tuple[Change, ...] = ()
    events_max: int = 100_000


@dataclass(slots=True)
class Told:
    """What the world has seen beside the rows.

    Attributes:
        delivered: value of each answer with something in it, by connection.
        read: (when, value) of each such answer, by client.
        wrong_epochs: answers to a request that did not fit its session.
        brought: bytes that brokers have sent.
    """

    delivered: dict[int, list[int]] = field(default_factory=dict)
    read: dict["Consumer", list[tuple[int, int]]] = field(default_factory=dict)
    wrong_epochs: int = 0
    brought: int = 0


class World:
    """The clocks, the agenda, the gateway, and everybody at it."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.rng = Random(scenario.seed)
        self.told = Told()
        self.mono_us = 0
        self.offset_us = START_MS * 1000
        self.limit = scenario.limit
        self.cluster = Cluster(self._quotas(), buckets=self._buckets())
        self.wires: dict[Wire, None] = {}
        self.numbers = count(1)
        self.sessions: dict[int, list[int]] = {}  # epoch that is expected, position
        self.session_ids = count(1)
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self.events = 0

    @property
    def now_us(self) -> int:
        """Unix µs, the clock of decisions."""
        return self.mono_us + self.offset_us

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of decisions."""
        return sorted(self.cluster.rows, key=lambda row: row.seq)

    def after(self, us: float, action: Callable[[], None]) -> None:
        """Do it so much later."""
        at_us = self.mono_us + max(0, int(us))
        heapq.heappush(self._agenda, (at_us, next(self._order), action))

    def run(self) -> "World":
        """Live through the scenario; then everybody leaves, and nothing is left of them."""
        self._sweep()
        for number, habits in enumerate(self.scenario.crowds):
            for place in range(habits.connections):
                consumer = Consumer(self, habits)
                self.told.read[consumer] = []
                self.after(1_000 * place + number, consumer.connect)
        for change in self.scenario.changes:
            self.after(change.at_s * _SECOND_US, partial(self.change, change))
        end_us = int(self.scenario.seconds * _SECOND_US)
        while self._agenda and self.events < self.scenario.events_max:
            at_us, _, action = heapq.heappop(self._agenda)
            if at_us > end_us:
                break
            self.mono_us = at_us
            self.events += 1
            action()
            if not self.events % _EVENTS_PER_CHECK:
                self.check_lines()
        for wire in list(self.wires):
            wire.consumer.has_left = True
            wire.close()
        for lane in self.cluster.engine._counters.of_type(FETCH):
            assert lane.room is None or not lane.room.line, self.scenario
            assert lane.room is None or lane.room._reserved_bytes == 0, self.scenario
        return self

    def check_lines(self) -> None:
        """Who waits for room has a turn, and nobody else has."""
        for wire in self.wires:
            assert wire.machine.caller.fetch_room.is_waiting == wire.machine.is_in_line, (
                self.scenario
            )

    def _sweep(self) -> None:
        for wire in list(self.wires):
            wire.close_if_gone()
        self.cluster.engine.purge_expired(self.now_us // 1000)
        self.after(_SWEEP_US, self._sweep)

    def change(self, change: Change) -> None:
        """Do to the gateway what the scenario says."""
        engine, cluster = self.cluster.engine, self.cluster
        match change.what:
            case "limit":
                self.limit = change.value
                engine.replace_quotas(self._quotas())
            case "no quota":
                engine.replace_quotas(ConfiguredQuotas())
            case "factor":
                engine.set_factor(FETCH, change.value)
            case "algorithm":
                engine.replace_countings({}, self._buckets() if change.value else {})
            case "enforce":
                cluster.enforce(ALL_TYPES if change.value else frozenset())
            case "clock":
                self.offset_us += int(change.value * _SECOND_US)
            case _:
                raise AssertionError(change)
        if change.what != "clock":
            for wire in list(self.wires):
                self.after(self.rng.uniform(0, 50_000), wire.look_again)

    def _buckets(self) -> dict[QuotaType, BucketSettings]:
        return {} if self.scenario.bucket is None else {FETCH: self.scenario.bucket}

    def _quotas(self) -> ConfiguredQuotas:
        return ConfiguredQuotas({EVERY_CLIENT_ID: {FETCH: self.limit}})


class Wire:
    """One connection through the gateway: its driver, its socket, and its broker."""

    def __init__(self, world: World, consumer: "Consumer") -> None:
        self.world = world
        self.consumer = consumer
        self.inbox = bytearray()
        self.is_closed = self.is_gone = False
        self.number = next(world.numbers)
        world.told.delivered[self.number] = []
        self.pausing = Pausing(cap_ms=30_000)
        self._timer: object = None
        self._out = bytearray()
        self._answers: deque[bytes] = deque()
        self._answer_at_us = 0
        self.machine = Connection(
            world.cluster.shared,
            self.pausing,
            number=self.number,
            dialled=BROKER,
            node_id=1,
            client_host="192.0.2.1",
            wake=lambda: world.after(0, self._woken),
        )
        world.wires[self] = None

    # ------------------------------------------------------------------ the driver

    def receive(self, data: bytes) -> None:
        """Bytes arrive in the socket; they are read unless the machine pauses."""
        if not self.is_closed:
            self.inbox += data
            self._read()

    def leave(self) -> None:
        """The client closes; it is noticed when its end of the stream is read, or looked for."""
        self.is_gone = True
        self._read()

    def _read(self) -> None:
        while self.inbox and not self.is_closed and not self.machine.pauses_reading:
            chunk = bytes(self.inbox[:_CHUNK_BYTES])
            del self.inbox[:_CHUNK_BYTES]
            self._forward(self.machine.from_client(chunk, self.world.now_us))
            self._look()
        if self.is_gone and not self.inbox and not self.machine.pauses_reading:
            self.close()

    def _look(self) -> None:
        commands = self.machine.commands
        while commands and not self.is_closed:
            code, argument = commands.pop(0)
            if code == Do.SEND_CLIENT:
                assert isinstance(argument, bytes)
                self._deliver(argument)
            else:
                assert code == Do.RESUME, (code, argument)
                assert isinstance(argument, int)
                self._forward(self.machine.resume(argument, self.world.now_us))
        if not self.is_closed and self.pausing.deadline_changed:
            self._keep_timer()

    def _keep_timer(self) -> None:
        world = self.world
        deadline_ms = self.machine.next_deadline_ms(world.mono_us // 1000)
        self._timer = timer = object()
        if deadline_ms is None:
            return
        late_us = world.rng.uniform(-500, world.scenario.late_s * _SECOND_US)
        world.after(deadline_ms * 1000 + late_us - world.mono_us, lambda: self._fire(timer))

    def _fire(self, timer: object) -> None:
        if timer is self._timer and not self.is_closed and not self.close_if_gone():
            world = self.world
            self._go_on(self.machine.deadline_passed(world.mono_us // 1000, world.now_us))

    def _woken(self) -> None:
        if self.is_closed or self.close_if_gone():
            self.machine.pass_room_on()
        else:
            self._go_on(self.machine.woken(self.world.now_us))

    def look_again(self) -> None:
        """Quotas have changed."""
        if not self.is_closed:
            self.machine.look_again(self.world.now_us)
            self._look()
            self._read()

    def _go_on(self, out: bytes | bytearray | None) -> None:
        self._forward(out)
        self._look()
        self._read()

    def close_if_gone(self) -> bool:
        """As the gateway does: a request in line whose client has left is not forwarded."""
        if self.is_closed or not self.is_gone or not self.machine.waits_for_an_answer:
            return False
        self.close()
        return True

    def close(self) -> None:
        """The end, on both sides."""
        if not self.is_closed:
            self.is_closed = True
            del self.world.wires[self]
            self.machine.close()
            self.machine.upstream_gone()
            self.consumer.closed(self)

    # ------------------------------------------------------------------ the broker

    def _forward(self, data: bytes | bytearray | None) -> None:
        at = 0
        while data and at < len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            assert end <= len(data), "half a Fetch was forwarded"
            self._serve(bytes(data[at:end]))
            at = end

    def _serve(self, frame: bytes) -> None:
        world, habits = self.world, self.consumer.habits
        body = 15 + int.from_bytes(frame[12:14], "big")
        _, _, _, most, _, session_id, epoch, has_moved, position = _REQUEST.unpack_from(frame, body)
        error = 0
        if epoch == 0:
            session_id = next(world.session_ids)
            world.sessions[session_id] = [1, position]
        elif epoch > 0:
            session = world.sessions[session_id]
            if session[0] != epoch:
                error = _WRONG_EPOCH
            else:
                session[0] += 1
                session[1] = position = position if has_moved else session[1]
        size = 0 if error else self._size(most)
        head = _ANSWER.pack(0, error, session_id, position, position + size)
        answer = frame[8:12] + b"\0" + head + bytes(size)
        world.told.brought += size
        self._answers.append(len(answer).to_bytes(4, "big") + answer)
        delay_us = world.rng.uniform(200, 3_000)
        if habits.together_s is not None:
            period_us = int(habits.together_s * _SECOND_US)
            delay_us = period_us - world.mono_us % period_us
        # In order, each some time after it has arrived whole.
        self._answer_at_us = max(self._answer_at_us, int(world.mono_us + delay_us))
        world.after(self._answer_at_us - world.mono_us, self._answer)

    def _size(self, most: int) -> int:
        low, high = self.consumer.habits.answer_s
        scenario = self.world.scenario
        has = low * (high / low) ** self.world.rng.random() * scenario.limit
        first = min(self.consumer.habits.batch_s * scenario.limit, has)
        return max(1, int(max(first, min(has, most))))

    def _answer(self) -> None:
        answer = self._answers.popleft()
        if self.is_closed:
            return
        cut = self.world.rng.choice((len(answer), len(answer), 90, 1))
        for part in (answer[:cut], answer[cut:]):
            if part and not self.is_closed:
                self._deliver(self.machine.from_upstream(part, self.world.now_us))
                self._look()
        if not self.is_closed:
            self._read()

    def _deliver(self, data: bytes | bytearray | None) -> None:
        self._out += data or b""
        while len(self._out) >= 4 and not self.is_closed:
            end = 4 + int.from_bytes(self._out[:4], "big")
            if len(self._out) < end:
                return
            answer = bytes(self._out[:end])
            del self._out[:end]
            self.consumer.answered(self, answer)


class Consumer:
    """One connection after the other, with the habits of its crowd; it reads one partition from 0 on."""

    def __init__(self, world: World, habits: Appetite) -> None:
        self._world = world
        self.habits = habits
        self._wire: Wire | None = None
        self._correlation = 0
        self._answered = 0
        self._arrives_us = 0
        self._session = (0, 0)
        self._told: int | None = None  # the position in the session
        self.position = 0
        self.has_left = False

    def connect(self) -> None:
        """Come (again)."""
        self._session, self._told = (0, 0 if self.habits.depth == 1 else -1), None
        self._answered = self._correlation
        self._wire = Wire(self._world, self)
        for _ in range(self.habits.depth):
            self._send(self._wire)

    def _send(self, wire: Wire) -> None:
        if wire is not self._wire or wire.is_closed:
            return
        self._correlation += 1
        has_moved = self._told != self.position
        self._told = self.position
        name = self.habits.client_id.encode()
        head = b"\0\1\0\x0c" + self._correlation.to_bytes(4, "big")
        head += len(name).to_bytes(2, "big") + name + b"\0"
        frame = head + _REQUEST.pack(
            -1, 500, 1, 52_428_800, 0, *self._session, has_moved, self.position
        )
        data = len(frame).to_bytes(4, "big") + frame
        world = self._world
        self._arrives_us = max(self._arrives_us, world.mono_us + world.rng.choice((0, 0, 2_000)))
        world.after(self._arrives_us - world.mono_us, partial(wire.receive, data))
        if self.habits.patience_s is not None:
            give_up = partial(self._give_up, wire, self._correlation)
            self._world.after(self.habits.patience_s * _SECOND_US, give_up)

    def _give_up(self, wire: Wire, correlation: int) -> None:
        if wire is self._wire and not wire.is_closed and self._answered < correlation:
            self._come_again()
            wire.leave()

    def _come_again(self) -> None:
        self._wire = None
        if not self.has_left:
            self._world.after(self._world.rng.uniform(0.02, 0.1) * _SECOND_US, self.connect)

    def answered(self, wire: Wire, answer: bytes) -> None:
        """One whole answer."""
        is_empty = len(answer) < 9 + _ANSWER.size
        if not is_empty:
            self._world.told.delivered[wire.number].append(len(answer) - 5)
        if wire is not self._wire:
            return
        self._answered += 1
        correlation = int.from_bytes(answer[4:8], "big")
        assert correlation == self._answered, "answers out of order"
        throttle_ms, error, session_id = Struct(">ihi").unpack_from(answer, 9)
        self._world.told.wrong_epochs += error == _WRONG_EPOCH
        if is_empty:
            assert throttle_ms >= 1
        else:
            *_, begin, end = _ANSWER.unpack_from(answer, 9)
            if self.habits.depth == 1:
                assert begin == self.position, "something was missed, or read twice"
                self.position = end
            self._world.told.read[self].append((self._world.mono_us, len(answer) - 5))
        self._go_on_in(session_id, error, is_throttled=is_empty and throttle_ms > 0)
        if self.habits.reconnects:
            self._come_again()
            wire.leave()
            return
        think_us = self._world.rng.uniform(*self.habits.think_s) * _SECOND_US
        wait_us = throttle_ms * 1000 if self.habits.honours else 0
        self._world.after(think_us + wait_us, partial(self._send, wire))

    def _go_on_in(self, session_id: int, error: int, *, is_throttled: bool) -> None:
        """As Kafka's FetchSessionHandler."""
        if self.habits.depth > 1:
            return
        is_full = self._session[1] == 0
        if error or session_id == 0 or (is_full and is_throttled):
            self._session, self._told = (0, 0), None
        else:
            self._session = session_id, self._session[1] + 1

    def closed(self, wire: Wire) -> None:
        """The gateway has closed it."""
        if wire is self._wire:
            self._come_again()


# ------------------------------------------------------------------ judges


def has_a_row_each(world: World) -> bool:
    """True when what each connection was given is what it was charged, or in shadow mode might have been."""
    charged: dict[int, list[float]] = {number: [] for number in world.told.delivered}
    for row in world.rows:
        if row.outcome != REJECTED or not row.memo.enforced:
            charged[row.memo.connection].append(row.value)
    # The last answer of a connection may have been charged at its head and not have arrived whole.
    return all(
        delivered in (charged[number], charged[number][:-1])
        for number, delivered in world.told.delivered.items()
    )
