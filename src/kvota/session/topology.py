"""Which broker is reached at which address of the gateway.

Node n is served at ``base port + n``; brokers' own addresses are learnt from answers that pass by.
"""

from dataclasses import dataclass

from kvota.wire.addresses import UnknownNodeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """What clients are told instead of a broker's address."""

    host: str
    node_port_base: int
    node_id_min: int
    node_id_max: int


class Topology:
    """Learns brokers from passing answers and gives the address to tell clients instead."""

    def __init__(self, advertised: Advertised) -> None:
        self._advertised = advertised
        self.brokers: dict[int, tuple[str, int]] = {}
        self._node_of_address: dict[tuple[str, int], int] = {}

    def address_of(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        """The gateway's address for a broker that an answer names; remembers the broker.

        Raises:
            UnknownNodeError: the node is outside the configured range; nothing may be forwarded.
        """
        told = self._advertised
        if not told.node_id_min <= node_id <= told.node_id_max:
            msg = (
                f"the cluster has a node {node_id} at {host}:{port}, outside gateway.node_ids "
                f"{told.node_id_min}-{told.node_id_max}: widen the range, else clients would have to "
                "go round the gateway"
            )
            raise UnknownNodeError(msg)
        if self.brokers.get(node_id) != (host, port):
            old = self.brokers.get(node_id)
            if old is not None and self._node_of_address.get(old) == node_id:
                del self._node_of_address[old]
            self.brokers[node_id] = (host, port)
            self._node_of_address[host, port] = node_id
        return told.host, told.node_port_base + node_id

    def node_at(self, host: str, port: int) -> int | None:
        """The node with this address, if an answer has named it."""
        return self._node_of_address.get((host, port))
