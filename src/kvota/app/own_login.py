"""Where clients are passed on otherwise than the gateway's own connections (without TLS, or with a head before it), both need listeners of their own."""

from collections.abc import Iterator, Sequence

from kvota.app.kafka_properties import KafkaProperties
from kvota.model.address import Address, address_text
from kvota.model.errors import Fault
from kvota.volumes.settings import ADMIN_PREFIXES

_SERVERS, _PROTOCOL = "bootstrap.servers", "security.protocol"
_REMEDY = "Write there the address of a listener of the brokers with TLS (security protocol {})."

PROXY_REMEDY = (
    f"Write {ADMIN_PREFIXES[0]}{_SERVERS} of [kafka] with the brokers' own addresses, or others that take "
    "connections without such a head."
)


def problem_behind_proxy(kafka: KafkaProperties, upstream: Sequence[Address], *, asks: bool) -> str:
    """Say what cannot work where ``upstream.proxy_protocol`` is set; empty: nothing.

    Args:
        kafka: the properties, with those of the gateway's own connections.
        upstream: where clients are passed on to, each with a head that says where it is.
        asks: the gateway asks the cluster itself, whatever these properties say.
    """
    own = _own_servers(kafka)
    if not own and (asks or kafka.volumes.admin):
        return (
            "the gateway's own connections go without what it says of clients, and "
            f"{ADMIN_PREFIXES[0]}{_SERVERS} is not set: they would go to upstream.bootstrap_servers"
        )
    both = {address_text(*address) for address in upstream}.intersection(own)
    if not both:
        return ""
    return (
        f"the gateway's own connections go to {min(both)}, too ({place_of(kafka, _SERVERS)}), and without what it "
        "says of clients"
    )


def faults_of_own_tls(kafka: KafkaProperties, upstream: Sequence[Address]) -> Iterator[Fault]:
    """Say what cannot work: TLS at the listener at which clients are passed on without.

    Args:
        kafka: the properties, with those of the gateway's own connections.
        upstream: where clients are passed on to.
    """
    protocol = _tls_protocol(kafka)
    if not protocol:
        return
    remedy = _REMEDY.format(protocol)
    own = _own_servers(kafka)
    if not own:
        problem = (
            f"{protocol}, and {ADMIN_PREFIXES[0]}{_SERVERS} is not set: upstream.bootstrap_servers, to which "
            "clients are passed on without TLS, cannot be the listener"
        )
        yield Fault(place_of(kafka, _PROTOCOL), problem, remedy)
    for server in {address_text(*address) for address in upstream}.intersection(own):
        problem = (
            f"{server} is one of upstream.bootstrap_servers, to which clients are passed on without TLS, "
            f"and security.protocol is {protocol}"
        )
        yield Fault(place_of(kafka, _SERVERS), problem, remedy)


def _own_servers(kafka: KafkaProperties) -> list[str]:
    servers = kafka.volumes.admin.get(_SERVERS, "").split(",")
    return [server.strip() for server in servers if server.strip()]


def _tls_protocol(kafka: KafkaProperties) -> str:
    """The security protocol, where it is one with TLS."""
    protocol = kafka.volumes.admin.get(_PROTOCOL, "").strip()
    return protocol if protocol.endswith("SSL") else ""


def place_of(kafka: KafkaProperties, name: str) -> str:
    """Where a property of the own connections stands, named without its prefix; it must be there."""
    return next(kafka.places[prefix + name] for prefix in ADMIN_PREFIXES if prefix + name in kafka.places)  # fmt: skip
