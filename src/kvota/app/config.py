"""Reads gateway.toml and reports all its faults at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from kvota.app import config_values as values
from kvota.app.config_providers import follow_references
from kvota.app.config_reader import Reader, Table
from kvota.app.kafka_properties import KafkaProperties, read_kafka_properties
from kvota.app.listener_tables import read_listeners
from kvota.app.log_lines import LogFormat
from kvota.app.login_table import read_logins
from kvota.app.own_login import PROXY_REMEDY, faults_of_own_tls, problem_behind_proxy
from kvota.app.quota_settings import QuotaSettings, QuotaSourceKind, read_quota_settings
from kvota.app.shadow_file import ShadowFile, load_shadow
from kvota.app.tls_tables import read_upstream_tls
from kvota.engine import Factored
from kvota.gateway.own_addresses import OwnAddresses
from kvota.gateway.settings import (
    ConnectionRateSettings,
    GatewayLimits,
    GatewaySettings,
    ProducerIdSettings,
)
from kvota.model.client_quotas import ClientQuotas
from kvota.model.errors import ConfigurationError, Fault, UsageError
from kvota.model.quota_type import QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.record.record_limits import RecordLimits
from kvota.session.settings import ConnectionSettings
from kvota.store.quotas_file import load_client_quotas
from kvota.store.toml_file import in_file_order, load_toml
from kvota.web.settings import HttpSettings

_IF_MISSING = (
    "Create it, or correct the path. The least that it needs: [upstream] and below it "
    'bootstrap_servers = ["kafka-1:9092"].'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """The folder and the topic into which decisions are recorded, and how much of them is kept."""

    folder: Path | None
    topic: str | None
    folder_bytes_max: int
    age_s_max: float
    flush_rows: int
    flush_interval_s: float
    buffer_rows: int

    @property
    def limits(self) -> RecordLimits:
        """As those take them who write."""
        return RecordLimits(
            buffer_rows=self.buffer_rows,
            flush_rows=self.flush_rows,
            flush_interval_s=self.flush_interval_s,
            folder_bytes_max=self.folder_bytes_max,
            age_s_max=self.age_s_max,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """All settings of gateway.toml, checked."""

    name: str
    gateway: GatewaySettings
    path: Path
    kafka: KafkaProperties
    quotas: QuotaSettings
    record: RecordSettings
    http: HttpSettings
    pid_file: Path
    is_pid_file_stated: bool
    log_format: LogFormat = LogFormat.TEXT
    users_of_logins: Mapping[str, str] = field(default_factory=dict)
    shadow: ShadowFile | None = None

    @property
    def factored(self) -> Factored:
        """Whom the factor of full disks reaches: all but those who are excluded, by whatever callback."""
        if self.kafka.volumes.source == "none":
            return Factored()
        excluded = frozenset() if self.kafka.callback.is_static else self.kafka.volumes.excluded
        return Factored(frozenset({QuotaType.PRODUCE}), excluded)

    @property
    def shows_certificate(self) -> bool:
        """True where brokers know the gateway by its certificate, and so whoever has no login of his own."""
        tls = self.gateway.upstream_tls
        return tls is not None and tls.certfile is not None

    @property
    def windows(self) -> dict[QuotaType, QuotaWindow]:
        """Of each quota type."""
        return self.kafka.windows


def load_files(path: Path) -> tuple[GatewayConfig, ClientQuotas | None]:
    """Read and check gateway.toml and the files of quotas that it names, where people write them.

    Returns:
        The settings, and the quotas; None: they are in a store of the gateway's own.

    Raises:
        ConfigurationError: with every fault of these files, each with its place.
        UsageError: the file of ``quotas.shadow`` cannot be tried.
    """
    config, faults = read_config(path)
    of_file = (": quotas.file", ": quotas.source")
    if any(fault.place.endswith(of_file) for fault in faults):
        raise ConfigurationError(faults)
    configured = None
    if config.quotas.source is QuotaSourceKind.TOML:
        try:
            configured = load_client_quotas(config.quotas.file, named_by=path)
        except ConfigurationError as error:
            raise ConfigurationError(faults + error.faults) from None
    shadow = None
    if config.quotas.shadow is not None:
        try:
            shadow = load_shadow(config.quotas.shadow)
        except ConfigurationError as error:
            raise ConfigurationError(faults + error.faults) from None
    if faults:
        raise ConfigurationError(faults)
    if shadow is not None and not config.kafka.callback.is_default:
        msg = f"{path}: quotas.shadow: {shadow.path} is tried by Kafka's own levels, and here a quota callback decides. Take one of both away"
        raise UsageError(msg)
    return replace(config, shadow=shadow), configured


def read_config(path: Path) -> tuple[GatewayConfig, list[Fault]]:
    """Read gateway.toml alone, with defaults for wrong values; also return its faults in order."""
    data, places = load_toml(path, if_missing=_IF_MISSING)
    not_followed = follow_references(data, places, path.parent)
    reader = Reader(data, places)
    config = _config(reader, path)
    missing = {fault.place for fault in not_followed}
    others = [fault for fault in reader.faults if fault.place not in missing]
    return config, in_file_order([*not_followed, *others])


def _config(reader: Reader, path: Path) -> GatewayConfig:
    folder = path.parent
    reader.known(
        (),
        (
            *("gateway", "listeners", "upstream", "quotas", "limits", "record", "http", "kafka"),
            *("log", "logins"),
        ),
    )
    listen = reader.table("gateway")
    name = listen.value("name", "kvota", values.read_name)
    first_listener, *further = read_listeners(reader, folder)
    advertised_host = first_listener.advertised.host
    reader.known(("upstream",), ("bootstrap_servers", "connect_timeout", "tls", "proxy_protocol"))
    upstream = reader.table("upstream")
    servers = upstream.required("bootstrap_servers", values.read_servers, '["127.0.0.1:9092"]')
    own = OwnAddresses(
        host=first_listener.host,
        advertised_host=advertised_host,
        ports={port for one in (first_listener, *further) for port in one.ports},
        further=[(one.host, one.advertised.host) for one in further],
    )
    upstream_tls = read_upstream_tls(reader, folder)
    for server_host, port in servers or ():
        if own.is_looked_up(server_host, port):
            upstream.fault(
                "bootstrap_servers",
                f"{server_host}:{port} is an address of the gateway itself",
                "Write the brokers' own address.",
            )
    kafka = read_kafka_properties(reader)
    if upstream_tls is None:
        reader.faults += faults_of_own_tls(kafka, servers or ())
    limits, connection = _limits(reader, upstream, kafka)
    quotas = read_quota_settings(reader, path, listens_at=first_listener.host)
    record = _record(reader, folder)
    tells_clients = upstream.value("proxy_protocol", False, values.read_boolean)  # noqa: FBT003
    if tells_clients:
        asks = quotas.source is QuotaSourceKind.TOPIC or record.topic is not None
        problem = problem_behind_proxy(kafka, servers or (), asks=asks)
        if problem:
            upstream.fault("proxy_protocol", problem, PROXY_REMEDY)
    return GatewayConfig(
        name=name,
        path=path,
        gateway=GatewaySettings(
            host=first_listener.host,
            bootstrap_port=first_listener.bootstrap_port,
            advertised=first_listener.advertised,
            tls=first_listener.tls,
            proxied_by=first_listener.proxied_by,
            further_listeners=tuple(further),
            upstream=tuple(servers or ()),
            upstream_tls=upstream_tls,
            tells_clients=tells_clients,
            limits=limits,
            connection_rates=ConnectionRateSettings(
                window=kafka.windows[QuotaType.PRODUCE],  # Kafka's quota.window.*, too
                is_enforced=quotas.enforces_connection_rates,
            ),
            producer_ids=ProducerIdSettings(
                layering=kafka.id_layering,
                rate_samples=kafka.id_rate_samples,
                sweep_ms=kafka.id_sweep_ms,
                refuses_with=quotas.refuses_ids_with,
            ),
            connection=ConnectionSettings(
                enforced=quotas.enforced,
                factor_told_ms_max=_factor_told_ms_max(kafka, connection["mute_ms_max"]),
                **connection,
            ),
        ),
        kafka=kafka,
        quotas=quotas,
        record=record,
        http=_http(reader, advertised_host, own),
        pid_file=folder / listen.value("pid_file", f"{path.stem}.pid", values.read_path),
        is_pid_file_stated="pid_file" in listen.data,
        log_format=_log_format(reader),
        users_of_logins=read_logins(reader),
    )


def _log_format(reader: Reader) -> LogFormat:
    reader.known(("log",), ("format",))
    log = reader.table("log")
    names = [str(one) for one in LogFormat]
    return LogFormat(
        log.value("format", str(LogFormat.TEXT), partial(values.read_choice, choices=names))
    )


def _factor_told_ms_max(kafka: KafkaProperties, mute_ms_max: int) -> int:
    """A few looks at the volumes: then the factor may be another one."""
    interval_ms = kafka.volumes.check_interval_ms
    if not interval_ms:
        return ConnectionSettings().factor_told_ms_max
    return min(mute_ms_max, 3 * interval_ms)


def _limits(
    reader: Reader, upstream: Table, kafka: KafkaProperties
) -> tuple[GatewayLimits, dict[str, int]]:
    limits = reader.table("limits")
    default, connection = GatewayLimits(), ConnectionSettings()
    reader.known(
        ("limits",),
        (
            "connections_max",
            "request_bytes_max",
            "announced_bytes_max",
            "frame_time",
            "mute_time_max",
            "drain_time",
            "write_buffer_bytes",
            "in_flight_max",
            "mutation_partitions_max",
            "default_partitions",
            "tls_handshake_time",
            "login_time",
        ),
    )
    return GatewayLimits(
        connections_max=limits.value("connections_max", default.connections_max, values.read_count),
        connections_per_ip_max=kafka.connections_per_ip_max,
        connections_per_ip_overrides=kafka.connections_per_ip_overrides,
        idle_ms=kafka.connections_idle_ms,
        announced_bytes_max=limits.value(
            "announced_bytes_max", default.announced_bytes_max, values.read_size_bytes
        ),
        frame_ms=limits.value("frame_time", default.frame_ms, values.read_time_ms),
        drain_ms=limits.value("drain_time", default.drain_ms, values.read_time_ms),
        write_buffer_bytes=limits.value(
            "write_buffer_bytes", default.write_buffer_bytes, values.read_size_bytes
        ),
        tls_handshake_ms=limits.value(
            "tls_handshake_time", default.tls_handshake_ms, values.read_time_ms
        ),
        login_ms=limits.value("login_time", default.login_ms, values.read_time_ms),
        connect_ms=upstream.value("connect_timeout", default.connect_ms, values.read_time_ms),
    ), {
        "mute_ms_max": limits.value("mute_time_max", connection.mute_ms_max, values.read_time_ms),
        "request_bytes_max": limits.value(
            "request_bytes_max", connection.request_bytes_max, values.read_size_bytes
        ),
        "in_flight_max": limits.value("in_flight_max", connection.in_flight_max, values.read_count),
        "mutation_partitions_max": limits.value(
            "mutation_partitions_max", connection.mutation_partitions_max, values.read_count
        ),
        "default_partitions": limits.value(
            "default_partitions", connection.default_partitions, values.read_count
        ),
    }


def _http(reader: Reader, advertised_host: str, own: OwnAddresses) -> HttpSettings:
    http = reader.table("http")
    reader.known(("http",), ("enabled", "host", "port", "names"))
    default = HttpSettings()
    names: tuple[str, ...] = http.value("names", default.names, values.read_hosts)
    settings = HttpSettings(
        is_enabled=http.value("enabled", default.is_enabled, values.read_boolean),
        host=http.value("host", default.host, values.read_host),
        port=http.value("port", default.port, values.read_port_or_any),
        is_port_stated="port" in http.data,
        names=(advertised_host, *names),
    )
    if settings.is_enabled and own.is_looked_up(settings.host, settings.port):
        http.fault(
            "port",
            f"{settings.port} is also a port at which the gateway serves Kafka's clients",
            "Write another one, or http.enabled = false.",
        )
    return settings


def _record(reader: Reader, folder: Path) -> RecordSettings:
    record = reader.table("record")
    reader.known(
        ("record",),
        ("folder", "topic", "bytes_max", "age_max", "flush_rows", "flush_interval", "buffer_rows"),
    )
    name = record.value("folder", "", values.read_path)
    default = RecordLimits()
    flush_rows = record.value("flush_rows", default.flush_rows, values.read_count)
    buffer_rows = record.value("buffer_rows", default.buffer_rows, values.read_count)
    if buffer_rows < 2 * flush_rows:
        record.fault(
            "buffer_rows",
            f"{buffer_rows} is less than two flushes of {flush_rows} rows",
            f"Write at least {2 * flush_rows}, or lower record.flush_rows.",
        )
    return RecordSettings(
        folder=folder / name if name else None,
        topic=record.value("topic", None, values.read_topic),
        folder_bytes_max=record.value(
            "bytes_max", default.folder_bytes_max, values.read_size_bytes
        ),
        age_s_max=record.value("age_max", round(default.age_s_max * 1000), values.read_time_ms)
        / 1000,
        flush_rows=flush_rows,
        flush_interval_s=record.value(
            "flush_interval", round(default.flush_interval_s * 1000), values.read_time_ms
        )
        / 1000,
        buffer_rows=buffer_rows,
    )
