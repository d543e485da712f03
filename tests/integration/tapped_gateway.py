"""A gateway process in front of a real Kafka, with a tap in front of the gateway."""

import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.integration.address_scan import GATEWAY_HOST, TAP_HOST, ClientTap, addresses_in
from tests.integration.raw_client import RawClient
from tests.tap_thread import TapTls

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import Authority, LocalKafka
from kvota.localkafka.cluster.listeners import PLAINTEXT, SASL, SASL_SSL, SSL

# For a fixture called gateway, which hands its parameter to ``tapped_gateway(tls=…)``.
plaintext_and_tls = pytest.mark.parametrize(
    "gateway", [False, True], indirect=True, ids=["plaintext", "TLS"]
)

_LISTENERS = 10
# A resolver that is not asked: getaddrinfo takes these for addresses of this machine (127.0.1.1 is node 1's), while TLS
# takes them for names. Java takes them for neither.
_NAMED_NODE, _NAMED = "0x7f.0.{node}.1", "0x7f.1.1.1"
_BY_NAME = """
[listeners.by_name]
bootstrap_port = {port}
node_host = "{node_host}"
advertised_host = "{host}"
[listeners.by_name.tls]
certfile = "{keystore}"
"""
_TLS = """
[gateway.tls]
certfile = "{keystore}"
"""
_UPSTREAM_TLS = """
[upstream.tls]
cafile = "{cafile}"
"""


@dataclass
class TappedGateway:
    """What a test needs of both.

    Attributes:
        listener: of the brokers, to which the gateway connects.
        cafile: who signs the certificates of the gateway and of the tap; None: clients come without TLS.
        by_name: where clients connect to find all nodes at one port, by their names; empty: nowhere.
    """

    process: GatewayProcess
    tap: ClientTap
    kafka: LocalKafka
    first_port: int
    listener: str
    cafile: Path | None = None
    by_name: str = ""

    @property
    def bootstrap_servers(self) -> str:
        """Where clients connect: the tap."""
        return f"{TAP_HOST}:{self.first_port}"

    def librdkafka(self, *, sasl: bool = False) -> dict[str, str]:
        """Where and how librdkafka connects; how it logs in is the caller's."""
        protocol = ("SASL_" if sasl else "") + ("SSL" if self.cafile else "PLAINTEXT")
        trusted = {"ssl.ca.location": str(self.cafile)} if self.cafile else {}
        found = {"bootstrap.servers": self.bootstrap_servers, "security.protocol": protocol}
        return {**found, **trusted}

    @property
    def context(self) -> ssl.SSLContext | None:
        """How Python's clients trust the gateway and the brokers; None: there is no TLS."""
        return ssl.create_default_context(cafile=self.cafile) if self.cafile else None

    def raw_client(self) -> RawClient:
        """Bytes to the gateway itself, past the tap."""
        return RawClient((GATEWAY_HOST, self.first_port), tls=self.context)

    def raw_client_of_a_broker(self) -> RawClient:
        """Bytes to the first broker, at the listener to which the gateway connects."""
        host, port = self.kafka.servers_of(self.listener).split(",")[0].rsplit(":", 1)
        is_tls = self.listener in (SSL, SASL_SSL)
        return RawClient((host, int(port)), tls=self.context if is_tls else None)

    @property
    def log(self) -> str:
        """The gateway's."""
        return self.process.log

    def node(self, node_id: int) -> tuple[str, int]:
        """The address under which clients know a node."""
        return TAP_HOST, self.first_port + 1 + node_id

    def named_nodes(self) -> set[str]:
        """The names of the brokers where all nodes are at one port."""
        return {_named(node.node_id) for node in self.kafka.nodes}

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
    tls: bool = False,
    by_name: bool = False,
    listener: str = "",
    enforce: bool = True,
    kafka_properties: Mapping[str, int | str] | None = None,
    limits: Mapping[str, int | str] | None = None,
    http_port: int | None = None,
    log_level: str = "info",
) -> Iterator[TappedGateway]:
    """Ready on entry; the gateway drains on exit.

    Args:
        folder: of the gateway's files.
        kafka: behind it.
        quotas: text of quotas.toml.
        sasl: whether the brokers' listener is one with logins, where it is not named.
        tls: whether clients encrypt. It ends at the tap, which speaks TLS to the gateway in its turn; where the
            cluster has listeners with TLS, the gateway speaks it to the brokers, too.
        by_name: whether there is a second listener with one port for all nodes, each of which has a name (SNI); with ``tls``.
        listener: of the brokers.
        enforce: whether quotas are enforced.
        kafka_properties: of ``[kafka]``.
        limits: of ``[limits]``.
        http_port: of the gateway; None: it serves no HTTP, 0: any that is free.
        log_level: of the gateway.
    """
    if not listener:
        is_inside = tls and kafka.has_tls
        listener = (SASL_SSL if sasl else SSL) if is_inside else (SASL if sasl else PLAINTEXT)
    named_port = (first_port := free_port_range(_LISTENERS + 1)) + _LISTENERS
    config = gateway_toml(
        upstream=kafka.servers_of(listener),
        first_port=first_port,
        node_ids=f"0-{_LISTENERS - 2}",
        enforce=dict.fromkeys(("PRODUCE", "FETCH", "CONTROLLER_MUTATION"), enforce),
        record="record",
        kafka=kafka_properties,
        limits=limits,
        http_port=http_port,
    ).replace("[gateway]\n", f'[gateway]\nadvertised_host = "{TAP_HOST}"\n')
    tap_tls = cafile = None
    named: list[tuple[str, int]] = []
    assert tls or not by_name, "names are called by TLS"
    if tls:
        authority = kafka.authority if kafka.has_tls else Authority(folder)
        cafile = authority.certificate
        names = [_NAMED, *(_named(node.node_id) for node in kafka.nodes)] if by_name else []
        keystore = authority.issue("gateway", hosts=[GATEWAY_HOST, *names]).keystore
        config += _TLS.format(keystore=keystore)
        tap_tls = _tap_tls(authority, names)
        if by_name:
            config += _BY_NAME.format(
                port=named_port, node_host=_NAMED_NODE, host=_NAMED, keystore=keystore
            )
            named = [(socket.gethostbyname(name), named_port) for name in names]
    if listener in (SSL, SASL_SSL):
        config += _UPSTREAM_TLS.format(cafile=kafka.authority.certificate)
    process = GatewayProcess(folder, config=config, quotas=quotas, log_level=log_level)
    with process, ClientTap(first_port, _LISTENERS, tap_tls, named) as tap:
        bootstrap = f"{_NAMED}:{named_port}" if named else ""
        yield TappedGateway(process, tap, kafka, first_port, listener, cafile, bootstrap)


def _named(node_id: int) -> str:
    return _NAMED_NODE.format(node=node_id)


def _tap_tls(authority: Authority, names: Sequence[str]) -> TapTls:
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(authority.issue("tap", hosts=[TAP_HOST, *names]).keystore)
    return TapTls(shown, ssl.create_default_context(cafile=authority.certificate))
