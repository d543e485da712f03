"""A world of consumers in closed loops: each asks, reads its answer, and asks again.

As ``closed_loops`` has it for producers: engine and connections are the gateway's own; drivers,
brokers and both clocks are played, from one seed. Brokers keep fetch sessions as KIP-227 has them, and each
answer says from where to where it reads: so what a client has missed, or read twice, is seen.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from struct import Struct

from tests.properties.closed_loops import BUCKET
from tests.properties.looped import SECOND_US, Change, LoopedWire, LoopedWorld

from kvota.model.bucket_settings import BucketSettings
from kvota.model.decision_sink import REJECTED
from kvota.model.quota_type import QuotaType
from kvota.session.commands import Do

FETCH = QuotaType.FETCH
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


class World(LoopedWorld):
    """Everybody at a gateway that limits what is fetched."""

    quota_type = FETCH

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.told = Told()
        self.sessions: dict[int, list[int]] = {}  # epoch that is expected, position
        self.session_ids = count(1)

    def run(self) -> "World":
        """Live through the scenario; then everybody leaves, and nothing is left of them."""
        self.live()
        for wire in list(self.wires):
            wire.consumer.has_left = True
            wire.close()
        for lane in self.cluster.engine._counters.of_type(FETCH):
            assert lane.room is None or not lane.room.line, self.scenario
            assert lane.room is None or lane.room._reserved_bytes == 0, self.scenario
        return self

    def _newcomer(self, habits: Appetite, place: int) -> Callable[[], None]:
        consumer = Consumer(self, habits)
        self.told.read[consumer] = []
        return consumer.connect

    def check_lines(self) -> None:
        """Who waits for room has a turn, and nobody else has."""
        for wire in self.wires:
            assert wire.machine.caller.fetch_room.is_waiting == wire.machine.is_in_line, (
                self.scenario
            )


class Wire(LoopedWire):
    """One connection through the gateway: its driver, its socket, and its broker."""

    CHUNK_BYTES = 65_536

    def __init__(self, world: World, consumer: "Consumer") -> None:
        super().__init__(world, "192.0.2.1")
        self.consumer = consumer
        self._out = bytearray()
        world.told.delivered[self.number] = []

    def _perform(self, code: int, argument: object) -> None:
        if code == Do.SEND_CLIENT:
            assert isinstance(argument, bytes)
            self._deliver(argument)
        else:
            assert code == Do.RESUME, (code, argument)
            self._resume(argument)

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
        delay_us = world.rng.uniform(200, 3_000)
        if habits.together_s is not None:
            period_us = int(habits.together_s * SECOND_US)
            delay_us = period_us - world.mono_us % period_us
        self._answer_later(len(answer).to_bytes(4, "big") + answer, delay_us)

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
            self._world.after(self.habits.patience_s * SECOND_US, give_up)

    def _give_up(self, wire: Wire, correlation: int) -> None:
        if wire is self._wire and not wire.is_closed and self._answered < correlation:
            self._come_again()
            wire.leave()

    def _come_again(self) -> None:
        self._wire = None
        if not self.has_left:
            self._world.after(self._world.rng.uniform(0.02, 0.1) * SECOND_US, self.connect)

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
        think_us = self._world.rng.uniform(*self.habits.think_s) * SECOND_US
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
