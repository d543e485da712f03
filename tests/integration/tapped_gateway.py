"""A gateway process in front of a real Kafka, with a tap in front of the gateway."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from tests.integration.address_scan import TAP_HOST, ClientTap, addresses_in

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka

_LISTENERS = 10


@dataclass
class TappedGateway:
    """What a test needs of both."""

    process: GatewayProcess
    tap: ClientTap
    kafka: LocalKafka
    first_port: int

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: the tap."""
        return f"{TAP_HOST}:{self.first_port}"

    @property
    def log(self) -> str:
        """The gateway's."""
        return self.process.log

    def node(self, node_id: int) -> tuple[str, int]:
        """The address under which clients know a node."""
        return TAP_HOST, self.first_port + 1 + node_id

    def assert_no_address_leaked(self) -> None:
        """Scans everything that was sent to clients so far."""
        streams = self.tap.sent_to_clients
        assert sum(map(len, streams)) > 0, "nothing was sent to clients: there is nothing to scan"
        leaks = [leak for stream in streams for leak in addresses_in(stream, self.kafka)]
        assert not leaks, f"{len(leaks)} leaks, e.g. {leaks[:5]}"

    def recorded(self) -> list[dict[str, object]]:
        """All decisions; ends the gateway."""
        assert self.process.stop() == 0
        rows: list[dict[str, object]] = []
        for path in sorted((self.process.folder / "record").glob("*.parquet")):
            rows += pq.read_table(path).to_pylist()
        return sorted(rows, key=lambda row: int(str(row["seq"])))

    def users_by_client(self) -> dict[object, set[object]]:
        """Whose the decisions on each client id were, by name and tags; ends the gateway."""
        found: dict[object, set[object]] = {}
        for row in self.recorded():
            found.setdefault(row["client_id"], set()).add((row["user"], row["tags"]))
        return found


@contextmanager
def tapped_gateway(
    folder: Path,
    kafka: LocalKafka,
    *,
    quotas: str = "",
    sasl: bool = False,
    listener: str = "",
    enforce: bool = True,
    kafka_properties: Mapping[str, int | str] | None = None,
    limits: Mapping[str, int | str] | None = None,
    log_level: str = "info",
) -> Iterator[TappedGateway]:
    """Ready on entry; the gateway drains on exit. ``listener``: of the brokers, else as ``sasl`` says."""
    first_port = free_port_range(_LISTENERS)
    config = gateway_toml(
        upstream=kafka.servers_of(listener or ("SASL" if sasl else "PLAINTEXT")),
        first_port=first_port,
        node_ids=f"0-{_LISTENERS - 2}",
        enforce=dict.fromkeys(("PRODUCE", "FETCH", "CONTROLLER_MUTATION"), enforce),
        record="record",
        kafka=kafka_properties,
        limits=limits,
    ).replace("[gateway]\n", f'[gateway]\nadvertised_host = "{TAP_HOST}"\n')
    process = GatewayProcess(folder, config=config, quotas=quotas, log_level=log_level)
    with process, ClientTap(first_port, _LISTENERS) as tap:
        yield TappedGateway(process, tap, kafka, first_port)
