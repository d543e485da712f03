"""Whether the gateway's own connections can be made as the properties say, before it listens."""

import re

from kvota.app.config import GatewayConfig
from kvota.app.missing_extra import needs_extra
from kvota.app.own_login import place_of
from kvota.model.errors import UsageError
from kvota.volumes.settings import ADMIN_PREFIXES

_SERVERS, _PROTOCOL = "bootstrap.servers", "security.protocol"
_LOGIN = ("sasl.mechanism", "sasl.jaas.config")


def check_own_login(config: GatewayConfig) -> None:
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
        msg = f"{ADMIN_PREFIXES[0]}*: {needs_extra(error, 'client')}"
        raise UsageError(msg) from error
    login = next((name for name in _LOGIN if name in admin), None)
    protocol = admin.get(_PROTOCOL, "").strip()
    if login is not None and protocol in {"", "PLAINTEXT", "SSL"}:
        said = f"{_PROTOCOL}={protocol}" if protocol else f"no {_PROTOCOL}"
        where = place_of(config.kafka, login)
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
        msg = f"{place_of(config.kafka, name)}: {text.removeprefix(name).lstrip(': ')}"
        raise UsageError(msg) from error
