"""Where clients are passed on without TLS and the gateway's own connections have it, both need listeners of their own."""

from collections.abc import Iterator, Sequence

from kvota.app.kafka_properties import KafkaProperties
from kvota.model.address import Address, address_text
from kvota.model.errors import Fault
from kvota.volumes.settings import ADMIN_PREFIXES

_SERVERS, _PROTOCOL = "bootstrap.servers", "security.protocol"
_REMEDY = "Write there the address of a listener of the brokers with TLS (security protocol {})."


def faults_of_own_tls(kafka: KafkaProperties, upstream: Sequence[Address]) -> Iterator[Fault]:
    """Say what cannot work: TLS at the listener at which clients are passed on without.

    Args:
        kafka: the properties, with those of the gateway's own connections.
        upstream: where clients are passed on to.
    """
    admin = kafka.volumes.admin
    protocol = _tls_protocol(kafka)
    if not protocol:
        return
    remedy = _REMEDY.format(protocol)
    own = [server.strip() for server in admin.get(_SERVERS, "").split(",") if server.strip()]
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


def _tls_protocol(kafka: KafkaProperties) -> str:
    """The security protocol, where it is one with TLS."""
    protocol = kafka.volumes.admin.get(_PROTOCOL, "").strip()
    return protocol if protocol.endswith("SSL") else ""


def place_of(kafka: KafkaProperties, name: str) -> str:
    """Where a property of the own connections stands, named without its prefix; it must be there."""
    return next(kafka.places[prefix + name] for prefix in ADMIN_PREFIXES if prefix + name in kafka.places)  # fmt: skip
