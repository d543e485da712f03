"""SIGHUP: gateway.toml and quotas.toml are read again, and what may change while it runs is put in force."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kvota.app.check import doubts
from kvota.app.check_callback import placed
from kvota.app.config import GatewayConfig, load_files
from kvota.app.dynamic_settings import RunningConfig, overlaid
from kvota.app.limit_sources import LimitSources
from kvota.app.quota_settings import QuotaSourceKind
from kvota.app.running_gateway import ACCEPTED, END, REFUSED
from kvota.app.service_manager import ServiceManager
from kvota.callbacks import ChosenCallback
from kvota.gateway.callback_in_force import PreparedCallback
from kvota.gateway.gateway import Gateway
from kvota.gateway.settings import ListenerSettings
from kvota.model.broker_settings import Settings
from kvota.model.client_quotas import CONNECTION_RATE_KEY, ClientQuotas
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.errors import ConfigurationError, KvotaError, UsageError
from kvota.model.quota_type import (
    CONFIGURABLE_TYPES,
    FACTS,
    TYPE_OF_KEY,
    Algorithm,
    QuotaType,
)
from kvota.planning.plan_line import format_quota
from kvota.store.file_store import FileStore
from kvota.store.quota_limit import value_text
from kvota.store.quota_store import QuotaStore, TomlStore

log = logging.getLogger("kvota.gateway")

# More changed quotas than this are counted, not listed.
_CHANGES_LOGGED_MAX = 20
_NOTHING = "nothing has changed"


class Reload:
    """Puts changed files in force, or keeps everything as it is and says why.

    Args:
        running: what the gateway runs by.
        gateway: what they are put in force in.
        sources: is told where the limits come from now.
        store: of the quotas.
        manager: is told while files are read again.
        tell: takes the result as lines, for who has asked for it; may wait for a disk.
    """

    def __init__(
        self,
        running: RunningConfig,
        gateway: Gateway,
        sources: LimitSources,
        store: QuotaStore,
        manager: ServiceManager,
        tell: Callable[[tuple[str, ...]], None] | None = None,
    ) -> None:
        self._running = running
        self._gateway = gateway
        self._sources = sources
        self._store = store
        self._manager = manager
        self._tell = tell
        self._number = 0
        self._asked = asyncio.Event()

    def begin(self) -> None:
        """Read the files again, now or as soon as the reading that is under way has ended."""
        self._asked.set()

    async def run(self) -> None:
        """Do as asked, one reading after the other, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            self._manager.reloading()
            try:
                await self._reload()
            except KvotaError as error:
                self._gateway.counts.reloads["refused"] += 1
                log.error("SIGHUP: what is in force stays as it is. %s", error)  # noqa: TRY400  (its text says all)
                await self._tell_result(REFUSED, str(error).splitlines())
            self._manager.ready()

    async def _reload(self) -> None:
        """Read the files on another thread (10,000 entities take half a second), and put them in force.

        Raises:
            KvotaError: something is wrong with them, or with the quota callback that they name.
        """
        in_file, written = await asyncio.to_thread(load_files, self._running.written.path)
        if not isinstance(self._store, TomlStore):
            written = None  # another source needs a restart
        quota_callback = self._gateway.quota_callback
        async with quota_callback.changing:
            callback = None
            settings = self._settings_with(in_file)
            config = overlaid(in_file, settings)
            chosen = config.kafka.callback
            if chosen != self._running.config.kafka.callback or chosen.has_changed:
                quotas = self._store.quotas if written is None else written
                try:
                    callback = await quota_callback.prepare(chosen, quotas.configured())
                except ConfigurationError as error:
                    raise placed(error, config, settings) from None
            renewed = await self._look_upstream(config)
            lines = self._put_in_force(in_file, settings, written, callback, renewed)
        edited = await self._edited(lines)
        self._gateway.counts.reloads["done"] += 1
        quotas = self._store.quotas
        # A source, file or topic that is another one now needs a restart.
        of_quotas = self._running.config.quotas
        warnings = [
            *edited,
            *doubts(replace(config, quotas=of_quotas), quotas, quota_callback.callback),
        ]
        lines.append(f"{in_force(config)}; quotas of {len(quotas)} entities from {of_quotas.place}")
        for line in lines:
            log.info("SIGHUP: %s", line)
        for warning in warnings:
            log.warning("SIGHUP: %s", warning)
        await self._tell_result(ACCEPTED, [*lines, *(f"warning: {text}" for text in warnings)])

    async def _edited(self, lines: list[str]) -> list[str]:
        """Take over a document that somebody has edited; adds to what is another now, returns what is wrong."""
        if not isinstance(self._store, FileStore):
            return []
        try:
            taken = await self._store.read_again()
        except UsageError as error:
            return [str(error)]
        if taken is not None:
            lines[:] = [*(line for line in lines if line != _NOTHING), taken]
        return []

    def _settings_with(self, in_file: GatewayConfig) -> Settings:
        """What is set dynamically; where that cannot be in force with the file, what is in force of it.

        Raises:
            UsageError: neither can.
        """
        stored = self._store.settings
        try:
            overlaid(in_file, stored)
        except UsageError:
            if stored == self._running.settings:
                raise
            return self._running.settings
        return stored

    async def _look_upstream(self, config: GatewayConfig) -> list[str]:
        """Take other files of ``upstream.tls`` into force, on another thread: a disk that hangs keeps no traffic waiting.

        Raises:
            TlsSettingError: they cannot be used.
        """
        upstream = self._gateway.settings.upstream_tls
        # With other settings the files of before may have gone.
        if upstream is None or upstream != config.gateway.upstream_tls:
            return []
        line = await asyncio.to_thread(upstream.look)
        return [f"upstream.tls: {line}"] if line else []

    def _put_in_force(
        self,
        in_file: GatewayConfig,
        settings: Settings,
        written: ClientQuotas | None,
        callback: PreparedCallback | None,
        renewed: Sequence[str],
    ) -> list[str]:
        """Go by all this from now on; returns what is another now, behind what has been ``renewed`` already."""
        before, config = self._running.config, overlaid(in_file, settings)
        # First: where it cannot be shown any more, nothing is another.
        shown = [
            f"{one.setting}: {line}"
            for one, listener in zip(
                self._gateway.certificates, config.gateway.listeners, strict=False
            )
            if one is not None and listener.tls is not None and (line := one.replace(listener.tls))
        ]
        shown += renewed
        self._running.replace(_running(self._running.written, in_file), settings)
        quotas_before, stored_before = self._gateway.shared.engine.quotas, self._store.quotas
        if written is not None and isinstance(self._store, TomlStore):
            self._store.quotas = written
        quotas = self._store.quotas.configured()
        shared = self._gateway.shared
        shared.quota_admins = config.quotas.admins
        shared.producer_ids.refuses_with = config.quotas.refuses_ids_with
        self._gateway.put_in_force(
            quotas,
            enforced=config.gateway.connection.enforced,
            windows=config.windows,
            buckets=config.quotas.buckets,
            factored=config.factored,
            callback=callback,
            connection_rates=config.gateway.connection_rates,
        )
        self._sources.replace(self._running.config.quotas, quotas)
        changed = [
            *(_change(quotas_before, change) for change in quotas_before.changes_to(quotas)),
            *_beside_engine(stored_before, self._store.quotas),
            *shown,
        ]
        lines = changes(before, config, changed)
        if callback is not None and before.kafka.callback == callback.chosen:
            lines.insert(
                0, f"quota callback: the file of {callback.chosen.class_name} was read again"
            )
        return lines

    async def _tell_result(self, result: str, lines: list[str]) -> None:
        """On another thread: a disk that hangs keeps no traffic waiting."""
        if self._tell is not None:
            self._number += 1
            told = (f"{self._number} {result}", *lines, f"{self._number} {END}")
            with suppress(OSError):  # the log has it, too
                await asyncio.to_thread(self._tell, told)


def in_force(config: GatewayConfig) -> str:
    """Say which quota types are enforced, and which are only watched."""
    enforced = config.gateway.connection.enforced
    is_held = {kind.value: kind in enforced for kind in CONFIGURABLE_TYPES}
    is_held[QuotaType.PRODUCER_ID] = QuotaType.PRODUCER_ID in enforced
    is_held[CONNECTION_RATE_KEY] = config.gateway.connection_rates.is_enforced
    force = ", ".join(name for name, held in is_held.items() if held) or "nothing"
    shadow = ", ".join(name for name, held in is_held.items() if not held) or "nothing"
    return f"enforces {force}; in shadow mode: {shadow}"


def algorithm_text(config: GatewayConfig, quota_type: QuotaType) -> str:
    """Say how a type is counted, e.g. ``token_bucket (burst 1 s, debt_max 15 s)``."""
    bucket = config.quotas.buckets.get(quota_type)
    if bucket is None:
        window = config.windows[quota_type]
        return f"{FACTS[quota_type].algorithms[0]} ({window.samples} x {window.sample_ms} ms)"
    burst_s, debt_max_s = bucket.burst_ms / 1000, bucket.debt_max_ms / 1000
    return f"{Algorithm.TOKEN_BUCKET} (burst {burst_s:g} s, debt_max {debt_max_s:g} s)"


def changes(before: GatewayConfig, now: GatewayConfig, of_quotas: Sequence[str]) -> list[str]:
    """One line for each thing that is another now, or that needs a restart to be.

    ``of_quotas``: a line for each of them that is another; of many, only some are said.
    """
    lines = []
    was_enforced = before.gateway.connection.enforced
    is_enforced = now.gateway.connection.enforced
    for quota_type in QuotaType:
        if (quota_type in was_enforced) != (quota_type in is_enforced):
            modes = ("enforced", "shadow mode")
            old, new = modes if quota_type in was_enforced else modes[::-1]
            lines.append(f"{quota_type}: {old} -> {new}")
    for quota_type in CONFIGURABLE_TYPES:
        old, new = algorithm_text(before, quota_type), algorithm_text(now, quota_type)
        if old != new:
            lines.append(f"{quota_type}: {old} -> {new}")
    codes = before.quotas.refuses_ids_with, now.quotas.refuses_ids_with
    if codes[0] is not codes[1]:
        lines.append(f"{QuotaType.PRODUCER_ID}: refused with {codes[0].name} -> {codes[1].name}")
    rates_before, rates = before.gateway.connection_rates, now.gateway.connection_rates
    if rates_before.is_enforced != rates.is_enforced:
        modes = ("shadow mode", "enforced")
        old, new = modes[rates_before.is_enforced], modes[rates.is_enforced]
        lines.append(f"{CONNECTION_RATE_KEY}: {old} -> {new}")
    lines += _shadow(before, now)
    lines += of_quotas[:_CHANGES_LOGGED_MAX]
    if len(of_quotas) > _CHANGES_LOGGED_MAX:
        lines.append(f"and {len(of_quotas) - _CHANGES_LOGGED_MAX} other quotas")
    lines += _callback(before.kafka.callback, now.kafka.callback)
    lines += [f"{name} is another one now; it needs a restart" for name in _restarts(before, now)]
    return lines or [_NOTHING]


def _shadow(before: GatewayConfig, now: GatewayConfig) -> list[str]:
    """Which file is tried beside the quotas in force."""
    if before.shadow is None or now.shadow is None:
        if before.shadow is now.shadow:
            return []
    elif before.shadow.digest == now.shadow.digest:
        return []
    elif before.shadow.path == now.shadow.path:
        return [f"quotas.shadow: {now.shadow.path} wants others now, and begins anew"]
    old, new = ("none" if one.shadow is None else one.shadow.path for one in (before, now))
    return [f"quotas.shadow: {old} -> {new}"]


def _callback(before: ChosenCallback, now: ChosenCallback) -> list[str]:
    """What is another about the quota callback; not the values of its properties: one may be a password."""
    if before.class_name != now.class_name:
        return [f"quota callback: {before.class_name} -> {now.class_name}"]
    if before == now:
        return []
    old, new = before.properties, now.properties
    names = [key for key in {**old, **new} if old.get(key) != new.get(key)] or list(new)
    return [f"quota callback: {now.class_name} has other properties: {', '.join(names)}"]


def _change(before: ConfiguredQuotas, change: QuotaChange) -> str:
    """E.g. ``+ user-principal 'analytics' PRODUCE none -> 2.36 MB/s``."""
    old = before.limit(change.entity, change.quota_type)
    texts = [
        "none" if x is None else format_quota(change.quota_type, x) for x in (old, change.limit)
    ]
    return (
        f"{_sign(old, change.limit)} {change.entity} {change.quota_type} {texts[0]} -> {texts[1]}"
    )


def _beside_engine(before: ClientQuotas, quotas: ClientQuotas) -> Iterator[str]:
    """Those that are no quota types of the engine, e.g. ``~ ip '10.0.0.7' connection_creation_rate 5/s -> 9/s``."""
    for entity, key, value in before.changes_to(quotas):
        if key not in TYPE_OF_KEY:
            old = before.value(entity, key)
            texts = ["none" if x is None else value_text(key, x) for x in (old, value)]
            yield f"{_sign(old, value)} {entity} {key} {texts[0]} -> {texts[1]}"


def _sign(old: float | None, new: float | None) -> str:
    return "+" if old is None else "-" if new is None else "~"


def _restarts(before: GatewayConfig, now: GatewayConfig) -> list[str]:
    """Names of the tables whose changes are not taken over."""
    same = replace(now.gateway.connection, enforced=before.gateway.connection.enforced)
    pairs = {
        "gateway.name": (before.name, now.name),
        "gateway": (
            _where(before.gateway.listeners),
            _where(now.gateway.listeners),
        ),
        "upstream": (
            _of_upstream(before),
            _of_upstream(now),
        ),
        "limits": (
            (before.gateway.limits, before.gateway.connection),
            (now.gateway.limits, same),
        ),
        "record": (before.record, now.record),
        "quotas.source": (_store_of(before), _store_of(now)),
        "http": (before.http, now.http),
        "log": (before.log_format, now.log_format),
        "logins": (before.users_of_logins, now.users_of_logins),
        "quotas.PRODUCER_ID.saved": (before.quotas.saved_ids, now.quotas.saved_ids),
        "kafka (volumes, connections, producer ids, logins)": (
            _of_kafka(before),
            _of_kafka(now),
        ),
    }
    return [name for name, (old, new) in pairs.items() if old != new]


def _of_upstream(config: GatewayConfig) -> tuple[object, ...]:
    gateway = config.gateway
    return gateway.upstream, gateway.upstream_tls, gateway.tells_clients


def _where(listeners: Sequence[ListenerSettings]) -> list[object]:
    """What of them needs a restart: all but how those encrypt that do."""
    return [
        (one.table, one.host, one.bootstrap_port, one.advertised, one.tls is None, one.proxied_by)
        for one in listeners
    ]


def _of_kafka(config: GatewayConfig) -> tuple[object, ...]:
    """What of [kafka] needs a restart."""
    kafka = config.kafka
    # Limits of the static callback are the callback's.
    volumes = replace(kafka.volumes, limits={}, excluded=frozenset())
    return (
        volumes,
        kafka.factor_per_broker,
        kafka.connections_per_ip_max,
        kafka.connections_per_ip_overrides,
        kafka.connections_idle_ms,
        kafka.id_layering,
        kafka.id_rate_samples,
        kafka.id_sweep_ms,
        kafka.name_claim,
    )


def _running(before: GatewayConfig, now: GatewayConfig) -> GatewayConfig:
    """What runs from now on: of the new settings only those that were taken over."""
    connection = replace(before.gateway.connection, enforced=now.gateway.connection.enforced)
    return replace(
        before,
        gateway=replace(
            before.gateway,
            connection=connection,
            connection_rates=now.gateway.connection_rates,
        ),
        kafka=replace(
            before.kafka,
            windows=now.windows,
            callback=now.kafka.callback,
            callback_properties=now.kafka.callback_properties,
            places=now.kafka.places,
            volumes=replace(
                before.kafka.volumes,
                limits=now.kafka.volumes.limits,
                excluded=now.kafka.volumes.excluded,
            ),
        ),
        shadow=now.shadow,
        quotas=now.quotas
        if _store_of(before) == _store_of(now)
        else replace(
            now.quotas,
            source=before.quotas.source,
            file=before.quotas.file,
            topic=before.quotas.topic,
        ),
    )


def _store_of(config: GatewayConfig) -> tuple[QuotaSourceKind, Path | None, str]:
    """What is opened at the start; a file that people write may be another one any time."""
    source = config.quotas.source
    file = None if source is QuotaSourceKind.TOML else config.quotas.file
    return source, file, config.quotas.topic
