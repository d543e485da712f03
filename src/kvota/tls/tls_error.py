"""Why a connection cannot be encrypted, and what to do."""

import re
import ssl
from collections.abc import Mapping

from kvota.model.address import Address, address_text
from kvota.model.errors import KvotaError
from kvota.tls.client_tls import Tls


class TlsError(KvotaError):
    """One side does not trust the other, or they do not agree on how to encrypt; another try would end the same way."""


# OpenSSL's numbers for what is wrong with the broker's certificate.
_NOT_YET_VALID, _EXPIRED = 9, 10
_NO_ISSUER = frozenset({2, 18, 19, 20, 21, 24, 27})
_OTHER_HOST = frozenset({62, 64})

_OUR_CERTIFICATE = (
    "Is it valid, and by an authority whom the broker trusts (its ssl.truststore.location)?"
)
_NO_CERTIFICATE = (
    "It asks for a certificate of this client, and none is set: set one and its key "
    "(ssl.keystore.location; certfile, keyfile)"
)
# What the broker says when it ends the handshake, by OpenSSL's name of it.
_ALERTS_OF_CERTIFICATES = (
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REQUIRED",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_UNKNOWN",
    "UNKNOWN_CA",
    "UNSUPPORTED_CERTIFICATE",
    "ACCESS_DENIED",
)
_REMEDY_OF: Mapping[str, str] = {
    "WRONG_VERSION_NUMBER": "What answers there speaks no TLS: set security.protocol to PLAINTEXT or "
    "SASL_PLAINTEXT, or name the port of a listener with TLS",
    "UNSUPPORTED_PROTOCOL": "It speaks only versions of TLS that are not taken here (ssl.enabled.protocols)",
    "PROTOCOL_VERSION": "It takes none of the versions of TLS that are spoken here (ssl.enabled.protocols)",
    "HANDSHAKE_FAILURE": "They have no cipher in common, or the broker wants a certificate that it has not got",
}

# Brokers close without a word on bytes that they do not understand.
PLAINTEXT_DOUBT = (
    " before it has answered anything: maybe it speaks TLS (security.protocol SSL or SASL_SSL), "
    "or is no broker"
)
TLS_DOUBT = (
    " in the middle of the TLS handshake: maybe it speaks none there "
    "(security.protocol PLAINTEXT or SASL_PLAINTEXT), or is no broker"
)
TLS_ANSWER_DOUBT = (
    " before it has answered anything: maybe it wants a certificate of this client that it trusts "
    "(ssl.keystore.location)"
)
# An alert, where an answer's size was expected: type, and the major version.
_ALERT = b"\x15\x03"


def is_tls(head: bytes) -> bool:
    """Tell whether what was read as an answer's size is the beginning of a TLS record."""
    return head.startswith(_ALERT)


def tls_error(error: ssl.SSLError, address: Address, tls: Tls) -> TlsError:
    """Say where what is wrong, and what to do."""
    return TlsError(f"{address_text(*address)}: {why_no_tls(error, address, tls)}")


def why_no_tls(error: ssl.SSLError, address: Address, tls: Tls) -> str:
    """Say what is wrong, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_broker(error, address, tls)
    reason = str(error.reason or error).upper().replace(" ", "_")
    # OpenSSL names the version in which an alert was first there, which misleads.
    said = re.sub("^(SSLV3|TLSV1|TLSV13|SSL/TLS)_ALERT_", "", reason).replace("_", " ").lower()
    if any(alert in reason for alert in _ALERTS_OF_CERTIFICATES):
        if tls.certfile is None:
            return f"TLS is refused ({said}). {_NO_CERTIFICATE}"
        shown = tls.certificate_text
        return f"the broker refuses our certificate {shown} ({said}). {_OUR_CERTIFICATE}"
    remedy = next((text for key, text in _REMEDY_OF.items() if key in reason), "")
    return f"TLS cannot be agreed on: {said}{'. ' if remedy else ''}{remedy}"


def _of_broker(error: ssl.SSLCertVerificationError, address: Address, tls: Tls) -> str:
    """What is wrong with the broker's certificate."""
    code, said = error.verify_code, error.verify_message.rstrip(".")
    if code in _OTHER_HOST:
        return (
            f'the broker\'s certificate is not for "{address[0]}". Name a host that it is for, have the broker '
            "advertise one (advertised.listeners), or, where that is certain to be the broker, switch the check off "
            "(ssl.endpoint.identification.algorithm= with nothing behind it; check_hostname=False)"
        )
    if code == _EXPIRED:
        return "the broker's certificate, or that of its authority, has expired. Renew it; or is this machine's clock wrong?"
    if code == _NOT_YET_VALID:
        return "the broker's certificate is not valid yet. Is a clock wrong, here or where it was made?"
    trusted = tls.trusted_text
    remedy = (
        "Set the certificate of the authority that has signed it (ssl.truststore.location; cafile)"
    )
    if code in _NO_ISSUER:
        return f"the broker's certificate is by nobody in {trusted} ({said}). {remedy}"
    return f"the broker's certificate is not valid: {said} (trusted are {trusted})"
