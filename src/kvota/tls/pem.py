"""Certificates and keys as PEM (files, or texts) and PKCS #12: read, checked, and handed to OpenSSL."""

import base64
import errno
import os
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvota.model.errors import UsageError

# A PEM file, or what stands in one.
Pem = Path | str

_IS_TEXT = "-----BEGIN "
_BLOCK = re.compile("-----BEGIN ([^-]+)-----")
_REVOKED = "X509 CRL"
_KEY_WORDS = "PRIVATE KEY-----"
# What a keystore or a truststore of Java's begins with: JKS, JCEKS.
_JAVA_STORES = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
# ASN.1: PKCS #12, or a certificate or key that is not written as PEM. The second byte says how the length is written: of a
# store of many certificates, above 64 KB, in three or four.
_DER = tuple(bytes((0x30, length)) for length in (0x80, 0x81, 0x82, 0x83, 0x84))
_FILE_BYTES_MAX = 16 * 2**20
_PASSWORD_OF = {"cafile": "cafile_password", "certfile": "password"}
# More than this is no path to show: it may be a key without the lines around it.
_SHOWN_MAX = 200


class TlsSettingError(UsageError):
    """A certificate, a key or its password cannot be used.

    Attributes:
        setting: which: ``cafile``, ``cafile_password``, ``certfile``, ``keyfile``, ``password``, ``crlfile``.
    """

    def __init__(self, problem: str, *, setting: str, value: Pem | None = None) -> None:
        super().__init__(f"{_shown(value)}{problem}")
        self.setting = setting


def state_of(value: Pem | None) -> object:
    """Return what is another one when a file has changed, or who may read it."""
    if value is None or _is_text(value):
        return None
    with suppress(OSError):
        found = Path(value).stat()
        return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
    return None


# ------------------------------------------------------------------ whom we trust


def trust(
    context: ssl.SSLContext, cafile: Pem, password: str | None = None, *, setting: str = "cafile"
) -> list[str]:
    """Have peers trusted whose certificates are by, or among, these; returns them, in PEM.

    Args:
        context: of who trusts them.
        cafile: PEM; or PKCS #12, where a password is given.
        password: of the PKCS #12 file.
        setting: what ``cafile`` is called.

    Raises:
        TlsSettingError: they cannot be used.
    """
    # As with Java, whoever is trusted is trusted: an authority below another one, or a peer's own certificate.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if password is None:
        certificates, form = certificates_in(_content(setting, cafile)), _IN_PEM
    else:
        certificates, form = certificates_in(_opened(cafile, password, setting)), ""
    if not certificates:
        problem = f"has no certificate{form}"
        raise TlsSettingError(problem, setting=setting, value=cafile)
    try:
        context.load_verify_locations(cadata="\n".join(certificates))
    except (ssl.SSLError, ValueError) as error:
        problem = "has a certificate that is damaged"
        raise TlsSettingError(problem, setting=setting, value=cafile) from error
    return certificates


def refuse_revoked(
    context: ssl.SSLContext, crlfile: Path, *, setting: str = "crlfile"
) -> list[str]:
    """Have peers refused whose certificates these lists name; returns the lists (CRLs), in PEM.

    Who has signed a peer's certificate needs a list here that is not out of date, else the peer is refused, too.

    Raises:
        TlsSettingError: they cannot be used.
    """
    content = _content(setting, crlfile)
    others = {*_BLOCK.findall(content)} - {_REVOKED}
    lists = _blocks(content, _REVOKED)
    if others:  # a certificate would be trusted
        problem = f"has a {min(others)}, too; lists of what is revoked stand in a file of their own"
        raise TlsSettingError(problem, setting=setting, value=crlfile)
    if not lists:
        problem = f"has no list of revoked certificates in PEM (-----BEGIN {_REVOKED}-----)"
        raise TlsSettingError(problem, setting=setting, value=crlfile)
    try:
        context.load_verify_locations(cafile=crlfile)
    except OSError as error:  # an SSLError is one
        problem = "has a list of revoked certificates that is damaged"
        raise TlsSettingError(problem, setting=setting, value=crlfile) from error
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return lists


# ------------------------------------------------------------------ what we show


def show(
    context: ssl.SSLContext, certfile: Pem, keyfile: Pem | None, password: str | None
) -> list[str]:
    """Have this certificate shown; returns it and its chain, in PEM.

    Args:
        context: of who shows it.
        certfile: PEM, with its chain behind it; or PKCS #12, which has the key, too.
        keyfile: PEM; None: the key is in ``certfile``.
        password: of the key, or of the PKCS #12 file.

    Raises:
        TlsSettingError: they cannot be used; says which and why.
    """
    chain: Pem = certfile
    if keyfile is None and not _is_text(certfile) and _bytes("certfile", certfile).startswith(_DER):
        chain, password = _opened(certfile, password, "certfile"), None
    text = _content("certfile", chain)
    certificates = certificates_in(text)
    if not certificates:
        problem = f"has no certificate{_IN_PEM}"
        raise TlsSettingError(problem, setting="certfile", value=certfile)
    place, key = (
        ("certfile", text) if keyfile is None else ("keyfile", _content("keyfile", keyfile))
    )
    shown = certfile if keyfile is None else keyfile
    if _KEY_WORDS not in key:
        problem = "has no key in PEM (-----BEGIN PRIVATE KEY-----)"
        if keyfile is None:
            problem += "; name the file that has it (keyfile), or put it into this one"
        raise TlsSettingError(problem, setting=place, value=shown)
    asked = _Password(password, shown)
    try:
        with _path_of(chain) as chain_path, _path_of(keyfile or chain) as key_path:
            context.load_cert_chain(chain_path, key_path, asked)
    except (OSError, ValueError) as error:  # ValueError: a password that is too long
        raise _of_key(error, asked, place, shown, certfile) from error
    return certificates


def shown_text(certfile: Pem | None) -> str:
    """Which certificate is shown, for people."""
    return str(certfile) if certfile is not None and can_be_shown(certfile) else "that is set"


class _Password:
    """Tells OpenSSL the password; without one it would ask at the terminal."""

    def __init__(self, password: str | None, keyfile: Pem) -> None:
        self._password = password
        self._keyfile = keyfile
        self.was_asked = False

    def __call__(self) -> str:
        self.was_asked = True
        if self._password is None:
            problem = "its key is encrypted: set the password that opens it"
            raise TlsSettingError(problem, setting="password", value=self._keyfile)
        return self._password


def _of_key(
    error: OSError | ValueError, password: _Password, place: str, keyfile: Pem, certfile: Pem
) -> TlsSettingError:
    reason = str(getattr(error, "reason", None) or "")
    if "MISMATCH" in reason:
        problem = f"its key is not that of the certificate {shown_text(certfile)}"
        return TlsSettingError(problem, setting=place, value=keyfile)
    if password.was_asked:
        problem = "the password does not open its key"
        return TlsSettingError(problem, setting="password", value=keyfile)
    problem = "its certificate or its key is damaged"
    return TlsSettingError(problem, setting=place, value=keyfile)


# ------------------------------------------------------------------ PKCS #12


def check_pkcs12(store: Pem, *, setting: str) -> None:
    """Check that it is a file that may be PKCS #12.

    Raises:
        TlsSettingError: it cannot be read, or is something else.
    """
    content = b"" if _is_text(store) else _bytes(setting, store)
    if not content.startswith(_DER):
        problem = _JKS if content.startswith(_JAVA_STORES) else _NO_STORE
        raise TlsSettingError(problem, setting=setting, value=store)


def _opened(store: Pem, password: str | None, setting: str) -> str:
    """What stands in a PKCS #12 file, as PEM; it is written nowhere.

    Raises:
        TlsSettingError: it cannot be opened.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415  (an extra)
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ModuleNotFoundError as error:
        problem = (
            "PKCS #12 is read by cryptography, which is not installed: pip install 'kvota[pkcs12]'; or write it "
            "as PEM: openssl pkcs12 -in STORE -out server.pem"
        )
        raise TlsSettingError(problem, setting=setting, value=store) from error
    check_pkcs12(store, setting=setting)
    content = _bytes(setting, store)
    try:
        found = pkcs12.load_pkcs12(content, None if password is None else password.encode())
    except (
        ValueError,
        TypeError,
        UnsupportedAlgorithm,
    ) as error:  # TypeError: a key of a kind that TLS has no use for
        if "password" not in str(error).lower():
            problem = _NO_PEM if password is None else _DAMAGED_STORE
            raise TlsSettingError(problem, setting=setting, value=store) from error
        problem = "the password does not open it"
        if password is None:
            problem = "it is encrypted: set the password that opens it"
        raise TlsSettingError(problem, setting=_PASSWORD_OF[setting], value=store) from error
    parts = [found.cert, *found.additional_certs]
    texts = [part.certificate.public_bytes(Encoding.PEM).decode() for part in parts if part]
    if found.key is not None:
        key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        texts.append(key.decode())
    return "\n".join(texts) or "\n"


# ------------------------------------------------------------------ files

_IN_PEM = " in PEM (-----BEGIN CERTIFICATE-----)"
_NO_STORE = "is not PKCS #12, and only such a store is opened by a password"
_DAMAGED_STORE = "cannot be read as PKCS #12: it is damaged, or is something else"
_JKS = (
    "is JKS, which only Java can read. Make PKCS #12 of it: "
    "keytool -importkeystore -srckeystore STORE -destkeystore store.p12 -deststoretype PKCS12"
)
_NO_PEM = (
    "is a store of Java's (JKS or PKCS #12) or DER, not PEM. Write it as PEM, e.g. "
    "certificates: keytool -list -rfc -keystore STORE > ca.pem; "
    "a key with its certificate (PKCS #12): openssl pkcs12 -in STORE -out client.pem"
)


def _is_text(value: Pem) -> bool:
    """True of PEM itself; OpenSSL writes lines of its own before the first block."""
    return isinstance(value, str) and (_IS_TEXT in value or "\n" in value)


def can_be_shown(value: Pem) -> bool:
    """Return whether it is a path; a text may have a key in it."""
    text = str(value)
    return not _is_text(text) and len(text) <= _SHOWN_MAX


def _shown(value: Pem | None) -> str:
    """The place before a problem; never what stands in it."""
    if value is None:
        return ""
    if can_be_shown(value):
        return f"{value}: "
    return "the text that is set: " if _is_text(value) else "the path that is set: "


def _bytes(setting: str, value: Pem) -> bytes:
    try:
        with Path(value).open("rb") as file:
            return file.read(_FILE_BYTES_MAX)
    except (OSError, ValueError) as error:  # ValueError: a NUL in its name
        problem = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        # The error of the system has the path in it, too.
        cause = error if can_be_shown(value) else None
        raise TlsSettingError(problem, setting=setting, value=value) from cause


def _content(setting: str, value: Pem) -> str:
    """What stands in it.

    Raises:
        TlsSettingError: it cannot be read, or is no PEM.
    """
    if _is_text(value):
        return str(value)
    content = _bytes(setting, value)
    if content.startswith((*_JAVA_STORES, *_DER)):
        raise TlsSettingError(_NO_PEM, setting=setting, value=value)
    return content.decode("utf-8", "replace")


def certificates_in(content: str) -> list[str]:
    """Return the certificates in a PEM text; people write comments between them."""
    return _blocks(content, "CERTIFICATE")


def der_of(block: str) -> bytes:
    """Return what a block of PEM says.

    Raises:
        ValueError: it is no base64.
    """
    return base64.b64decode("".join(block.splitlines()[1:-1]))


def _blocks(content: str, kind: str) -> list[str]:
    begin, end = f"-----BEGIN {kind}-----", f"-----END {kind}-----"
    found = []
    for part in content.split(begin)[1:]:
        inside, ending, _ = part.partition(end)
        if ending and inside.isascii():
            found.append(f"{begin}{inside}{end}")
    return found


@contextmanager
def _path_of(value: Pem) -> Iterator[str]:
    """A path at which OpenSSL reads it: of a text that of a pipe, so that no key gets on a disk."""
    if not _is_text(value):
        yield str(value)
        return
    reading, writing = os.pipe()

    def write() -> None:
        with suppress(OSError), os.fdopen(writing, "wb") as pipe:
            pipe.write(str(value).encode())

    # A thread: a pipe takes 64 KB at once, and whoever fails to read it leaves the rest.
    thread = threading.Thread(target=write, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:  # the system has none left
        os.close(reading)
        os.close(writing)
        raise OSError(errno.EAGAIN, str(error)) from error
    try:
        yield f"/dev/fd/{reading}"
    finally:
        os.close(reading)
        thread.join()
