"""The gateway's own connections may be encrypted; those that it makes for its clients are not, so both need listeners of their own."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kvota.app.kafka_properties import KafkaProperties
from kvota.model.address import Address, address_text
from kvota.model.errors import Fault, UsageError
from kvota.volumes.settings import ADMIN_PREFIXES

if TYPE_CHECKING:  # it reads its faults from here
    from kvota.app.config import GatewayConfig

_SERVERS, _PROTOCOL = "bootstrap.servers", "security.protocol"
_LOGIN = ("sasl.mechanism", "sasl.jaas.config")
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
        yield Fault(_place(kafka, _PROTOCOL), problem, remedy)
    for server in {address_text(*address) for address in upstream}.intersection(own):
        problem = (
            f"{server} is one of upstream.bootstrap_servers, to which clients are passed on without TLS, "
            f"and security.protocol is {protocol}"
        )
        yield Fault(_place(kafka, _SERVERS), problem, remedy)


def check_own_login(config: "GatewayConfig") -> None:
    """Check the properties of the gateway's own connections, before clients are let in; certificates and the key are read once.

    Raises:
        UsageError: a property or a file cannot be used, said with its place; no key and no password is in its text.
    """
    admin = config.kafka.volumes.admin
    if not admin:
        return
    try:
        from kvota.app.own_cluster import own_cluster  # kio takes a while
    except ModuleNotFoundError as error:
        msg = f"{ADMIN_PREFIXES[0]}*: {error.name} is not installed; it comes with kvota[client]"
        raise UsageError(msg) from error
    login = next((name for name in _LOGIN if name in admin), None)
    protocol = admin.get(_PROTOCOL, "").strip()
    if login is not None and protocol in {"", "PLAINTEXT", "SSL"}:
        said = f"{_PROTOCOL}={protocol}" if protocol else f"no {_PROTOCOL}"
        where = _place(config.kafka, login)
        msg = f"{where}: has no effect with {said}. Write {_PROTOCOL} = SASL_PLAINTEXT or SASL_SSL, or leave it out"
        raise UsageError(msg)
    try:
        own_cluster(config, client_id="")
    except UsageError as error:
        text = str(error).removeprefix(f"{ADMIN_PREFIXES[0]}: ")
        # The client speaks of a server by its address.
        name = _SERVERS if text.startswith('"') else re.split(r"[:\s]", text, maxsplit=1)[0]
        if name not in admin:
            msg = f"{ADMIN_PREFIXES[0]}{text}"
            raise UsageError(msg) from error
        msg = f"{_place(config.kafka, name)}: {text.removeprefix(name).lstrip(': ')}"
        raise UsageError(msg) from error


def _tls_protocol(kafka: KafkaProperties) -> str:
    """The security protocol, where it is one with TLS."""
    protocol = kafka.volumes.admin.get(_PROTOCOL, "").strip()
    return protocol if protocol.endswith("SSL") else ""


def _place(kafka: KafkaProperties, name: str) -> str:
    return next(kafka.places[prefix + name] for prefix in ADMIN_PREFIXES if prefix + name in kafka.places)  # fmt: skip
