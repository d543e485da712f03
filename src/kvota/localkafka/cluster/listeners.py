"""Where the nodes of a cluster listen for clients, and how each listener is spoken to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from kvota.localkafka.cluster.certificates import Authority, Issued
from kvota.model.errors import UsageError

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
ClientAuth = Literal["none", "requested", "required"]
CLIENT_AUTHS: tuple[ClientAuth, ...] = ("none", "requested", "required")

PLAINTEXT, SASL, SSL, SASL_SSL = "PLAINTEXT", "SASL", "SSL", "SASL_SSL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One listener of each node.

    Attributes:
        name: of it; no other one has it.
        protocol: Kafka's security protocol.
        settings: of this listener alone, without ``listener.name.…``.
    """

    name: str
    protocol: Protocol
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_users(self) -> bool:
        """Whether clients log in."""
        return self.protocol.startswith("SASL_")

    @property
    def prefix(self) -> str:
        """What is before the names of its own settings."""
        return f"listener.name.{self.name.lower()}."


def tls_settings(
    server: Issued, authority: Authority, *, client_auth: ClientAuth = "none"
) -> dict[str, str]:
    """Return a listener's settings for TLS; PEM files are read from Kafka 2.7 on (KIP-651).

    Args:
        server: the certificate that the listener shows.
        authority: whose certificates it takes from clients.
        client_auth: whether clients are asked for one.
    """
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "ssl.client.auth": client_auth,
    }


def client_properties(authority: Authority, client: Issued) -> dict[str, str]:
    """Return the properties of a client that shows a certificate, for ``--command-config`` of Kafka's tools and ours."""
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(client.keystore),
    }


def listeners_of(*, users: bool, tls: ClientAuth | None) -> list[Listener]:
    """Return the listeners that a cluster has by itself; those with TLS without their certificates."""
    found = [Listener(name=PLAINTEXT, protocol="PLAINTEXT")]
    if users:
        found.append(Listener(name=SASL, protocol="SASL_PLAINTEXT"))
    if tls is not None:
        found.append(Listener(name=SSL, protocol="SSL"))
    if users and tls is not None:
        found.append(Listener(name=SASL_SSL, protocol="SASL_SSL"))
    return found


def check_listeners(listeners: Sequence[Listener], tls: ClientAuth | None) -> None:
    """Raises UsageError where two have one name, or clients cannot be asked for certificates like that."""
    names = [each.name.upper() for each in listeners]
    for name in names:
        if not name or names.count(name) > 1 or name == "CONTROLLER":
            msg = f'listener "{name}" cannot be had: the name is empty, or another listener has it'
            raise UsageError(msg)
    if tls is not None and tls not in CLIENT_AUTHS:
        msg = f'tls="{tls}" is not how clients are asked for certificates; take {", ".join(CLIENT_AUTHS)}'
        raise UsageError(msg)


def with_certificates(
    listeners: Sequence[Listener], server: Issued, authority: Authority, client_auth: ClientAuth
) -> list[Listener]:
    """Give the listeners of ``listeners_of`` a certificate; who logs in by SASL needs none of its own."""
    auths: dict[str, ClientAuth] = {SSL: client_auth, SASL_SSL: "none"}
    return [
        Listener(
            name=each.name,
            protocol=each.protocol,
            settings=tls_settings(server, authority, client_auth=auths[each.name]),
        )
        if each.name in auths
        else each
        for each in listeners
    ]
