"""What a client has shown in its TLS handshake, and why one has failed."""

import logging
import re
import ssl

from kvota.gateway.certificate_in_force import CertificateInForce
from kvota.gateway.listeners import Entrance
from kvota.gateway.settings import ListenerSettings
from kvota.gateway.tls_transport import NotTlsError, TlsTransport
from kvota.model.plain_text import on_one_line, shortened
from kvota.session.topology import NODE_IN_HOST
from kvota.tls.certificate import CertificateFormatError, read_certificate
from kvota.tls.principal_mapping import MappingError
from kvota.tls.server_tls import ServerSide

_SHOWN_MAX = 100
_REMEDIES = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate, and this listener requires one ({table}.tls: client_auth)",
    "NO_SHARED_CIPHER": "it knows no cipher that is taken here ({table}.tls: ciphers)",
    "UNSUPPORTED_PROTOCOL": "it speaks only versions of TLS that are not taken here ({table}.tls: versions)",
    "CALLBACK_FAILED": "the name that it has called (SNI) is none",
    "UNKNOWN_CA": "it does not trust the gateway's certificate (its ssl.truststore.location)",
    "CERTIFICATE_UNKNOWN": "it does not take the gateway's certificate: does it trust who has signed it "
    "(ssl.truststore.location), and is the certificate for the name that it has called?",
    "BAD_CERTIFICATE": "it does not take the gateway's certificate",
    "CERTIFICATE_EXPIRED": "the gateway's certificate has expired, it says",
}


class ClientTlsError(Exception):
    """What a client has shown cannot be gone by."""


def user_of(tls: TlsTransport, certificate: CertificateInForce | None) -> str | None:
    """Return who the client is by its certificate; None: it has shown none.

    Raises:
        ClientTlsError: no rule says who that is.
    """
    der = tls.tls.getpeercert(binary_form=True)
    if der is None or certificate is None:
        return None
    try:
        return certificate.tls.mapper.name_of(read_certificate(der).subject)
    except (CertificateFormatError, MappingError) as error:
        msg = f"{_shown(str(error))} ({certificate.setting}: principal_mapping_rules)"
        raise ClientTlsError(msg) from error


def node_called(tls: TlsTransport, entrance: Entrance) -> int | None:
    """Return the node whose name the client has called (SNI); None: it has called none's.

    Raises:
        ClientTlsError: there is no such node.
    """
    told = entrance.listener.advertised
    name = tls.tls.server_name if isinstance(tls.tls, ServerSide) else ""
    if not told.node_host or not name:
        return None
    before, _, behind = told.node_host.lower().partition(NODE_IN_HOST)
    number = name[len(before) : len(name) - len(behind)]
    is_of_form = name.startswith(before) and name.endswith(behind) and number.isascii()
    if not is_of_form or not number.isdecimal() or name != f"{before}{number}{behind}":
        return None
    if len(number) > 10 or int(number) not in told.node_ids:
        msg = f"it has called {_shown(name)}, and gateway.node_ids has no such node"
        raise ClientTlsError(msg)
    return int(number)


def why_failed(tls: TlsTransport, error: Exception, listener: ListenerSettings) -> tuple[str, int]:
    """Return words for it, and how loud they are: that somebody is gone is no news."""
    if isinstance(error, NotTlsError) and not tls.is_secured:
        words = "it speaks no TLS, and this port takes nothing else: its client needs security.protocol=SSL, or SASL_SSL"
        return words, logging.WARNING
    if isinstance(error, ssl.SSLCertVerificationError):
        said = _shown(error.verify_message)
        return (
            f"its certificate is not taken: {said} ({listener.table}.tls: client_cafile)",
            logging.WARNING,
        )
    if isinstance(error, ssl.SSLError):
        return _of_openssl(error, tls, listener), logging.WARNING
    if isinstance(error, TimeoutError):
        return f"{error} (limits.tls_handshake_time)", logging.WARNING
    return str(error), logging.DEBUG


def _of_openssl(error: ssl.SSLError, tls: TlsTransport, listener: ListenerSettings) -> str:
    reason = str(error.reason or error).upper().replace(" ", "_")
    for key, words in _REMEDIES.items():
        if key in reason:
            return words.format(table=listener.table)
    # OpenSSL names the version in which an alert was first there, which misleads.
    said = re.sub("^(SSLV3|TLSV1|TLSV13|SSL/TLS)_ALERT_", "", reason).replace("_", " ").lower()
    begun = "what it has sent is damaged" if tls.is_secured else "TLS cannot be agreed on"
    return f"{begun}: {_shown(said)}"


def _shown(text: str) -> str:
    return on_one_line(shortened(text, _SHOWN_MAX))
