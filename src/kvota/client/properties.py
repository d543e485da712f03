"""A cluster by the properties of Kafka's own clients: ``bootstrap.servers``, ``sasl.jaas.config`` and the like."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from kvota.client import bearer_tokens, tls_properties
from kvota.client.cluster import Cluster
from kvota.client.connection import ClientLimits
from kvota.client.jaas import read_options
from kvota.client.security import (
    MECHANISMS,
    OAUTHBEARER,
    OF_DELEGATION_TOKENS,
    Mechanism,
    Security,
)
from kvota.model.errors import UsageError
from kvota.model.java_properties import parse_properties
from kvota.tls.client_tls import Tls

_KNOWN = (
    "bootstrap.servers",
    "client.id",
    "request.timeout.ms",
    "sasl.jaas.config",
    "sasl.mechanism",
    "sasl.oauthbearer.token.endpoint.url",
    "security.protocol",
    *tls_properties.KNOWN,
)
_PROTOCOLS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")
_FROM_URL = "sasl.oauthbearer.token.endpoint.url"
_CLAIM = "unsecuredLoginStringClaim_"
_EXAMPLE = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="…" password="…";'
)
_TOKEN_AUTH = "tokenauth"  # noqa: S105 - the name of an option


def read_properties(path: Path) -> dict[str, str]:
    """Read a file of Java's properties, as ``--command-config`` of Kafka's own tools names one.

    Raises:
        UsageError: it cannot be read, or a line has no value; no value is in any text.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        raise UsageError(msg) from error
    try:
        return parse_properties(text)
    except ValueError as error:
        msg = f"{path}: {error}"
        raise UsageError(msg) from None


def cluster_of(properties: Mapping[str, str], *, client_id: str = "kvota") -> Cluster:
    """Return the cluster; nothing is connected yet.

    Raises:
        UsageError: a property that is not known here, or a value that cannot be used; a password is
            in no text.
    """
    unknown = sorted(set(properties) - set(_KNOWN))
    if unknown:
        msg = f"{unknown[0]} is not a property that is known here; known are {', '.join(_KNOWN)}"
        raise UsageError(msg)
    timeout_ms = properties.get("request.timeout.ms", "30000").strip()
    if not timeout_ms.isdecimal() or not int(timeout_ms):
        msg = f'request.timeout.ms: "{timeout_ms}" is not a number of milliseconds above 0'
        raise UsageError(msg)
    return Cluster(
        [part for part in properties.get("bootstrap.servers", "").split(",") if part.strip()],
        security=security_of(properties),
        client_id=properties.get("client.id", client_id),
        limits=ClientLimits(request_s=int(timeout_ms) / 1000),
    )


def security_of(properties: Mapping[str, str]) -> Security:
    """Return how brokers are reached by ``security.protocol``, ``ssl.*``, ``sasl.mechanism`` and ``sasl.jaas.config``.

    Raises:
        UsageError: as ``cluster_of``.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").strip()
    if protocol not in _PROTOCOLS:
        msg = f'security.protocol: "{protocol}" cannot be spoken; {", ".join(_PROTOCOLS)} can'
        raise UsageError(msg)
    tls = _tls(properties, protocol)
    if not protocol.startswith("SASL_"):
        return Security(tls=tls)
    asked = properties.get("sasl.mechanism", "").strip()
    for mechanism in MECHANISMS:
        if mechanism == OAUTHBEARER == asked:
            return _bearer(properties, tls)
        if mechanism == asked:
            options = _name_and_password(properties, mechanism)
            return Security(
                mechanism=mechanism,
                username=options["username"],
                password=options["password"],
                is_delegation_token=_says_token(options),
                tls=tls,
            )
    msg = f'sasl.mechanism: "{asked}" cannot be spoken; {", ".join(MECHANISMS)} can'
    raise UsageError(msg)


def _tls(properties: Mapping[str, str], protocol: str) -> Tls | None:
    if protocol.endswith("SSL"):
        return tls_properties.tls_of(properties)
    useless = next((name for name in tls_properties.KNOWN if name in properties), None)
    if useless is not None:
        msg = (
            f"{useless} has no effect with security.protocol={protocol}, which encrypts nothing: "
            f"write {'SASL_SSL' if protocol.startswith('SASL_') else 'SSL'}, or leave it out"
        )
        raise UsageError(msg)
    return None


def _bearer(properties: Mapping[str, str], tls: Tls | None) -> Security:
    """A token of a file, or one that nobody has signed, as the login module for tests makes it."""
    url = properties.get(_FROM_URL, "").strip()
    if url:
        parts = urlsplit(url)
        if parts.scheme != "file" or parts.netloc not in {"", "localhost"} or not parts.path:
            msg = (
                f'{_FROM_URL}: "{url}" cannot be asked for tokens here; have somebody keep one fresh in a file, '
                "and write file:///path/of/the/token"
            )
            raise UsageError(msg)
        _options(properties, [])  # a login module without options says nothing further
        return Security.bearer(bearer_tokens.of_file(Path(unquote(parts.path))), tls=tls)
    options = _options(properties, [_CLAIM])
    claims = {name.removeprefix(_CLAIM): text for name, text in options.items()}
    if not claims.get("sub"):
        msg = (
            f"no bearer token can be had: write {_FROM_URL}=file:///path/of/the/token, or in sasl.jaas.config "
            f'{_CLAIM}sub="…" for a token that nobody has signed'
        )
        raise UsageError(msg)
    return Security.bearer(bearer_tokens.unsecured(claims), tls=tls)


def _name_and_password(properties: Mapping[str, str], mechanism: Mechanism) -> dict[str, str]:
    further = [_TOKEN_AUTH] if mechanism in OF_DELEGATION_TOKENS else []
    found = _options(properties, ["username", "password", *further])
    if not {"username", "password"} <= found.keys():
        msg = (
            "sasl.jaas.config: no user name and password can be read from it. "
            f"Write e.g. {_EXAMPLE}"
        )
        raise UsageError(msg)
    return found


def _says_token(options: Mapping[str, str]) -> bool:
    said = options.get(_TOKEN_AUTH, "false").lower()
    if said not in {"true", "false"}:
        msg = f'sasl.jaas.config: {_TOKEN_AUTH} is neither "true" nor "false"'
        raise UsageError(msg)
    return said == "true"


def _options(properties: Mapping[str, str], known: Sequence[str]) -> dict[str, str]:
    config = properties.get("sasl.jaas.config", "")
    return read_options(config, known=known, example=_EXAMPLE) if config.strip() else {}
