"""What a gateway is told at its start; ``kvota.app`` makes it from gateway.toml."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kvota.engine.layered_bloom import Layering
from kvota.model.quota_window import QuotaWindow
from kvota.session.settings import ConnectionSettings
from kvota.session.topology import Advertised
from kvota.wire.error_code import ErrorCode

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
        frame_ms: time for a request to arrive; it grows with every byte that does, at
            ``frame_bytes_per_s_min``.
        announced_bytes_max: sum of the announced sizes of frames that are only half here, for each
            broker.
        write_buffer_bytes: behind a slow reader the other side is no longer read when more than this waits
            beside what is in the sockets: one read does, at the least (``gateway.backlog``).
    """

    connections_max: int = 2_000
    connections_per_ip_max: int = 2**31 - 1
    connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    frame_ms: int = 30_000
    frame_bytes_per_s_min: int = 131_072
    announced_bytes_max: int = 128 * 2**20
    write_buffer_bytes: int = 16_384
    connect_ms: int = 10_000
    drain_ms: int = 10_000


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
class GatewaySettings:
    """Where to listen, whom to reach."""

    host: str
    bootstrap_port: int
    advertised: Advertised
    upstream: tuple[tuple[str, int], ...]
    limits: GatewayLimits = field(default_factory=GatewayLimits)
    connection_rates: ConnectionRateSettings = field(default_factory=ConnectionRateSettings)
    producer_ids: ProducerIdSettings = field(default_factory=ProducerIdSettings)
    connection: ConnectionSettings = field(default_factory=ConnectionSettings)

    @property
    def ports(self) -> frozenset[int]:
        """All ports that the gateway listens at."""
        told = self.advertised
        of_nodes = (told.node_port_base + n for n in range(told.node_id_min, told.node_id_max + 1))
        return frozenset({self.bootstrap_port, *of_nodes})
