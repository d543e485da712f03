"""Wires a gateway together and runs it until a signal ends it."""

import asyncio
import gc
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import uvloop

from kvota.app.check import doubts
from kvota.app.check_login import check_own_login
from kvota.app.config import GatewayConfig
from kvota.app.limit_sources import LimitSources
from kvota.app.own_source import open_own_source
from kvota.app.quota_opening import open_store
from kvota.app.reload import Reload, algorithm_text, in_force
from kvota.app.running_gateway import hold_pid_file, reload_command
from kvota.app.saved_producer_ids import mark_running, open_producer_ids, save_producer_ids
from kvota.app.service_manager import ServiceManager
from kvota.app.settings_in_force import SettingsInForce, begin_with
from kvota.app.shadow_watch import ShadowWatch
from kvota.app.system_clock import SystemClock
from kvota.app.token_owners import tell_token_owners
from kvota.app.watch_cluster import watch_cluster
from kvota.app.watch_volumes import watch_volumes
from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import QuotaEngine
from kvota.files.process_lock import ProcessLock
from kvota.gateway.gateway import Gateway
from kvota.metrics.cells import Cells
from kvota.metrics.tally import Tally
from kvota.metrics.throttle_log import ThrottleLog
from kvota.model.address import address_text
from kvota.model.client_quotas import ClientQuotas
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import KvotaError, UnreachableError
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_type import CONFIGURABLE_TYPES
from kvota.record.recorder import Recorder
from kvota.record.row_counter import CountingSink
from kvota.session.budget import AnnouncedBudgets
from kvota.session.facts import ClusterFacts
from kvota.session.shared import Shared
from kvota.session.topology import Topology
from kvota.store.quota_store import QuotaStore
from kvota.tls.server_tls import pass_over_unreadable_names

if TYPE_CHECKING:
    from kvota.record.topic_sender import TopicSender
    from kvota.web.server import HttpServer

log = logging.getLogger("kvota.gateway")


# So many counters have lines of their own in the metrics.
_SERIES_MAX = 500


@dataclass(frozen=True, slots=True)
class _Http:
    """The HTTP port, or why there is none; empty: nobody wants one."""

    server: "HttpServer | None"
    why_not: str = ""


def run_gateway(config: GatewayConfig, written: ClientQuotas | None) -> None:
    """Run until SIGTERM or SIGINT, which drain; SIGHUP reads the files again that people write.

    Args:
        config: the settings.
        written: the quotas of a file that people write; None: a store of the gateway's own has them.

    Raises:
        KvotaError: its own certificate cannot be read, a source of volumes cannot be loaded, a port is taken, the record folder cannot be written, another
            gateway uses the store, or runs with these files.
    """
    check_own_login(config)
    # Until the loop listens to it: whoever has us reload finds us by the lock that we hold from here on.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.unraisablehook = pass_over_unreadable_names
    lock = hold_pid_file(config)
    try:
        _run(config, written, lock)
    finally:
        if lock is not None:
            lock.release()


def _run(config: GatewayConfig, written: ClientQuotas | None, lock: ProcessLock | None) -> None:
    store = open_store(config, written)
    quotas = store.quotas.configured()
    running, callback = begin_with(config, store)
    config = running.config
    own = open_own_source(config)
    is_default = config.kafka.callback.is_default
    engine = QuotaEngine(callback, config.windows, config.quotas.buckets, config.factored)
    sources = _sources(config, callback, quotas, is_found=lock is not None)
    cells = Cells(shown_max=_SERIES_MAX)
    tally = Tally(cells, ThrottleLog(cells, sources.of_counter))
    shadow = ShadowWatch(tally, running, lambda: store.quotas, SystemClock())
    run_id = uuid.uuid4().hex[:12]
    sink = _sink(config, shadow, run_id)
    shared = Shared(
        engine=engine,
        sink=sink,
        topology=Topology(config.gateway.advertised),
        budgets=AnnouncedBudgets(limit_bytes=config.gateway.limits.announced_bytes_max),
        facts=ClusterFacts(),
        settings=config.gateway.connection,
        default_callback=callback if is_default else DefaultQuotaCallback(quotas),
        client_quotas=store,
        quota_admins=config.quotas.admins,
        shows_certificate=config.shows_certificate,
        name_claim=config.kafka.name_claim,
        users_of_logins=config.users_of_logins,
        producer_ids=open_producer_ids(config, store.quotas, now_ms=SystemClock().now_us() // 1000),
    )
    gateway = Gateway(config.gateway, shared, store)
    gateway.quota_callback.on_change = sources.replace_callback
    settings = SettingsInForce(running, gateway, store)
    shared.broker_settings = settings
    gateway.alter_settings = settings.alter
    http = _http(config)
    sink.start()
    if http.server is not None:
        _show(http.server, config, gateway=gateway, shadow=shadow, sink=sink, sources=sources)
    # Everything that is alive now stays alive, so the collector need not look at it again.
    gc.freeze()
    manager = ServiceManager()
    try:
        tell = None if lock is None else lock.tell
        reload = Reload(running, gateway, sources, store, manager, tell)
        works = (
            partial(_say_ready, config, gateway, store, manager, http),
            partial(watch_cluster, config, gateway),
            partial(watch_volumes, config, gateway, run_id, own),
            partial(tell_token_owners, config, gateway),
            lambda _: reload.run(),
            lambda _: settings.follow(),
            lambda _: manager.watch(),
        )
        uvloop.run(_serve(config, gateway, reload, manager, works))
    except* KvotaError as group:
        raise _innermost(group) from None
    finally:
        _end(config, shared, sink, http.server)


def _end(
    config: GatewayConfig, shared: Shared, sink: Recorder | CountingSink, http: "HttpServer | None"
) -> None:
    # The loop has put back the default, which ends us unrecorded.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if http is not None:
        http.stop()
    sink.close()
    save_producer_ids(config, shared.producer_ids)
    _say_recorded(config, sink)


def _sources(
    config: GatewayConfig,
    callback: ClientQuotaCallback,
    quotas: ConfiguredQuotas,
    *,
    is_found: bool,
) -> LimitSources:
    """``is_found``: by its pid file; else only its process id tells which process has to reload."""
    return LimitSources(
        callback,
        config.quotas,
        quotas,
        bootstrap=address_text(config.gateway.advertised.host, config.gateway.bootstrap_port),
        reload=reload_command(config) if is_found else f"kill -HUP {os.getpid()}",
    )


def _say_recorded(config: GatewayConfig, sink: Recorder | CountingSink) -> None:
    """Say what has become of the decisions; of none nothing: it has perhaps not even begun to listen."""
    if not isinstance(sink, Recorder):
        return
    status = sink.status()
    if config.record.folder is not None and (status.rows_written or status.rows_dropped):
        log.info(
            "recorded %d decisions, %d dropped; the folder has %d files",
            status.rows_written,
            status.rows_dropped,
            status.files,
        )
    topic = status.topic
    if topic is not None and (topic.rows_written or topic.rows_dropped):
        log.info(
            "sent %d decisions to the topic, %d dropped", topic.rows_written, topic.rows_dropped
        )


def _show(
    http: "HttpServer",
    config: GatewayConfig,
    *,
    gateway: Gateway,
    shadow: ShadowWatch,
    sink: Recorder | CountingSink,
    sources: LimitSources,
) -> None:
    """Serve what goes on in this gateway."""
    from kvota.app.observatory import Observatory  # with what it shows, some MB

    http.start(
        lambda server: Observatory(
            gateway=gateway,
            tally=shadow.tally,
            shadow=shadow,
            sink=sink,
            sources=sources,
            http=server,
            name=config.name,
            started_s=time.time(),
        )
    )


def _http(config: GatewayConfig) -> _Http:
    """Open the HTTP port. Nobody has asked for the default one: where it is taken, it goes without.

    Raises:
        UnreachableError: a port that the file names is taken.
    """
    if not config.http.is_enabled:
        return _Http(None)
    from kvota.web.server import HttpServer

    try:
        return _Http(HttpServer(config.http))
    except UnreachableError as error:
        if config.http.is_port_stated:
            raise
        return _Http(None, str(error))


def _innermost(error: BaseException) -> BaseException:
    """Return the first error in a group of groups: each task group that it left has wrapped it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _sink(config: GatewayConfig, observer: ShadowWatch, run_id: str) -> Recorder | CountingSink:
    record = config.record
    if record.folder is None and record.topic is None:
        return CountingSink(observer, clock=SystemClock())
    return Recorder(
        record.folder,
        None if record.topic is None else _topic_sender(config, record.topic),
        gateway=config.name,
        run_id=run_id,
        limits=config.record.limits,
        clock=SystemClock(),
        observer=observer,
    )


def _topic_sender(config: GatewayConfig, topic: str) -> "TopicSender":
    """Return who sends rows to the cluster itself: the gateway's own connections pass no quota of its own.

    Raises:
        UsageError: a property of the gateway's own login cannot be used.
    """
    from kvota.app.own_cluster import own_cluster  # kio takes a while
    from kvota.record.topic_sender import CLIENT_ID, TopicSender

    make_cluster = partial(own_cluster, config, client_id=CLIENT_ID)
    make_cluster()  # nothing is connected yet; what is wrong is said before the gateway listens
    return TopicSender(
        topic,
        make_cluster,
        limits=config.record.limits,
        key=config.name,
        clock=SystemClock(),
    )


async def _serve(
    config: GatewayConfig,
    gateway: Gateway,
    reload: Reload,
    manager: ServiceManager,
    works: Sequence[Callable[[asyncio.Event], Coroutine[None, None, None]]],
) -> None:
    """Run the gateway, and the works beside it, which are told when it has started; it ends them."""

    def stop() -> None:
        manager.stopping()
        gateway.stop()

    loop = asyncio.get_running_loop()
    mark_running(config, gateway.shared.producer_ids, partial(loop.run_in_executor, None))
    loop.add_signal_handler(signal.SIGTERM, stop)
    loop.add_signal_handler(signal.SIGINT, stop)
    loop.add_signal_handler(signal.SIGHUP, reload.begin)
    started = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        beside = [tasks.create_task(work(started)) for work in works]
        await gateway.run(started=started)
        for task in beside:
            task.cancel()


async def _say_ready(
    config: GatewayConfig,
    gateway: Gateway,
    store: QuotaStore,
    manager: ServiceManager,
    http: _Http,
    started: asyncio.Event,
) -> None:
    await started.wait()
    # Not before: where a port of the clients is taken, that is what is said.
    if http.server is not None:
        log.info(
            "HTTP at http://%s: /metrics, /livez, /readyz, /v1/tenants, /v1/explain, /v1/shadow",
            http.server.address,
        )
    elif http.why_not:
        log.warning("no HTTP: %s", http.why_not)
    for line in summary(config, store.quotas):
        log.info("%s", line)
    for sentence in doubts(config, store.quotas, gateway.quota_callback.callback):
        log.warning("%s", sentence)
    advertised = config.gateway.advertised
    log.info(
        "ready: clients bootstrap at %s, node n is at port %d + n (n = %d to %d)",
        address_text(advertised.host, config.gateway.bootstrap_port),
        advertised.node_port_base,
        advertised.node_id_min,
        advertised.node_id_max,
    )
    manager.ready()
    await gateway.look_upstream()


def summary(config: GatewayConfig, quotas: ClientQuotas) -> list[str]:
    """Return the first lines of the log: what is enforced, and where decisions go."""
    places = [str(config.record.folder)] if config.record.folder else []
    places += [f"topic {config.record.topic}"] if config.record.topic else []
    where = " and ".join(places) or "nowhere (no [record] folder)"
    upstream = ", ".join(address_text(*server) for server in config.gateway.upstream)
    counted = ", ".join(f"{kind} {algorithm_text(config, kind)}" for kind in CONFIGURABLE_TYPES)
    shadow = [] if config.shadow is None else [f"in shadow mode beside them: {config.shadow.path}"]
    return [
        (
            f"{in_force(config)}; quotas of {len(quotas)} entities from {config.quotas.place}; "
            f"records to {where}"
        ),
        *shadow,
        (
            f"counted by: {counted}; upstream {upstream}; limits per gateway process: "
            f"{config.gateway.limits.connections_max} connections"
        ),
    ]
