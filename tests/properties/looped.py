"""What worlds of closed loops have in common: two clocks, an agenda, and the driver of each connection.

Engine and connections are the gateway's own; drivers and both clocks are played, from one seed. Time is in µs
on a monotonic clock; the clock of decisions is that one plus an offset, which may step.
"""

import heapq
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random
from typing import Any

from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.session.connection import Connection
from kvota.session.pausing import Pausing
from kvota.testing.manual_clock import START_MS
from kvota.testing.stage import ALL_TYPES, BROKER, Cluster, Row

EVERY_CLIENT_ID = QuotaEntity(client_id=DEFAULT)
SECOND_US = 1_000_000
_SWEEP_US = 2_000_000
_EVENTS_PER_CHECK = 25  # it costs more than an event


@dataclass(frozen=True, slots=True)
class Change:
    """Something that an operator, a volume or a clock does to the gateway."""

    at_s: float
    what: str
    value: float = 0.0


class LoopedWorld(ABC):
    """The clocks, the agenda, the gateway, and everybody at it."""

    quota_type: QuotaType

    def __init__(self, scenario: Any) -> None:
        self.scenario = scenario
        self.rng = Random(scenario.seed)
        self.mono_us = 0
        self.offset_us = START_MS * 1000
        self.limit = scenario.limit
        self.cluster = Cluster(self._quotas(), buckets=self._buckets())
        self.wires: dict[LoopedWire, None] = {}
        self.numbers = count(1)
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

    def live(self) -> None:
        """Live through the scenario."""
        self._sweep()
        for number, habits in enumerate(self.scenario.crowds):
            for place in range(habits.connections):
                self.after(1_000 * place + number, self._newcomer(habits, place))
        for change in self.scenario.changes:
            self.after(change.at_s * SECOND_US, partial(self.change, change))
        end_us = int(self.scenario.seconds * SECOND_US)
        while self._agenda and self.events < self.scenario.events_max:
            at_us, _, action = heapq.heappop(self._agenda)
            if at_us > end_us:
                break
            self.mono_us = at_us
            self.events += 1
            action()
            if not self.events % _EVENTS_PER_CHECK:
                self.check_lines()

    @abstractmethod
    def check_lines(self) -> None:
        """Who waits has a turn, and nobody else has."""

    @abstractmethod
    def _newcomer(self, habits: Any, place: int) -> Callable[[], None]:
        """How one of a crowd comes."""

    def _sweep(self) -> None:
        """The gateway's upkeep."""
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
                engine.set_factor(self.quota_type, change.value)
            case "algorithm":
                engine.replace_countings({}, self._buckets() if change.value else {})
            case "enforce":
                cluster.enforce(ALL_TYPES if change.value else frozenset())
            case "clock":
                self.offset_us += int(change.value * SECOND_US)
            case _:
                raise AssertionError(change)
        if change.what != "clock":
            for wire in list(self.wires):
                self.after(self.rng.uniform(0, 50_000), wire.look_again)

    def _buckets(self) -> dict[QuotaType, BucketSettings]:
        bucket = self.scenario.bucket
        return {} if bucket is None else {self.quota_type: bucket}

    def _quotas(self) -> ConfiguredQuotas:
        return ConfiguredQuotas({EVERY_CLIENT_ID: {self.quota_type: self.limit}})


class LoopedWire(ABC):
    """One connection through the gateway: its driver and its socket."""

    # What is read from the socket at once.
    CHUNK_BYTES: int

    def __init__(self, world: LoopedWorld, host: str) -> None:
        self.world = world
        self.inbox = bytearray()  # in the socket
        self.is_closed = False
        self.is_gone = False
        self.number = next(world.numbers)
        self.pausing = Pausing(cap_ms=30_000)
        self._timer: object = None
        self._answers: deque[bytes] = deque()
        self._answer_at_us = 0
        self.machine = Connection(
            world.cluster.shared,
            self.pausing,
            number=self.number,
            dialled=BROKER,
            node_id=1,
            client_host=host,
            wake=self._wake,
        )
        world.wires[self] = None

    # ------------------------------------------------------------------ the client's side

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
            chunk = bytes(self.inbox[: self.CHUNK_BYTES])
            del self.inbox[: self.CHUNK_BYTES]
            self._forward(self.machine.from_client(chunk, self.world.now_us))
            self._look()
        if self.is_gone and not self.inbox and not self.machine.pauses_reading:
            self.close()

    # ------------------------------------------------------------------ the driver

    def _look(self) -> None:
        commands = self.machine.commands
        while commands and not self.is_closed:
            self._perform(*commands.pop(0))
        if not self.is_closed and self.pausing.deadline_changed:
            self._keep_timer()

    @abstractmethod
    def _perform(self, code: int, argument: object) -> None:
        """Carry out a command of the machine."""

    def _resume(self, reason: object) -> None:
        assert isinstance(reason, int)
        self._forward(self.machine.resume(reason, self.world.now_us))

    def _keep_timer(self) -> None:
        world = self.world
        deadline_ms = self.machine.next_deadline_ms(world.mono_us // 1000)
        self._timer = timer = object()
        if deadline_ms is None:
            return
        late_us = world.rng.uniform(-500, world.scenario.late_s * SECOND_US)
        world.after(deadline_ms * 1000 + late_us - world.mono_us, lambda: self._fire(timer))

    def _fire(self, timer: object) -> None:
        if timer is self._timer and not self.is_closed and not self.close_if_gone():
            world = self.world
            self._go_on(self.machine.deadline_passed(world.mono_us // 1000, world.now_us))

    def _wake(self) -> None:
        self.world.after(0, self._woken)

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

    @abstractmethod
    def close(self) -> None:
        """The end, on both sides."""

    # ------------------------------------------------------------------ the broker's side

    @abstractmethod
    def _forward(self, data: bytes | bytearray | None) -> None:
        """The broker gets these bytes."""

    def _answer_later(self, answer: bytes, delay_us: float) -> None:
        """The broker answers in order, each some time after the request has arrived whole."""
        self._answers.append(answer)
        self._answer_at_us = max(self._answer_at_us, int(self.world.mono_us + delay_us))
        self.world.after(self._answer_at_us - self.world.mono_us, self._answer)

    @abstractmethod
    def _answer(self) -> None:
        """The next answer is here."""
