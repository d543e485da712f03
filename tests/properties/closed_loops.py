"""A world of clients in closed loops: each sends, waits for its answer, and sends again.

Engine and connections are the gateway's own; drivers, sockets, brokers and both clocks are played
here, from one seed. Time is in µs on a monotonic clock; the clock of decisions is that one plus an
offset, which may step. Clients may do what they like: ignore throttle times, send many requests at
once, come again and again, send nothing but the head of what they announce.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from typing import NamedTuple

from tests.properties.looped import SECOND_US, Change, LoopedWire, LoopedWorld

from kvota.engine.kept_places import KEPT_MS
from kvota.model.bucket_settings import BucketSettings
from kvota.model.decision_sink import REJECTED
from kvota.model.quota_type import QuotaType
from kvota.session.commands import Do
from kvota.session.pausing import Reason
from kvota.testing.frames import produce_answer
from kvota.testing.stage import Row

PRODUCE = QuotaType.PRODUCE
BUCKET = BucketSettings(burst_ms=1_000, debt_max_ms=15_000)
EVIDENCE_BYTES = 17_000  # more than what a gateway wants to see of a frame before it goes on
_ANSWER = produce_answer(9)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How the connections of one crowd behave; times in seconds.

    Attributes:
        cost_s: between which bounds the size of a request lies, in seconds of the configured limit.
        depth: requests sent before the first answer is awaited.
        honours: whether the client waits as it is told.
        patience_s: a connection whose oldest request has waited for so long is given up.
        stops_short: the share of large requests of which the rest never comes.
        own_hosts: whether each connection comes from an address of its own.
    """

    connections: int = 1
    client_id: str = "app"
    cost_s: tuple[float, float] = (0.45, 0.45)
    think_s: tuple[float, float] = (0.001, 0.001)
    depth: int = 1
    acks: int = -1
    honours: bool = False
    patience_s: float | None = None
    stops_short: float = 0.0
    leaves_in_s: tuple[float, float] = (20.0, 20.0)
    own_hosts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A world before it begins.

    Attributes:
        limit: configured for each client id, in bytes per second.
        late_s: by how much a timer may be late.
    """

    seed: int = 0
    limit: float = 20_000.0
    bucket: BucketSettings = BUCKET
    seconds: float = 122.0
    late_s: float = 0.002
    crowds: tuple[Habits, ...] = (Habits(),)
    changes: tuple[Change, ...] = ()
    events_max: int = 1_000_000


class End(NamedTuple):
    """The end of a connection.

    Attributes:
        seq: number of the next row.
        gave_up: whether its request had waited in line for too long.
    """

    seq: int
    connection: int
    host: str
    gave_up: bool
    now_ms: int


@dataclass(slots=True)
class Told:
    """What the world has seen beside the rows.

    Attributes:
        forwarded: Produce requests that brokers have seen the head of.
        whole: of these, that brokers have seen all of.
        closed: connections closed by the gateway: why.
        ends: of connections, in order.
        hosts: where connections have come from.
        served: bytes answered, by client and by when.
        let_go: forwarded while there was no quota: number of the next row, and the connection. Its own
            row comes when the request is whole, or never.
    """

    forwarded: int = 0
    whole: int = 0
    closed: list[str] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    hosts: dict[int, str] = field(default_factory=dict)
    served: dict["Client", list[tuple[int, int]]] = field(default_factory=dict)
    let_go: list[tuple[int, int]] = field(default_factory=list)


class World(LoopedWorld):
    """Everybody at a gateway that limits what is produced."""

    quota_type = PRODUCE

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.told = Told()
        self.algorithm_is_bucket = True
        self.has_quota = True

    def run(self) -> "World":
        """Live through the scenario; then everybody leaves."""
        self.live()
        self._everybody_leaves()
        return self

    def _newcomer(self, habits: Habits, place: int) -> Callable[[], None]:
        host = f"198.51.100.{place}" if habits.own_hosts else "192.0.2.1"
        client = Client(self, habits, host)
        self.told.served[client] = []
        return client.connect

    def check_lines(self) -> None:
        """Who waits in line has a turn, and nobody else has."""
        for wire in self.wires:
            has_turn = wire.machine._requests.place._turn is not None
            waits = wire.machine.is_in_line
            # At its turn it may have to wait for room in the budget.
            assert has_turn == waits or wire.pausing.reasons & Reason.BUDGET, self.scenario

    def _everybody_leaves(self) -> None:
        for wire in list(self.wires):
            wire.client.has_left = True
            wire.close()
        assert self.cluster.shared.budgets.used_bytes == 0
        self.check_lines()

    def change(self, change: Change) -> None:
        """Do to the gateway what the scenario says."""
        if change.what == "algorithm":
            self.algorithm_is_bucket = bool(change.value)
        if change.what in {"limit", "no quota"}:
            self.has_quota = change.what == "limit"
        super().change(change)


class Wire(LoopedWire):
    """One connection through the gateway: its driver, its socket, and its broker."""

    CHUNK_BYTES = 262_144

    def __init__(self, world: World, client: "Client") -> None:
        super().__init__(world, client.host)
        self.client = client
        self._frame_left = 0  # of the frame that the broker is reading
        self._acks = -1
        self._correlation = 0
        world.told.hosts[self.number] = client.host

    def _perform(self, code: int, argument: object) -> None:
        if code == Do.CLOSE:
            self.world.told.closed.append(str(argument))
            self.close(str(argument))
        else:
            assert code in {Do.RESUME, Do.YIELD}, code
            self._resume(argument)

    def close(self, reason: str = "") -> None:
        """The end, on both sides; a reason is the gateway's own."""
        if self.is_closed:
            return
        self.is_closed = True
        del self.world.wires[self]
        seq, now_ms = self.world.cluster.sink._seq, self.world.now_us // 1000
        end = End(seq, self.number, self.client.host, gave_up=bool(reason), now_ms=now_ms)
        self.world.told.ends.append(end)
        self.machine.close()
        self.machine.give_back_missing(self.world.now_us)
        self.machine.upstream_gone()
        self.client.closed(self)

    # ------------------------------------------------------------------ the broker

    def _forward(self, data: bytes | bytearray | None) -> None:
        at = 0
        while data and at < len(data):
            if not self._frame_left:
                assert len(data) - at >= 30, "half a head was forwarded"
                size = int.from_bytes(data[at : at + 4], "big")
                self._correlation = int.from_bytes(data[at + 8 : at + 12], "big")
                acks_at = at + 16 + int.from_bytes(data[at + 12 : at + 14], "big")
                self._acks = int.from_bytes(data[acks_at : acks_at + 2], "big", signed=True)
                self._frame_left = size + 4
                self.world.told.forwarded += 1
                if not self.world.has_quota:
                    self.world.told.let_go.append((self.world.cluster.sink._seq, self.number))
            here = min(self._frame_left, len(data) - at)
            self._frame_left -= here
            at += here
            self.world.told.whole += not self._frame_left
            if not self._frame_left and self._acks:
                self._answer_later(_with(self._correlation), self.world.rng.uniform(200, 3_000))

    def _answer(self) -> None:
        answer = self._answers.popleft()
        if self.is_closed:
            return
        out = self.machine.from_upstream(answer, self.world.now_us)
        self._look()
        if out and not self.is_closed:
            self.client.answered(self, bytes(out))
        if not self.is_closed:
            self._read()


class Client:
    """One connection after the other, with the habits of its crowd."""

    def __init__(self, world: World, habits: Habits, host: str) -> None:
        self._world = world
        self.host = host
        self._habits = habits
        self._wire: Wire | None = None
        self._due: deque[int] = deque()  # sizes of the requests that have not been answered
        self._correlation = 0
        self._arrives_us = 0  # the last bytes that were sent
        self._stops_short = False  # the rest of the last request never comes
        self.has_left = False

    def connect(self) -> None:
        self._due.clear()
        self._stops_short = False
        self._wire = Wire(self._world, self)
        for _ in range(self._habits.depth):
            self._send(self._wire)

    def _send(self, wire: Wire) -> None:
        world, habits = self._world, self._habits
        if wire is not self._wire or wire.is_closed or self._stops_short:
            return
        if not habits.acks and len(wire.inbox) > 100_000:  # the socket is full
            world.after(world.rng.uniform(0.05, 0.5) * SECOND_US, partial(self._send, wire))
            return
        low, high = habits.cost_s
        cost_s = low * (high / low) ** world.rng.random()
        self._correlation += 1
        frame = _frame(self._correlation, habits, round(cost_s * world.scenario.limit))
        self._due.append(len(frame) - 4)
        parts = [frame]
        if len(frame) > EVIDENCE_BYTES and world.rng.random() < 0.5:
            parts = [frame[:EVIDENCE_BYTES], frame[EVIDENCE_BYTES:]]
            if world.rng.random() < habits.stops_short:
                del parts[1]
                self._stops_short = True
                left_us = world.rng.uniform(*habits.leaves_in_s) * SECOND_US
                world.after(left_us, partial(self._give_up, wire, self._correlation))
        for part in parts:
            self._post(wire, part)
        if habits.patience_s is not None:
            give_up = partial(self._give_up, wire, self._correlation)
            world.after(habits.patience_s * SECOND_US, give_up)
        if not habits.acks:
            self._due.clear()
            world.after(self._think_us(), partial(self._send, wire))

    def _post(self, wire: Wire, data: bytes) -> None:
        """Bytes arrive in their order, at once or some ms later."""
        world = self._world
        delay_us = world.rng.choice((0, 0, 2_000, 20_000))
        self._arrives_us = max(self._arrives_us, world.mono_us + delay_us)
        if self._arrives_us == world.mono_us:
            wire.receive(data)
        else:
            world.after(self._arrives_us - world.mono_us, partial(wire.receive, data))

    def _think_us(self) -> float:
        return self._world.rng.uniform(*self._habits.think_s) * SECOND_US

    def _give_up(self, wire: Wire, correlation: int) -> None:
        waits = correlation > self._correlation - len(self._due)
        if wire is self._wire and not wire.is_closed and (waits or self._stops_short):
            self._come_again()
            wire.leave()

    def _come_again(self) -> None:
        self._wire = None
        if not self.has_left:
            self._world.after(self._world.rng.uniform(0.02, 0.1) * SECOND_US, self.connect)

    def answered(self, wire: Wire, answers: bytes) -> None:
        for at in range(0, len(answers), len(_ANSWER)):
            answer = answers[at : at + len(_ANSWER)]
            if wire is not self._wire:
                return
            size = self._due.popleft()
            correlation = int.from_bytes(answer[4:8], "big")
            assert correlation == self._correlation - len(self._due), "answers out of order"
            self._world.told.served[self].append((self._world.mono_us, size))
            throttle_ms = int.from_bytes(answer[-5:-1], "big")
            wait_us = throttle_ms * 1000 if self._habits.honours else 0
            self._world.after(self._think_us() + wait_us, partial(self._send, wire))

    def closed(self, wire: Wire) -> None:
        if wire is self._wire:
            self._come_again()


def _frame(correlation: int, habits: Habits, size: int) -> bytes:
    """Produce v9; nothing behind its acks is looked at."""
    name = habits.client_id.encode()
    head = b"\0\0\0\x09" + correlation.to_bytes(4, "big") + len(name).to_bytes(2, "big") + name
    head += b"\0\0" + habits.acks.to_bytes(2, "big", signed=True) + b"\0\0\x75\x30\1\1"
    return max(size, len(head)).to_bytes(4, "big") + head + bytes(max(0, size - len(head)))


def _with(correlation: int) -> bytes:
    return _ANSWER[:4] + correlation.to_bytes(4, "big") + _ANSWER[8:]


# ------------------------------------------------------------------ judges


def excess_s(world: World) -> float:
    """By how much the worst interval of a counter is above the bound, in seconds; 0: it holds.

    In every interval the requests before its last one cost no more than elapsed + burst + debt_max,
    where only forward steps of the decision clock count. So the rule holds, with one request on top;
    the last one of an interval, not just any.

    It holds for the rows as they are, and for what has come: where a part of a request never did and was
    given back, its charge is worth the rest. Once with what a request costs under the limit in force, in
    intervals in which that is not raised; once in all, with what it would cost under the highest one.
    """
    rows = world.rows
    highest: dict[object, float] = {}
    for row in rows:
        limit = inf if row.memo.limit is None else row.memo.limit
        highest[_counter(row)] = max(highest.get(_counter(row), 0.0), limit)
    in_force_ms = [_cost_ms(row, row.memo.limit) for row in rows]
    least_ms = [_cost_ms(row, highest[_counter(row)]) for row in rows]
    return max(
        _excess_s(world, rows, in_force_ms, across_raises=False),
        _excess_s(world, rows, _net(rows, in_force_ms), across_raises=False),
        _excess_s(world, rows, least_ms, across_raises=True),
        _excess_s(world, rows, _net(rows, least_ms), across_raises=True),
    )


def _counter(row: Row) -> object:
    return row.memo.tags, row.memo.node_id


def _cost_ms(row: Row, limit: float | None) -> float:
    return row.value / limit * 1000 if limit and row.memo.limit else 0.0


def _net(rows: list[Row], costs_ms: list[float]) -> list[float]:
    """What is given back belongs to the charge before it on the same connection."""
    net_ms = list(costs_ms)
    charge_of: dict[int, int] = {}
    for place, row in enumerate(rows):
        if row.value >= 0:
            charge_of[row.memo.connection] = place
        elif row.memo.limit:
            net_ms[place] = 0.0
            net_ms[charge_of[row.memo.connection]] += costs_ms[place]
            assert net_ms[charge_of[row.memo.connection]] >= -1e-6, (
                "more is given back than charged"
            )
    return net_ms


def _excess_s(
    world: World, rows: list[Row], costs_ms: list[float], *, across_raises: bool
) -> float:
    bucket = world.scenario.bucket
    bound_ms = bucket.burst_ms + bucket.debt_max_ms
    worst_ms = 0.0
    over_ms: dict[object, float] = {}  # of the worst interval that ends here
    seen_ms: dict[object, int] = {}
    limits: dict[object, float] = {}
    for row, cost_ms in zip(rows, costs_ms, strict=True):
        counter, now_ms = _counter(row), row.ts_us // 1000
        if row.memo.samples == 0:
            continue  # no quota: no counter was touched
        if row.memo.samples != 1:
            over_ms[counter] = 0.0  # by another algorithm: the next bucket is a new one
            continue
        limit = inf if row.memo.limit is None else row.memo.limit
        if limit > limits.get(counter, limit) and not across_raises:
            over_ms[counter] = 0.0
        limits[counter] = limit
        elapsed_ms = max(0, now_ms - seen_ms.get(counter, now_ms))
        seen_ms[counter] = now_ms
        before_ms = max(0.0, over_ms.get(counter, 0.0) - elapsed_ms)
        over_ms[counter] = before_ms
        if row.outcome == REJECTED or row.memo.limit is None:
            continue
        if row.value >= 0:
            worst_ms = max(worst_ms, before_ms - bound_ms)
        over_ms[counter] = before_ms + cost_ms
    return worst_ms / 1000 if worst_ms > 1e-3 else 0.0


class Line:
    """Who waits for one counter, as it should be: the first come first, or who has kept its place."""

    def __init__(self) -> None:
        self.tickets: dict[int, int] = {}  # by connection
        self._next_ticket = count()
        self._kept: list[tuple[tuple[str, str], int, int]] = []  # key, ticket, when it was left
        self._have_come: set[int] = set()

    @property
    def first(self) -> int:
        return min(self.tickets, key=self.tickets.__getitem__)

    def come(self, connection: int, key: tuple[str, str], now_ms: int) -> None:
        if connection in self.tickets:
            return
        ticket = None
        if connection not in self._have_come:
            self._drop_expired(now_ms)
            of_key = [kept for kept in self._kept if kept[0] == key]
            if of_key:
                self._kept.remove(of_key[0])
                ticket = of_key[0][1]
        self._have_come.add(connection)
        self.tickets[connection] = next(self._next_ticket) if ticket is None else ticket

    def end(self, end: End, client_ids: Mapping[int, str]) -> None:
        ticket = self.tickets.pop(end.connection, None)
        if ticket is not None and end.gave_up:
            self._drop_expired(end.now_ms)
            key = (end.host, client_ids[end.connection])
            self._kept.append((key, ticket, end.now_ms))

    def _drop_expired(self, now_ms: int) -> None:
        while self._kept and abs(now_ms - self._kept[0][2]) >= KEPT_MS:
            del self._kept[0]


def passed_others(world: World) -> list[tuple[int, int]]:
    """(number of the row, connection) of each request that was charged before others in line."""
    found: list[tuple[int, int]] = []
    lines: dict[object, Line] = {}
    client_ids: dict[int, str] = {}
    ends, let_go = deque(world.told.ends), deque(world.told.let_go)
    for row in world.rows:
        while let_go and let_go[0][0] <= row.seq:
            _, number = let_go.popleft()
            for line in lines.values():
                line.tickets.pop(number, None)
        while ends and ends[0].seq <= row.seq:
            end = ends.popleft()
            for line in lines.values():
                line.end(end, client_ids)
        if row.value < 0:
            continue
        line = lines.setdefault(row.memo.tags, Line())
        number = row.memo.connection
        client_ids[number] = row.memo.client_id
        is_bucket = row.memo.samples == 1 and row.memo.enforced
        if is_bucket and row.outcome == REJECTED:
            line.come(number, (world.told.hosts[number], row.memo.client_id), row.ts_us // 1000)
            continue
        if is_bucket and line.tickets and line.first != number:
            found.append((row.seq, number))
        line.tickets.pop(number, None)
    return found


def has_one_row_each(world: World) -> bool:
    """True when each forwarded request has one row: charged, or in shadow mode not charged.

    One that breaks off has none where it would have been charged at its end.
    """
    rows = [
        row
        for row in world.rows
        if row.value >= 0 and (row.outcome != REJECTED or not row.memo.enforced)
    ]
    return world.told.whole <= len(rows) <= world.told.forwarded
