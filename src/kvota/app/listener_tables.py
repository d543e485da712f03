"""The ways into the gateway: ``[gateway]`` and each ``[listeners.NAME]`` of gateway.toml."""

from collections.abc import Sequence
from pathlib import Path

from kvota.app import config_values as values
from kvota.app.config_reader import Reader
from kvota.app.tls_tables import read_listener_tls
from kvota.gateway.settings import ListenerSettings
from kvota.model.address import is_wildcard
from kvota.session.topology import Advertised

_KEYS = (
    "host",
    "advertised_host",
    "bootstrap_port",
    "node_port_base",
    "node_host",
    "tls",
    "proxy_protocol_from",
)


def read_listeners(reader: Reader, folder: Path) -> list[ListenerSettings]:
    """Read all of them, that of ``[gateway]`` first; node ids are the same for all."""
    node_ids = reader.table("gateway").value("node_ids", (0, 9), values.read_node_range)
    reader.known(("gateway",), ("name", *_KEYS, "node_ids", "pid_file"))
    listeners = [_listener(reader, folder, ("gateway",), node_ids)]
    further = reader.table("listeners")
    for name, table in further.data.items():
        if not isinstance(table, dict):
            further.fault(name, "not a table", f"Write [listeners.{name}].")
            continue
        reader.known(("listeners", name), _KEYS)
        listener = _listener(reader, folder, ("listeners", name), node_ids)
        _check_apart(reader, listener, listeners)
        listeners.append(listener)
    return listeners


def _listener(
    reader: Reader, folder: Path, path: tuple[str, ...], node_ids: tuple[int, int]
) -> ListenerSettings:
    is_first = path == ("gateway",)
    table = reader.table(*path)
    named = ".".join(path)
    first, last = node_ids
    host = table.value("host", "127.0.0.1", values.read_host)
    node_host = table.value("node_host", "", values.read_node_host)
    bootstrap_port = table.value("bootstrap_port", 9192, values.read_port)
    node_port_base = table.value("node_port_base", 9200, values.read_port)
    if not is_first:
        if "bootstrap_port" not in table.data:
            table.fault("bootstrap_port", "missing", "Write e.g. bootstrap_port = 9292.")
        if "node_port_base" not in table.data and not node_host:
            remedy = "Write e.g. node_port_base = 9300, or node_host for one port by TLS."
            table.fault("node_port_base", "missing", remedy)
    advertised_host = table.value(
        "advertised_host", "" if is_wildcard(host) else host, values.read_host
    )
    if not advertised_host:
        table.fault(
            "advertised_host",
            f'missing, and clients cannot connect to "{host}"',
            "Write the name or address under which clients reach this machine.",
        )
    tls = read_listener_tls(reader, folder, *path, "tls")
    if node_host:
        if tls is None:
            remedy = f"Write [{named}.tls], or node_port_base in place of node_host."
            problem = "without TLS a client does not say which name it has called"
            table.fault("node_host", problem, remedy)
        if "node_port_base" in table.data:
            table.fault(
                "node_port_base", "with node_host all nodes are at bootstrap_port", "Take it away."
            )
        node_port_base = bootstrap_port
    elif node_port_base + last > values.PORT_MAX:
        reader.table("gateway").fault(
            "node_ids",
            f"node {last} would listen on port {node_port_base + last}",
            f"Lower {named}.node_port_base or the range.",
        )
    if not node_host and node_port_base + first <= bootstrap_port <= node_port_base + last:
        table.fault(
            "bootstrap_port",
            f"{bootstrap_port} is also the port of node {bootstrap_port - node_port_base}",
            f"Move {named}.bootstrap_port out of node_port_base + node_ids.",
        )
    advertised = Advertised(
        host=advertised_host,
        node_port_base=node_port_base,
        node_id_min=first,
        node_id_max=last,
        node_host=node_host,
    )
    return ListenerSettings(
        host=host,
        bootstrap_port=bootstrap_port,
        advertised=advertised,
        tls=tls,
        proxied_by=table.value("proxy_protocol_from", (), values.read_networks),
        table=named,
    )


def _check_apart(
    reader: Reader, listener: ListenerSettings, others: Sequence[ListenerSettings]
) -> None:
    """Two cannot listen at one port of one address."""
    for other in others:
        hosts = {listener.host, other.host}
        is_same = len(hosts) == 1 or any(map(is_wildcard, hosts))
        both = listener.ports.keys() & other.ports.keys()
        if is_same and both:
            key = "bootstrap_port" if listener.bootstrap_port in both else "node_port_base"
            reader.table(*listener.table.split(".", 1)).fault(
                key,
                f"port {min(both)} is also one of [{other.table}]",
                "Choose ports that no other listener has.",
            )
