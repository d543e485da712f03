"""What a gateway is told at its start; ``kvota.app`` makes it from gateway.toml."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network

from kvota.engine.layered_bloom import Layering
from kvota.model.quota_window import QuotaWindow
from kvota.session.settings import ConnectionSettings
from kvota.session.topology import Advertised
from kvota.tls.client_tls import Tls
from kvota.tls.server_tls import ServerTls
from kvota.wire.error_code import ErrorCode

Network = IPv4Network | IPv6Network
# Beside the connections that have a place one for each so many may still wait for its last answers.
_PLACES_FOR_ONE_THAT_LEAVES = 8


def leaving_max(connections_max: int) -> int:
    """How many may be on their way out beside so many connections."""
    return -(-connections_max // _PLACES_FOR_ONE_THAT_LEAVES)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """Bounds on what clients can make the gateway hold.

    Attributes:
        connections_max: client connections at once; Kafka's own default is unlimited, a file
            descriptor limit of 1,024 is not. Each uses two descriptors.
        connections_per_ip_max: of one address, Kafka's ``max.connections.per.ip``.
        connections_per_ip_overrides: by address; Kafka's property of this name.
        idle_ms: a connection on which nothing has been asked or due for so long is closed, Kafka's
            ``connections.max.idle.ms``; below 0: none is.
        frame_ms: time for a request to arrive; it grows with every byte that does, at
            ``frame_bytes_per_s_min``.
        announced_bytes_max: sum of the announced sizes of frames that are only half here, for each
            broker.
        tls_handshake_ms: time for a client to shake hands; for brokers ``connect_ms`` holds.
        login_ms: time for a client to log in, where brokers ask for that, and to log in again.
        write_buffer_bytes: behind a slow reader the other side is no longer read when more than this waits
            beside what is in the sockets: one read does, at the least (``gateway.backlog``).
    """

    connections_max: int = 2_000
    connections_per_ip_max: int = 2**31 - 1
    connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    idle_ms: int = 600_000
    frame_ms: int = 30_000
    frame_bytes_per_s_min: int = 131_072
    announced_bytes_max: int = 128 * 2**20
    write_buffer_bytes: int = 16_384
    connect_ms: int = 10_000
    drain_ms: int = 10_000
    tls_handshake_ms: int = 10_000
    login_ms: int = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRateSettings:
    """How connection_creation_rate is held.

    Attributes:
        window: ``quota.window.num`` samples of ``quota.window.size.seconds``.
        is_enforced: false: connections over their rate are let in, and said.
    """

    window: QuotaWindow = field(default_factory=lambda: QuotaWindow(11, 1000))
    is_enforced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdSettings:
    """How producer_ids_rate is held; whether it is, ``ConnectionSettings.enforced`` says.

    Attributes:
        layering: how long an id stays known (the quota's window), and how surely.
        rate_samples: in how many samples of the window the rate is measured that metrics show.
        sweep_ms: so often each user is looked at, whether anything of it can be forgotten.
        refuses_with: what a partition is answered whose batch is refused.
    """

    layering: Layering = field(default_factory=Layering)
    rate_samples: int = 11
    sweep_ms: int = 60_000
    refuses_with: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """One way in.

    Attributes:
        host: where it listens.
        bootstrap_port: for clients that know no node yet.
        advertised: what clients are told that come this way.
        tls: how it is encrypted; None: it is not.
        proxied_by: where balancers are, who say where each client is (PROXY protocol); empty: clients come themselves.
        table: what it is called in the file.
    """

    host: str
    bootstrap_port: int
    advertised: Advertised
    tls: ServerTls | None = None
    proxied_by: tuple[Network, ...] = ()
    table: str = "gateway"

    @property
    def ports(self) -> dict[int, int | None]:
        """All its ports, each with the node that it is for; None: for any."""
        told = self.advertised
        if told.node_host:
            return {self.bootstrap_port: None}
        of_nodes: dict[int, int | None] = {told.node_port_base + n: n for n in told.node_ids}
        return {self.bootstrap_port: None, **of_nodes}


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Where to listen, whom to reach.

    Attributes:
        host, bootstrap_port, advertised, tls, proxied_by: of the first listener.
        further_listeners: all others.
        upstream: the bootstrap servers.
        upstream_tls: how connections to brokers are encrypted; None: they are not.
        tells_clients: what is upstream is told where each client is (PROXY protocol, before TLS).
    """

    host: str
    bootstrap_port: int
    advertised: Advertised
    upstream: tuple[tuple[str, int], ...]
    tls: ServerTls | None = None
    proxied_by: tuple[Network, ...] = ()
    further_listeners: tuple[ListenerSettings, ...] = ()
    upstream_tls: Tls | None = None
    tells_clients: bool = False
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    connection_rates: ConnectionRateSettings = field(default_factory=ConnectionRateSettings)
    producer_ids: ProducerIdSettings = field(default_factory=ProducerIdSettings)
    connection: ConnectionSettings = field(default_factory=ConnectionSettings)

    @property
    def listeners(self) -> tuple[ListenerSettings, ...]:
        """All ways in, the first one first."""
        first = ListenerSettings(
            host=self.host,
            bootstrap_port=self.bootstrap_port,
            advertised=self.advertised,
            tls=self.tls,
            proxied_by=self.proxied_by,
        )
        return first, *self.further_listeners

    @property
    def ports(self) -> frozenset[int]:
        """All ports that the gateway listens at."""
        return frozenset(port for listener in self.listeners for port in listener.ports)
