"""The gateway: it listens, relays until it is told to stop, and lets open connections finish."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import count

from kvota.engine import Factored
from kvota.gateway.backlog import Backlog
from kvota.gateway.broker_addresses import BrokerAddresses
from kvota.gateway.callback_in_force import CallbackInForce, PreparedCallback
from kvota.gateway.certificate_in_force import CertificateInForce, Renewable, watch_certificates
from kvota.gateway.client_side import Reception, protocol_for
from kvota.gateway.connection_rates import ConnectionRates
from kvota.gateway.dialling import Dialler
from kvota.gateway.driver import Driver
from kvota.gateway.errands import AlterTheSettings, Errands, FindOwner
from kvota.gateway.glancing import Glancing, Watched
from kvota.gateway.held_back import HeldBack
from kvota.gateway.journal import Journal, printable
from kvota.gateway.listeners import Listeners
from kvota.gateway.loop_lag import watch_lag
from kvota.gateway.means import Means
from kvota.gateway.own_addresses import OwnAddresses
from kvota.gateway.parts import in_parts
from kvota.gateway.places import Places
from kvota.gateway.settings import ConnectionRateSettings, GatewaySettings
from kvota.gateway.slow_senders import SlowSenders
from kvota.gateway.turns import Turns
from kvota.metrics.counter_key import CounterKey
from kvota.metrics.gateway_counts import GatewayCounts
from kvota.metrics.glance import GatewayGlance
from kvota.model.bucket_settings import BucketSettings
from kvota.model.client_quotas import KeyChange, of_engine
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_type import QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.session.shared import Shared
from kvota.store.quota_store import QuotaStore
from kvota.volumes import VolumeThrottle

log = logging.getLogger(__name__)

_SWEEP_S = 2.0
# A step takes some ms: 5,000 counters/s are looked at in a crowd, 500 otherwise.
_PURGE_S, _PURGE_CROWD_S = 1.0, 0.1
# Of users who ask for producer ids, with each purge; some ms.
_LOOKED_AT_INITS = 500
# A flood that goes on is not said every second.
_SAY_AGAIN_S = 60.0
_DRAIN_LOOK_S = 0.02
# Some 10 µs each: what arrives meanwhile waits for a few ms at most.
_LOOK_AGAIN_AT_ONCE = 200

_NO_FACTORS = Factored()


class Gateway:
    """One gateway in front of one cluster.

    Args:
        settings: where to listen, whom to reach, limits.
        shared: engine, sink and the rest that every connection's machine uses.
        store: where configured quotas are kept.

    Raises:
        TlsSettingError: a listener's certificate cannot be used.

    Attributes:
        certificates: of each listener, as settings.listeners has them; None: it does not encrypt.
        quota_callback: the callback in force, which can be changed while it runs.
        alter_settings: alters the gateway's own settings, where it has any; set before it runs.
        volume_throttle: what full volumes make of produce limits, for whoever looks; None: they are not looked at.
        counts: of connections, since it began to run.
        is_listening: clients may connect.
    """

    def __init__(self, settings: GatewaySettings, shared: Shared, store: QuotaStore) -> None:
        self.settings = settings
        self.shared = shared
        self._store = store
        self.counts = GatewayCounts()
        self._places = Places(settings.limits, self.counts)
        self._backlog = Backlog(self._places, shared)
        self._own = OwnAddresses(
            host=settings.host,
            advertised_host=settings.advertised.host,
            ports=settings.ports,
            further=((one.host, one.advertised.host) for one in settings.further_listeners),
        )
        self.certificates = tuple(
            None if one.tls is None else CertificateInForce(one.tls, f"{one.table}.tls")
            for one in settings.listeners
        )
        shared.topology.is_gateways = self._own.is_named
        connect_s = settings.limits.connect_ms / 1000
        self._brokers = BrokerAddresses(shared.topology, self._own, connect_s=connect_s)
        self._dialler = Dialler(settings, shared.topology, self._brokers, self._own, self.counts)
        self._slow_senders = SlowSenders(
            self._places, settings.limits, shared.budgets, shared.early_charges
        )
        self.quota_callback = CallbackInForce(shared, look_again=self.look_again)
        self.alter_settings: AlterTheSettings | None = None
        self.volume_throttle: VolumeThrottle | None = None
        self.is_listening = False
        self._glancing: Glancing
        self._loop: asyncio.AbstractEventLoop
        self._rates = ConnectionRates(settings.connection_rates)
        self._to_look_again: dict[Driver, None] = {}
        self._stop: asyncio.Event
        self._errands: Errands
        self._tasks: asyncio.TaskGroup

    # ------------------------------------------------------------------ what it offers

    async def run(self, *, started: asyncio.Event | None = None) -> None:
        """Listen and relay until ``stop`` is called, then drain.

        Raises:
            UnreachableError: a port cannot be listened on; says which and why.
        """
        loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self.quota_callback.start(loop)
        self._loop = loop
        self._glancing = self._made_glancing(loop)
        self._errands = errands = Errands(loop, self._store, self.alter_settings)
        held_back = HeldBack(loop)
        self._store.begin(self._in_force)
        means = Means(
            loop=loop,
            limits=self.settings.limits,
            shared=self.shared,
            asking=self.quota_callback,
            errands=errands,
            brokers=self._brokers,
            counts=self.counts,
            turns=Turns(loop),
            backlog=self._backlog,
            journal=Journal(loop.time),
            numbers=count(1),
        )
        self._slow_senders.watch(loop)
        listeners = Listeners(self.settings)
        async with asyncio.TaskGroup() as tasks:
            reception = Reception(
                means=means,
                places=self._places,
                rates=self._rates,
                held_back=held_back,
                dialler=self._dialler,
                tasks=tasks,
                certificates=self.certificates,
            )
            try:
                await listeners.open(partial(protocol_for, reception))
                self._own.listens_at(listeners.ips)
                beside = self._begin_beside(tasks, means.journal)
                self.is_listening = True
                if started is not None:
                    started.set()
                await self._stop.wait()
                self._places.closed = True
                listeners.close()
                held_back.stop()
                await self._drain()
                for task in beside:
                    task.cancel()
            finally:
                listeners.close()
                self._brokers.stop()
                means.journal.finish()
                await self._store.end()  # what it puts in force at last may have names to look up
                errands.stop()
                await self.quota_callback.close()

    def _begin_beside(self, tasks: asyncio.TaskGroup, journal: Journal) -> list[asyncio.Task[None]]:
        """What goes on until the gateway drains."""
        self._tasks = tasks
        self._put_further_quotas_in_force()
        works = (
            self._upkeep(journal),
            self._purge(),
            self.quota_callback.run(),
            watch_certificates(self._watched_certificates),
            self._store.follow(),
            watch_lag(self.counts),
        )
        return [tasks.create_task(work) for work in works]

    @property
    def _watched_certificates(self) -> dict[str, Renewable]:
        watched: dict[str, Renewable] = {
            one.setting: one for one in self.certificates if one is not None
        }
        if self.settings.upstream_tls is not None:
            watched["upstream.tls"] = self.settings.upstream_tls
        return watched

    def _made_glancing(self, loop: asyncio.AbstractEventLoop) -> Glancing:
        watched = Watched(
            shared=self.shared,
            places=self._places,
            counts=self.counts,
            connections_max=self.settings.limits.connections_max,
            dialler=self._dialler,
            quota_callback=self.quota_callback,
        )
        return Glancing(watched, loop)

    def stop(self) -> None:
        """Begin to drain; safe to call from a signal handler of the loop, and twice."""
        self._stop.set()

    def put_in_force(  # noqa: PLR0913  (all that a reload may change)
        self,
        quotas: ConfiguredQuotas,
        *,
        enforced: frozenset[QuotaType],
        windows: Mapping[QuotaType, QuotaWindow],
        buckets: Mapping[QuotaType, BucketSettings],
        factored: Factored = _NO_FACTORS,
        callback: PreparedCallback | None = None,
        connection_rates: ConnectionRateSettings,
    ) -> None:
        """Count and hold by these from now on; running mutes and waits are looked at again at once.

        ``callback`` takes the place of the one in force, None: that stays.
        """
        shared = self.shared
        shared.put_in_force(replace(shared.settings, enforced=enforced))
        shared.engine.replace_countings(windows, buckets)
        shared.replace_quotas(quotas)
        if callback is not None:
            self.quota_callback.put_in_force(callback)
        shared.engine.replace_factored(factored)
        self._rates.settings = connection_rates
        self._put_further_quotas_in_force()
        self.look_again()

    def ask_for_token_owners(self, find: FindOwner) -> None:
        """From now on find out whose a delegation token is; while it runs."""
        self._errands.find_owner = find
        self.shared.finds_token_owners = True

    def look_again(self) -> None:
        """Counters have changed: connections that are muted by them may go on earlier, or later.

        Some at a time; whoever is still to be looked at keeps the place in that order.
        """
        self._look_again_at(self._places)

    def look_again_at_paused(self) -> None:
        """A factor lowers limits, or does so no more: who is kept back may go on earlier, or later.

        Everybody else finds out with the next request.
        """
        paused = (driver for driver in self._places if driver.machine.pausing.reasons)
        self._look_again_at(paused)

    def _look_again_at(self, drivers: Iterable[Driver]) -> None:
        is_under_way = bool(self._to_look_again)
        self._to_look_again |= dict.fromkeys(drivers)
        if self._to_look_again and not is_under_way:
            asyncio.get_running_loop().call_soon(self._look_at_some)

    def glance(self, keys: Sequence[CounterKey], *, uses: bool) -> "Future[GatewayGlance]":
        """Look at these counters and at all connections, a little at a time; any thread may ask.

        ``uses``: also at which connection uses which counter. Only while it runs.

        Raises:
            RuntimeError: it has ended.
        """
        return self._glancing.glance(keys, uses=uses)

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have something short done on its event loop; any thread may ask, while it runs.

        Raises:
            RuntimeError: it has ended.
        """
        self._loop.call_soon_threadsafe(call)

    async def look_upstream(self) -> None:
        """Connect to each bootstrap server once, and say which cannot be reached."""
        await self._dialler.look_upstream()

    # ------------------------------------------------------------------ what goes on beside

    def _put_further_quotas_in_force(self) -> None:
        """Those that are nobody's counter in the engine."""
        quotas = self._store.quotas
        self.shared.replace_producer_id_rates(quotas, time.time_ns() // 1_000_000)
        self._look_up(self._rates.replace(quotas))

    def _look_up(self, names: frozenset[str]) -> None:
        if names:
            self._tasks.create_task(self._learn_addresses(names))

    async def _learn_addresses(self, names: frozenset[str]) -> None:
        found = await self._errands.addresses_of(names)
        self._rates.learn(found)
        for name in sorted(names - found.keys()):
            log.warning(
                "the connection_creation_rate of %s holds nobody back: it has no address",
                printable(name),
            )

    def _in_force(self, changes: Sequence[KeyChange]) -> None:
        """Quotas have been stored: they count from now on."""
        self.shared.change_quotas(tuple(of_engine(changes)))
        self.shared.change_producer_id_rates(changes, time.time_ns() // 1_000_000)
        self.look_again()
        self._look_up(self._rates.change(changes))

    def _look_at_some(self) -> None:
        for driver in list(self._to_look_again)[:_LOOK_AGAIN_AT_ONCE]:
            del self._to_look_again[driver]
            driver.look_again()
        if self._to_look_again:
            asyncio.get_running_loop().call_soon(self._look_at_some)

    async def _upkeep(self, journal: Journal) -> None:
        """Close connections whose request does not arrive, or that are elsewhere."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(_SWEEP_S, self.settings.limits.frame_ms / 4000))
            await _in_turns(self._close_where_moved())
            await _in_turns(self._places.look_in_parts())
            self._backlog.sweep()
            journal.sweep()
            await _in_turns(self._slow_senders.sweep_in_parts(loop.time() * 1000))

    def _close_where_moved(self) -> Iterator[None]:
        for part in in_parts(self._places):
            for driver in part:
                if driver.close_if_gone():
                    continue
                if driver.machine.idle and self._dialler.is_elsewhere(driver.destination):
                    # It was dialled before its node's address was known, or the node has moved.
                    driver.close("", by="moved")
            yield

    async def _purge(self) -> None:
        """Forget idle counters, some at a time, so that nobody waits for it."""
        loop, engine = asyncio.get_running_loop(), self.shared.engine
        pause_s, lost, quiet_until = _PURGE_S, 0, 0.0
        ids, sweeps_in_s = self.shared.producer_ids, self.settings.producer_ids.sweep_ms / 1000
        while True:
            await asyncio.sleep(pause_s)
            ids.sweep(time.time_ns() // 1_000_000, share=min(1.0, pause_s / sweeps_in_s))
            self._look_at_inits()
            is_crowd = engine.purge_some(time.time_ns() // 1_000_000)
            pause_s = _PURGE_CROWD_S if is_crowd else _PURGE_S
            if engine.counters_lost > lost and loop.time() >= quiet_until:
                log.warning(
                    "more client ids than can be counted: %d counters were forgotten before their window or"
                    " debt was over",
                    engine.counters_lost - lost,
                )
                lost, quiet_until = engine.counters_lost, loop.time() + _SAY_AGAIN_S

    def _look_at_inits(self) -> None:
        """Say who asks for so many producer ids that only a crash loop or a producer for each message would."""
        shared, now_ms = self.shared, time.time_ns() // 1_000_000
        rate_of = shared.producer_ids.rate
        found = shared.init_producer_ids.sweep(now_ms, rate_of, at_most=_LOOKED_AT_INITS)
        for user, asked, rate in found:
            log.warning(
                "%s has asked for %d producer ids within a minute, and may bring %g new ones in %d s"
                " (producer_ids_rate): a client crashes and starts again, or makes a producer for each message",
                printable(user),
                asked,
                rate,
                shared.producer_ids.ids.memory.layering.window_ms // 1000,
            )

    # ------------------------------------------------------------------ the end

    async def _drain(self) -> None:
        """Let each open connection finish what is in flight, then close it."""
        places, drain_ms = self._places, self.settings.limits.drain_ms
        log.info("draining %d connections", len(places))
        for driver in places:
            driver.drain()
        loop = asyncio.get_running_loop()
        end = loop.time() + drain_ms / 1000
        while places and loop.time() < end:
            for driver in places:
                if driver.can_finish:
                    driver.finish()
            await asyncio.sleep(_DRAIN_LOOK_S)
        if places:
            log.warning("%d connections had not finished after %d ms", len(places), drain_ms)
        for driver in places:
            driver.abort()
        await asyncio.sleep(0)
        mutes = self.counts.mute_lateness
        if mutes.count:
            log.info("mutes: %d, the latest ended %.1f ms late", mutes.count, mutes.max_s * 1000)


async def _in_turns(steps: Iterator[None]) -> None:
    """Whatever has arrived has its turn between any two steps."""
    for _ in steps:
        await asyncio.sleep(0)
