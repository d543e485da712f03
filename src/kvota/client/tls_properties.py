"""TLS by the properties of Kafka's clients: Java's, and librdkafka's for certificate and key in two files."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kvota.client.java_stores import KEY_PASSWORD, KEYSTORE, TRUSTSTORE, passwords_in
from kvota.model.errors import UsageError
from kvota.tls.client_tls import Tls, Version
from kvota.tls.pem import Pem, TlsSettingError, check_pkcs12

_HOST_CHECK = "ssl.endpoint.identification.algorithm"
_PROTOCOLS, _PROTOCOL = "ssl.enabled.protocols", "ssl.protocol"
_VERSIONS = {"TLSv1.2": Version.TLSv1_2, "TLSv1.3": Version.TLSv1_3}
# The properties of each setting, of which there may be one; whether it names a file, or is the text itself.
_FILE, _TEXT = True, False
_CAFILE = {
    "ssl.truststore.location": _FILE,
    "ssl.ca.location": _FILE,
    "ssl.truststore.certificates": _TEXT,
}
_CERTFILE = {
    "ssl.keystore.location": _FILE,
    "ssl.certificate.location": _FILE,
    "ssl.keystore.certificate.chain": _TEXT,
}
_KEYFILE = {"ssl.key.location": _FILE, "ssl.keystore.key": _TEXT}

KNOWN: Final = (
    *_CAFILE,
    *_CERTFILE,
    *_KEYFILE,
    *(each for store in (TRUSTSTORE, KEYSTORE) for each in (store.type, store.password)),
    *(KEY_PASSWORD, _HOST_CHECK, _PROTOCOLS, _PROTOCOL),
)
_LINE_MAX = 64  # characters, as RFC 7468 has it
_BLOCK = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----)(.*?)(-----END [A-Z0-9 ]+-----)", re.DOTALL)


def tls_of(properties: Mapping[str, str]) -> Tls:
    """Return how connections are encrypted; all files have been read once, so what is wrong with them is said now.

    Raises:
        UsageError: a value or a file cannot be used; no key and no password is in its text.
    """
    trust_password, store_password = passwords_in(properties)
    cafile_name, cafile = _one_of(properties, _CAFILE)
    certfile_name, certfile = _one_of(properties, _CERTFILE)
    keyfile_name, keyfile = _one_of(properties, _KEYFILE)
    names = {
        "cafile": cafile_name,
        "cafile_password": TRUSTSTORE.password,
        "certfile": certfile_name,
        "keyfile": keyfile_name,
        "password": KEY_PASSWORD if store_password is None else KEYSTORE.password,
    }
    lowest, highest = _versions(properties)
    try:
        if store_password is not None and certfile is not None:
            check_pkcs12(certfile, setting="certfile")
        tls = Tls(
            cafile=cafile,
            cafile_password=trust_password,
            certfile=certfile,
            keyfile=keyfile,
            password=store_password or properties.get(KEY_PASSWORD) or None,
            check_hostname=_checks_host(properties),
            version_min=lowest,
            version_max=highest,
        )
        tls.context()
    except TlsSettingError as error:
        msg = f"{names[error.setting]}: {error}"
        raise UsageError(msg) from error
    return tls


def _one_of(properties: Mapping[str, str], names: Mapping[str, bool]) -> tuple[str, Pem | None]:
    """The name and the value of the one that is there."""
    there = [name for name in names if properties.get(name, "").strip()]
    if not there:
        return next(iter(names)), None
    if len(there) > 1:
        msg = f"{there[1]}: {there[0]} says the same; keep one of the two"
        raise UsageError(msg)
    (name,) = there
    value = properties[name].strip()
    if names[name] is _FILE:
        return name, Path(value)
    text = _with_lines(value)
    if not text.startswith("-----BEGIN "):
        of_files = ", ".join(each for each in names if names[each] is _FILE)
        msg = f"{name}: this is no text in PEM (-----BEGIN …); a file is named by {of_files}"
        raise UsageError(msg)
    return name, text


def _with_lines(text: str) -> str:
    """PEM from one line of a file of properties, where blanks or the escape for a line's end separate its lines."""

    def block(found: re.Match[str]) -> str:
        begin, inside, end = found.groups()
        text = re.sub(r"\\[rn]|\s", "", inside)
        lines = (text[at : at + _LINE_MAX] for at in range(0, len(text), _LINE_MAX))
        return "\n".join([begin, *lines, end, ""])

    return _BLOCK.sub(block, text)


def _checks_host(properties: Mapping[str, str]) -> bool:
    algorithm = properties.get(_HOST_CHECK, "https").strip()
    if algorithm.lower() not in {"https", "", "none"}:
        msg = (
            f'{_HOST_CHECK}: "{algorithm}" is not known; https checks that the certificate is for the host, '
            "nothing behind the = switches the check off"
        )
        raise UsageError(msg)
    return algorithm.lower() == "https"


def _versions(properties: Mapping[str, str]) -> tuple[Version, Version]:
    """The lowest and the highest that are taken."""
    name = _PROTOCOLS if properties.get(_PROTOCOLS, "").strip() else _PROTOCOL
    texts = [part.strip() for part in properties.get(name, "").split(",") if part.strip()]
    for text in texts:
        if text not in _VERSIONS and not (name == _PROTOCOL and text == "TLS"):
            msg = f'{name}: "{text}" is not spoken here; {" and ".join(_VERSIONS)} are'
            raise UsageError(msg)
    if name == _PROTOCOL or not texts:
        # Java's ssl.protocol names the highest version, and only there.
        highest = (
            _VERSIONS.get(texts[0], Version.MAXIMUM_SUPPORTED)
            if texts
            else Version.MAXIMUM_SUPPORTED
        )
        return Version.TLSv1_2, highest
    versions = [_VERSIONS[text] for text in texts]
    return min(versions), max(versions)
