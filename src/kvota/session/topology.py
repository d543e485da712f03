"""Which broker is reached at which address of the gateway.

Node n is served at ``base port + n``; brokers' own addresses are learnt from answers that pass by.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kvota.wire.address_rewrite import AddressOf
from kvota.wire.addresses import UnknownNodeError

# Of connections; -1 is taken by cluster-wide quotas.
UNKNOWN_NODE = -2  # which broker has been reached is found out before the first charge
UNNAMED_NODE = (
    -3
)  # no broker names the address that was reached: one counter for all such connections

# Stands for the node's id in the host name of each node.
NODE_IN_HOST = "{node}"

# Each is told in full once; a broker can name as many as it likes.
_REFUSED_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """What clients are told instead of a broker's address.

    Attributes:
        host: the gateway's.
        node_port_base: node n is at this port + n.
        node_id_min: the first node that may be told.
        node_id_max: the last one.
        node_host: with ``{node}`` in it: each node has a name of its own, and all are at ``node_port_base``.
    """

    host: str
    node_port_base: int
    node_id_min: int
    node_id_max: int
    node_host: str = ""

    def address_of(self, node_id: int) -> tuple[str, int]:
        """Where clients find this node."""
        if self.node_host:
            return self.node_host.replace(NODE_IN_HOST, str(node_id)), self.node_port_base
        return self.host, self.node_port_base + node_id

    @property
    def node_ids(self) -> range:
        """All nodes that may be told."""
        return range(self.node_id_min, self.node_id_max + 1)


class Topology:
    """Learns brokers from passing answers and gives the address to tell clients instead.

    Args:
        advertised: what clients are told who have come by the first listener; all know the same nodes.

    Attributes:
        brokers: addresses by node id, as the last answer that named the node said.
        is_gateways: whether (host, port) is the gateway's own; the gateway that listens says it.
    """

    def __init__(self, advertised: Advertised) -> None:
        self._advertised = advertised
        self.brokers: dict[int, tuple[str, int]] = {}
        self.is_gateways: Callable[[str, int], bool] = _nobodys
        self._node_of_address: dict[tuple[str, int], int] = {}
        self._refused: set[tuple[int, str, int]] = set()

    def address_of(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        """The gateway's address for a broker that an answer names; remembers the broker.

        Raises:
            UnknownNodeError: the node is outside the configured range, or said to be where the gateway
                is; nothing may be forwarded.
        """
        told = self._advertised
        if not told.node_id_min <= node_id <= told.node_id_max:
            msg = (
                f"the cluster has a node {node_id} at {host}:{port}, outside gateway.node_ids "
                f"{told.node_id_min}-{told.node_id_max}: widen the range, else clients would have to "
                "go round the gateway"
            )
            raise self._refusal(msg, node_id, host, port)
        address = host, port
        if self.brokers.get(node_id) != address:
            if self.is_gateways(host, port):
                msg = (
                    f"node {node_id} advertises {host}:{port}, which is this gateway's own address: it "
                    "would dial itself. Set advertised.listeners of that broker to an address of its "
                    "own, not the gateway's"
                )
                raise self._refusal(msg, node_id, host, port)
            self._move(node_id, address)
        return told.address_of(node_id)

    def told_by(self, advertised: Advertised) -> AddressOf:
        """``address_of`` for clients that have come by another listener."""
        if advertised == self._advertised:
            return self.address_of
        return partial(self._told, advertised)

    def _told(self, advertised: Advertised, node_id: int, host: str, port: int) -> tuple[str, int]:
        self.address_of(node_id, host, port)
        return advertised.address_of(node_id)

    def _move(self, node_id: int, address: tuple[str, int]) -> None:
        """The node is there from now on; who was said to be there before is not."""
        old = self.brokers.get(node_id)
        if old is not None:
            del self._node_of_address[old]
        before = self._node_of_address.get(address)
        if before is not None:
            del self.brokers[before]
        self.brokers[node_id] = address
        self._node_of_address[address] = node_id

    def node_at(self, host: str, port: int) -> int | None:
        """The node with this address, if an answer has named it."""
        return self._node_of_address.get((host, port))

    def _refusal(self, msg: str, node_id: int, host: str, port: int) -> UnknownNodeError:
        refused = node_id, host, port
        error = UnknownNodeError(msg)
        error.is_repeated = refused in self._refused or len(self._refused) >= _REFUSED_MAX
        if not error.is_repeated:
            self._refused.add(refused)
        return error


def _nobodys(_host: str, _port: int) -> bool:
    return False
