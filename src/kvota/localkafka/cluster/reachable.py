"""Where the nodes of a cluster are reached, and whose certificates they show."""

from collections.abc import Sequence
from pathlib import Path

from kvota.localkafka.cluster.certificates import Authority
from kvota.localkafka.cluster.listeners import PLAINTEXT, SASL, SASL_SSL, SSL, Listener
from kvota.localkafka.cluster.node import Node
from kvota.model.errors import UsageError

CLIENT_PROPERTIES = "client.properties"


class Reachable:
    """A cluster as its clients see it.

    Attributes:
        host: of all listeners.
        nodes: once it has been started.
    """

    def __init__(self, host: str, listeners: Sequence[Listener]) -> None:
        self.host = host
        self.nodes: list[Node] = []
        self._listeners = list(listeners)
        self._authority: Authority | None = None

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,...`` of the PLAINTEXT listeners."""
        return self.servers_of(PLAINTEXT)

    @property
    def sasl_bootstrap_servers(self) -> str:
        """``host:port,...`` of the SASL_PLAINTEXT listeners.

        Raises:
            UsageError: the cluster was made without users and without ``oauth``.
        """
        return self.servers_of(SASL)

    @property
    def tls_bootstrap_servers(self) -> str:
        """``host:port,...`` of the SSL listeners.

        Raises:
            UsageError: the cluster was made without ``tls``.
        """
        return self.servers_of(SSL)

    @property
    def sasl_tls_bootstrap_servers(self) -> str:
        """``host:port,...`` of the SASL_SSL listeners.

        Raises:
            UsageError: the cluster was made without ``tls``, or without users.
        """
        return self.servers_of(SASL_SSL)

    def servers_of(self, listener: str) -> str:
        """Return ``host:port,...`` of the listeners of one name.

        Raises:
            UsageError: there is no such listener.
        """
        names = [each.name for each in self._listeners]
        if listener not in names:
            msg = (
                f"there is no listener {listener}; there are {', '.join(names)}. With users there is {SASL}, "
                f'with tls {SSL}, with both {SASL_SSL}: LocalKafka(users={{"alice": "secret"}}, tls="none")'
            )
            raise UsageError(msg)
        return ",".join(f"{self.host}:{node.ports.listeners[listener]}" for node in self.nodes)

    @property
    def has_logins(self) -> bool:
        """Whether there is a listener at which clients log in."""
        return SASL in (each.name for each in self._listeners)

    @property
    def has_tls(self) -> bool:
        """Whether there are listeners with TLS, and certificates."""
        return self._authority is not None

    @property
    def authority(self) -> Authority:
        """What has signed the certificates of the listeners, and signs those of clients; new with each start.

        Raises:
            UsageError: the cluster was made without ``tls``, or does not run.
        """
        if self._authority is None:
            msg = 'there are no certificates without TLS, and before the start; write LocalKafka(tls="requested")'
            raise UsageError(msg)
        return self._authority

    @property
    def client_properties(self) -> Path:
        """A file by which Kafka's tools and ours reach the SSL listeners, as ``User:CN=client``.

        Raises:
            UsageError: as ``authority``.
        """
        return self.authority.certificate.with_name(CLIENT_PROPERTIES)

    def node(self, node_id: int) -> Node:
        """Return the node of this id, counted from 1."""
        for node in self.nodes:
            if node.node_id == node_id:
                return node
        msg = f"there is no node {node_id}; the ids are 1 to {len(self.nodes)}"
        raise UsageError(msg)
