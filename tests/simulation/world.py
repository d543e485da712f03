"""A world: clients, a gateway's connections, brokers, one clock; all drawn from one seed.

What is drawn
    1 to 8 clients of a few users and client ids (some invent an id for each request): producers, consumers,
    admins and clients that do everything; 1 to 3 brokers; quotas of none, one or several kinds, in
    force or in shadow mode, per quota type; the cap of a mute; the budget of announced bytes; in each
    direction of each connection, how its bytes are cut; how late answers and timers are; whether
    clients log in, and how; whether they come by TLS (``encrypted``).
What goes wrong
    ``faults`` (quotas, factors, algorithms and what is enforced change, clocks step, brokers die), ``clients.Manners`` (a client leaves at any byte,
    half-closes, ignores its throttle time), ``brokers.DrawnScript`` (errors, late and large answers).
What is checked
    ``watch`` while it goes on: nothing lost, doubled, reordered or changed on its way up. When all is
    quiet: ``answers``, ``rows``, ``mutes``, ``law``, the bounds of ``adversary``, that ``senders`` starve nobody, and that nothing is left:
    budget, waiting lines, what is due, reasons to pause.
How to repeat
    A run is a function of its seed: ``pytest tests/simulation --seed 12345``.
"""

from functools import partial
from random import Random
from typing import cast

from tests.simulation.adversary import RATIO, Adversaries, check_memory
from tests.simulation.answers import check_answers
from tests.simulation.asked_callback import AskedCallback, Asking
from tests.simulation.asks import Ask, Asks
from tests.simulation.brokers import BrokerEnd, DrawnScript
from tests.simulation.clients import Client, Manners
from tests.simulation.encrypted import Encrypted
from tests.simulation.faults import Faults, drawn_bucket, drawn_quotas
from tests.simulation.further_quota import FurtherQuota, refusal
from tests.simulation.law import check_law
from tests.simulation.mutes import check_mutes, check_mutes_have_rows
from tests.simulation.pipe import STYLES, Pipe
from tests.simulation.relays import Relay
from tests.simulation.request_time import RequestTimes
from tests.simulation.rows import (
    check_limits,
    check_modes,
    check_mutations,
    check_sequence,
    in_doubt,
    match_fetch,
    match_produce,
    reply_of,
    rows_of,
)
from tests.simulation.senders import STALLING_RATIO, Senders, drawn_stall
from tests.simulation.swaps import Swaps
from tests.simulation.timeline import Timeline
from tests.simulation.watch import InvariantError, TimedRows, Watch

from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_type import QuotaType
from kvota.testing.manual_clock import ManualClock
from kvota.testing.scripted_broker import ScriptedBroker
from kvota.testing.scripted_cluster import ScriptedCluster
from kvota.testing.stage import Cluster

# A name that no answer says of a broker.
_BOOTSTRAP = ("bootstrap.example", 9092)
_USERS = ("alice", "bob", "team a")
_BANDWIDTH = (QuotaType.PRODUCE, QuotaType.FETCH)
_TYPES = (*_BANDWIDTH, QuotaType.CONTROLLER_MUTATION)
# Errors of mutations: invalid topic, timed out, not allowed, policy.
_REFUSED = (17, 7, 31, 44)
# Of worlds in which everybody sends large requests at once, with a budget for one of them.
_BULK_RATIO = 0.12
# Of adversaries' requests: deletions of more topics than a user may have in hand twice.
_LARGE_RATIO = 0.05
# Of clients that are in a share group, too.
_SHARES_RATIO = 0.2
# Of worlds in which clients come by TLS.
_TLS_RATIO = 0.2
_PRODUCER, _CONSUMER, _ADMIN, _ANY = "producer", "consumer", "admin", "any"


class World:
    """One run; make it with its seed, then ``run`` it once. ``times``: it has quotas on time, too."""

    def __init__(self, seed: int, times: RequestTimes | None = None) -> None:
        self.seed = seed
        self._times = times
        self._rng = rng = Random(seed)
        clock = ManualClock()
        self.rows = TimedRows(clock)
        self.timeline = Timeline(clock)
        self.upstream = ScriptedCluster(
            brokers={node: (f"broker-{node}.inside", 9092) for node in range(1, rng.randint(2, 4))},
            default_partitions=rng.choice((1, 3)),
            tells_configs=rng.random() < 0.8,
        )
        is_bulk = rng.random() < _BULK_RATIO
        self.adversaries = Adversaries.drawn(rng, seed) if rng.random() < RATIO else None
        self._is_bulk = self.adversaries.wants_room if self.adversaries else is_bulk
        entries = self.adversaries.quotas if self.adversaries else drawn_quotas(rng)
        entries = times.added_to(entries) if times else entries
        quotas = ConfiguredQuotas(entries)
        self._is_asked = not self.adversaries and rng.random() < 0.2
        callback = AskedCallback(quotas) if self._is_asked else None
        self._cap_ms = rng.choice((3_000, 30_000))
        self._buckets, bucket, enforced = self._drawn_counting()
        enforced |= times.enforced if times else frozenset()
        is_large = not (self._is_bulk or self.adversaries)
        sizes = (1_000, 20_000, 70_000) + (128 * 2**20,) * is_large
        self._budget_bytes = rng.choice(sizes)
        self.cluster = Cluster(
            quotas,
            enforced=enforced,
            buckets=dict.fromkeys(self._buckets, bucket),
            budget_bytes=self._budget_bytes,
            limits={
                "mute_ms_max": self._cap_ms,
                "in_flight_max": rng.choice((2, 5_000)),
                "mutation_partitions_max": rng.choice((50, 10_000)),
                "default_partitions": self._default_partitions(),
            },
            clock=clock,
            sink=self.rows,
            callback=callback,
            produce_quotas=(FurtherQuota(self.rows, self._ask),) if rng.random() < 0.15 else (),
        )
        if self.adversaries:
            self.adversaries.limit_memory(self.cluster.shared)
        self.faults = Faults(self.cluster, self.timeline, rng, lambda: next(self.rows.ticks), times)
        self.faults.note_limits(entries)
        self.faults.note_modes(self.cluster.enforced, self._buckets)
        self._asking = Asking(self.cluster.engine.callback, self.timeline, rng)
        self._swaps = Swaps(
            seed if not self.adversaries else -1,
            self.cluster,
            self.timeline,
            self._asking,
            changed=lambda: self.faults.noted(self._look_again),
        )
        self._is_asked = self._is_asked or bool(self._swaps.count)
        self._logs_in = rng.random() < (0.7 if self.adversaries else 0.4)
        self._ends: list[BrokerEnd] = []
        self.relays: list[Relay] = []
        self._begin()

    def _begin(self) -> None:
        """Have clients come, and things go wrong, each at its time."""
        rng = self._rng
        # Drawn apart: what else a seed draws is the same with TLS and without.
        self._of_tls = Random(f"{self.seed} TLS")
        self._is_encrypted = not self.adversaries and self._of_tls.random() < _TLS_RATIO
        self._to_come = rng.randint(4, 14) if self.adversaries else rng.randint(1, 8)
        for number in range(self._to_come):
            latest_us = 1_000 if self._is_bulk else rng.choice((1_000, 3_000_000, 40_000_000))
            start_us = rng.randrange(latest_us)
            self.timeline.after_us(start_us, lambda number=number: self._connect(number))
        if self.adversaries:
            shared = self.cluster.shared
            Senders(shared, self.timeline, lambda: self.relays, self._all_have_gone)
        self.faults.begin(
            lambda: self._ends,
            drain=self._drain,
            look_again=self._look_again,
            of_brokers_only=self.adversaries is not None,
        )
        self.faults.lift_in_the_end(self._look_again)

    def _drawn_counting(
        self,
    ) -> tuple[frozenset[QuotaType], BucketSettings, frozenset[QuotaType]]:
        """What counts by a bucket, by which, and what is in force."""
        rng = self._rng
        of_buckets = rng.choice((0.0, 0.0, 0.5))
        buckets = frozenset(one for one in _BANDWIDTH if rng.random() < of_buckets)
        enforced = frozenset(one for one in _TYPES if rng.random() < 0.75)
        if self.adversaries is None:
            return buckets, drawn_bucket(rng), enforced
        return self.adversaries.buckets, self.adversaries.bucket, frozenset(_TYPES)

    def _default_partitions(self) -> int:
        """What the operator has set; where a bound is reckoned on it, what is so."""
        really = self.upstream.default_partitions
        drawn = self._rng.choice((1, 8, really))
        return drawn if self.adversaries is None else really

    def run(self) -> None:
        """Until nothing is due any more; then everything is checked.

        Raises:
            InvariantError: an invariant does not hold.
        """
        if self.timeline.run(self._check_now):
            self._check_end()

    @property
    def asks_a_callback(self) -> bool:
        """True where some callback in it has to be asked."""
        return self._is_asked

    def transcript(self) -> list[object]:
        """Everything that has happened, comparable between runs."""
        seen: list[object] = [row.columns() for row in self.rows.rows]
        for relay in self.relays:
            ups = [(up.at_ms, up.size) for up in relay.watch.upward]
            seen += [bytes(relay.watch.to_client), ups, relay.watch.mutes]
        return [self.timeline.events, self.timeline.now_us, seen]

    # ------------------------------------------------------------------ connections

    def _all_have_gone(self) -> bool:
        return not self._to_come and all(relay.closed for relay in self.relays)

    def _drain(self) -> None:
        for relay in self.relays:
            relay.drain()

    def _look_again(self) -> None:
        self._swaps.ask_again()
        for relay in self.relays:
            self.timeline.after_us(self._rng.choice((0, 500)), relay.look_again)

    def _pipe(self) -> Pipe:
        rng = self._rng
        room_bytes = rng.choice((300, 10_000, 2**20, 2**20))
        style = rng.choice(("halves", "large")) if self._is_bulk else rng.choice(STYLES)
        return Pipe(self.timeline, rng, style=style, room_bytes=room_bytes)

    def _connect(self, number: int) -> None:
        rng = self._rng
        self._to_come -= 1
        node_id = rng.choice(list(self.upstream.brokers))
        knows_node = self.adversaries is not None or rng.random() < 0.8
        by_another_name = not knows_node and rng.random() < 0.5
        watch = Watch(
            number=number,
            node_id=node_id,
            dialled=_BOOTSTRAP if by_another_name else self.upstream.brokers[node_id],
            rows=self.rows,
            clock=self.cluster.clock,
            cap_ms=self._cap_ms,
            lifted=self.faults.lifted,
            lowered=self.faults.lowered,
            knows_node=knows_node,
            node_ids={node_id},
        )
        relay = Relay(
            self.cluster,
            self.timeline,
            rng,
            watch,
            self._asking,
            cap_ms=self._cap_ms,
            dial=self._dial,
            times=self._times,
        )
        self.relays.append(relay)
        to_gateway, to_client = self._pipe(), self._pipe()
        if self._is_encrypted:
            failed = partial(self._tls_failed, relay)
            both = Encrypted(self.timeline, self._of_tls, to_gateway, to_client, failed)
            to_gateway, to_client = cast("Pipe", both.to_gateway), cast("Pipe", both.to_client)
        relay.serve(to_gateway, to_client)
        asks, logins = self._plan(number)
        if self.adversaries and rng.random() < STALLING_RATIO:
            to_gateway.stall = drawn_stall(rng, sum(len(ask.frame) for ask in asks))
        client = Client(
            self.timeline,
            rng,
            watch,
            asks,
            self._manners(asks),
            logins=logins,
            gone=relay.client_gone,
        )
        client.connect(to_gateway, to_client)

    def _tls_failed(self, relay: Relay) -> None:
        """As with a socket that is reset: only who has left breaks it off."""
        if not (relay.closed or relay.watch.client_gone):
            raise relay.watch.fail("TLS has failed, and its client is there")
        relay.close()

    def _ask(self, number: int, correlation: int) -> Ask:
        watch = next(relay.watch for relay in self.relays if relay.watch.number == number)
        asks = (ask for ask in watch.asks if not ask.is_token)
        return next(ask for ask in asks if ask.correlation == correlation)

    def _manners(self, asks: list[Ask]) -> Manners:
        rng = self._rng
        leaving_ratio = 0.4 if self._is_bulk or self.adversaries else 0.15
        all_bytes = sum(len(ask.frame) for ask in asks)
        return Manners(
            depth=rng.choice((1, 100, 100) if self.adversaries else (1, 1, 5, 5, 100)),
            logs_in_ahead=rng.random() < (0.8 if self.adversaries else 0.5),
            honours_throttle=not self.adversaries and rng.random() < 0.5,
            half_closes=rng.random() < 0.2,
            leaves_after=rng.randrange(all_bytes) if rng.random() < leaving_ratio else None,
        )

    def _plan(self, number: int) -> tuple[list[Ask], int]:
        """What one client asks, and how many of these are its login."""
        rng = self._rng
        shares_topics = self.adversaries is not None and self.adversaries.shares_topics
        prefix = "shared-" if shares_topics else f"{number}-"
        there = {prefix + name: rng.choice((1, 5, 12)) for name in ("a", "b") if rng.random() < 0.6}
        refusal = rng.choice(_REFUSED)
        if prefix + "bad" not in self.upstream.refused:  # nobody changes topics past the gateway
            self.upstream.topics |= there
            self.upstream.refused[prefix + "bad"] = refusal
        client_ids: tuple[str | None, ...] = rng.choice(
            (("app",), ("app", "other"), (None,), ("größe",), tuple(f"id-{n}" for n in range(40)))
        )
        shares = Random(f"shares {self.seed} {number}")
        asks = Asks(
            rng,
            client_ids=client_ids,
            prefix=prefix,
            is_bulk=self._is_bulk,
            shares=shares if shares.random() < _SHARES_RATIO else None,
        )
        plan = asks.login(rng.choice(_USERS)) if self._logs_in else []
        logins = len(plan)
        roles = (_PRODUCER, _CONSUMER, _ADMIN, _ANY, _ANY)
        role = _PRODUCER if self._is_bulk else rng.choice(roles)
        if shares_topics:
            role = rng.choice((_ADMIN, _ADMIN, _ADMIN, _ANY))
        is_steady = role == _CONSUMER and rng.random() < 0.5
        for _ in range(rng.randint(1, 20)):
            if is_steady:
                plan.append(asks.fetch())
                continue
            plan.append(self._drawn_ask(asks, role))
            if self._logs_in and rng.random() < 0.05:
                plan += asks.login(rng.choice(_USERS), first=False)
        return plan, logins

    def _drawn_ask(self, asks: Asks, role: str) -> Ask:
        rng = self._rng
        passing = (asks.heartbeat, asks.metadata, asks.api_versions)
        if self.adversaries and role in {_ADMIN, _ANY} and rng.random() < _LARGE_RATIO:
            return asks.delete_many()
        draws = {
            _PRODUCER: (asks.produce,),
            _CONSUMER: (asks.fetch,),
            _ADMIN: (asks.create, asks.create, asks.delete, asks.grow),
            _ANY: (asks.produce, asks.fetch, asks.create, *passing),
        }
        return rng.choice(draws[role] if rng.random() < 0.85 else passing)()

    def _dial(self, relay: Relay) -> tuple[Pipe, Pipe, BrokerEnd] | None:
        if self._rng.random() < 0.03:
            return None
        up, down = self._pipe(), self._pipe()
        script = DrawnScript(self._rng, self.upstream)
        node_id = relay.watch.node_id
        if self._rng.random() < 0.07 and not self.adversaries:
            node_id = self._rng.choice(list(self.upstream.brokers))
        scripted = ScriptedBroker(self.upstream, script, node_id=node_id)
        end = BrokerEnd(self.timeline, scripted, relay.watch, incoming=up, outgoing=down)
        self._ends.append(end)
        return up, down, end

    # ------------------------------------------------------------------ checks

    def _check_now(self) -> None:
        budgets = self.cluster.shared.budgets
        for budget in budgets._of.values():
            if budget.used_bytes < 0:
                raise InvariantError(f"the budget is {budget.used_bytes}")
        if self.adversaries:
            check_memory(self.cluster.shared, self.relays, self._budget_bytes)

    def _check_nothing_is_left(self) -> None:
        budgets = self.cluster.shared.budgets
        if budgets.used_bytes or any(budget.is_waited_for for budget in budgets._of.values()):
            raise InvariantError(f"{budgets.used_bytes} bytes of the budget are never given back")
        for quota_type in _TYPES:
            for lane in self.cluster.engine._counters.of_type(quota_type):
                if lane.line:
                    raise InvariantError(f"{len(lane.line)} wait for {lane.tags} at the end")
                if lane.room is not None and (lane.room.line or lane.room._reserved_for):
                    raise InvariantError(f"room of {lane.tags} that is never given back")

    def _check_end(self) -> None:
        self._check_nothing_is_left()
        check_sequence(self.rows)
        effect_ms = partial(self._swaps.effect_ms, is_asked=self._is_asked)
        check_limits(self.rows, self.faults.limits, for_ms=effect_ms)
        if not self._is_asked:
            check_modes(self.rows, self.faults.modes)
        check_law(self.rows.rows)
        if self._times:
            watches = [relay.watch for relay in self.relays]
            self._times.check(self.rows, watches, self.cluster.shared.exempt_ns)
        by_connection = rows_of(self.rows)
        doubtful: set[object] = set()
        shares_topics = self.adversaries is not None and self.adversaries.shares_topics
        for relay in self.relays:
            replies = reply_of(relay.watch, relay.replies)
            doubtful |= in_doubt(relay.watch, replies, are_shared=shares_topics)
        for relay in self.relays:
            self._check_connection(relay, by_connection, doubtful)
        if self.adversaries:
            self.adversaries.check_bounds()

    def _check_connection(self, relay: Relay, rows: dict, doubtful: set[object]) -> None:
        watch, machine = relay.watch, relay.machine
        if not relay.closed:
            raise watch.fail(f"never ends: {relay.pausing.reasons!r}, {machine.due_count} due")
        if relay.due_at_close and not watch.is_broken:
            raise watch.fail(f"{relay.due_at_close} answers were due at the end")
        if not (machine.idle or watch.is_broken):
            raise watch.fail("not idle at the end")
        if watch.up and not watch.is_broken:
            raise watch.fail(f"half a frame went up: {bytes(watch.up[:14]).hex()}")
        replies = reply_of(watch, relay.replies)
        produce = rows.get((watch.number, QuotaType.PRODUCE), [])
        row_of = match_produce(watch, produce, replies)
        if self.adversaries:
            self.adversaries.note_given(watch, row_of)
            self.adversaries.note_fetched(watch, replies)
        fetched = rows.get((watch.number, QuotaType.FETCH), [])
        is_bucket = QuotaType.FETCH in self.faults.buckets
        row_of |= match_fetch(watch, fetched, replies, is_asked=self._is_asked, is_bucket=is_bucket)
        mutations = rows.get((watch.number, QuotaType.CONTROLLER_MUTATION), [])
        if self.adversaries:
            self.adversaries.mutations.note(watch, mutations, replies)
        time_ms = self._times.told_ms(watch, self.rows.rows) if self._times else ()
        check_answers(watch, replies, row_of, refusal=refusal, time_ms=time_ms)
        check_mutations(watch, mutations, replies, doubtful)
        charged = [row for row in self.rows.rows if row.memo.connection == watch.number]
        excuses_ms = self.faults.excuses_ms
        check_mutes_have_rows(
            watch,
            self.rows,
            charged,
            excuses_ms=excuses_ms,
            stepped_back_ms=self.faults.stepped_back_ms,
            time_ms=time_ms,
        )
        check_mutes(
            watch,
            self.rows,
            row_of,
            replies,
            cap_ms=self._cap_ms,
            excuses_ms=excuses_ms,
            time_ms=time_ms,
        )
