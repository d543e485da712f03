"""How a connection is encrypted: whom we trust, and the certificate that we show."""

import os
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kvota.model.errors import UsageError

# A PEM file, or what stands in one.
Pem = Path | str
Version = ssl.TLSVersion

_IS_TEXT = "-----BEGIN "
_KEY_WORDS = "PRIVATE KEY-----"
# What a keystore or a truststore of Java's begins with: JKS, JCEKS, PKCS #12.
_JAVA_STORES = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce", b"\x30\x82", b"\x30\x80")
_FILE_BYTES_MAX = 16 * 2**20
# More than this is no path to show: it may be a key without the lines around it.
_SHOWN_MAX = 200


class TlsSettingError(UsageError):
    """A certificate, a key or its password cannot be used.

    Attributes:
        setting: which of ``Tls``'s.
    """

    def __init__(self, problem: str, *, setting: str, value: Pem | None = None) -> None:
        super().__init__(f"{_shown(value)}{problem}")
        self.setting = setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS 1.2 or 1.3; the broker's certificate is always checked.

    Files are read again when they have changed, so a certificate that is renewed in its place is shown by the next connection.

    Attributes:
        cafile: certificates of those who may sign a broker's, PEM; None: those that this machine trusts.
        certfile: our own certificate and its chain, PEM, where brokers ask for one; its key may be in it.
        keyfile: its key, PEM, where it is not in ``certfile``.
        password: of the key, where it is encrypted; it is in no text, as the key is not.
        check_hostname: whether the broker's certificate has to be for the host that was asked.
        version_min: the lowest version of TLS.
        version_max: the highest.

    Raises:
        UsageError: a key or a password without a certificate.
    """

    cafile: Pem | None = field(default=None, repr=False)
    certfile: Pem | None = field(default=None, repr=False)
    keyfile: Pem | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    version_min: Version = Version.TLSv1_2
    version_max: Version = Version.MAXIMUM_SUPPORTED
    _kept: "_Kept" = field(
        default_factory=lambda: _Kept(),  # noqa: PLW0108 - it is made further down
        init=False,
        repr=False,
        compare=False,
    )

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        for name in ("keyfile", "password"):
            if getattr(self, name) is not None and self.certfile is None:
                problem = "it is of a certificate, and none is set (certfile)"
                raise TlsSettingError(problem, setting=name)

    def context(self) -> ssl.SSLContext:
        """Return what Python's connections are encrypted with; reads files, which takes some milliseconds.

        Raises:
            TlsSettingError: a file cannot be used; says which and why.
        """
        return self._kept.context_of(self)

    @property
    def trusted_text(self) -> str:
        """Who is trusted, for people."""
        if self.cafile is None:
            return "the certificates that this machine trusts"
        return str(self.cafile) if _can_be_shown(self.cafile) else "the certificates that are set"

    @property
    def certificate_text(self) -> str:
        """Which certificate is shown, for people."""
        if self.certfile is None or not _can_be_shown(self.certfile):
            return "that is set"
        return str(self.certfile)


class _Kept:
    """The context that was made last, and the files' states then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context: ssl.SSLContext | None = None
        self._states: tuple[object, ...] = ()

    def context_of(self, tls: Tls) -> ssl.SSLContext:
        """Return it, made anew where a file has changed; what cannot be read leaves the one before in force."""
        with self._lock:
            states = tuple(map(_state, (tls.cafile, tls.certfile, tls.keyfile)))
            if self._context is None or states != self._states:
                try:
                    self._context = _made(tls)
                except TlsSettingError:
                    # Two files of a pair are not renewed in one moment.
                    if self._context is None:
                        raise
                else:
                    self._states = states
            return self._context


def _state(value: Pem | None) -> object:
    if value is None or _is_text(value):
        return None
    with suppress(OSError):
        found = Path(value).stat()
        return found.st_mtime_ns, found.st_size, found.st_ino
    return None


def _made(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = tls.version_min, tls.version_max
    context.check_hostname = tls.check_hostname
    # As with Java, whoever is trusted is trusted: an authority below another one, or a broker's own certificate.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _trust(context, tls.cafile)
    if tls.certfile is not None:
        _show_certificate(context, tls.certfile, tls)
    return context


# ------------------------------------------------------------------ whom we trust


def _trust(context: ssl.SSLContext, cafile: Pem | None) -> None:
    if cafile is None:
        context.load_default_certs()
        return
    certificates = _blocks(_content("cafile", cafile), "CERTIFICATE")
    if not certificates:
        problem = "has no certificate in PEM (-----BEGIN CERTIFICATE-----)"
        raise TlsSettingError(problem, setting="cafile", value=cafile)
    try:
        context.load_verify_locations(cadata="\n".join(certificates))
    except (ssl.SSLError, ValueError) as error:
        problem = "has a certificate that is damaged"
        raise TlsSettingError(problem, setting="cafile", value=cafile) from error


# ------------------------------------------------------------------ what we show


def _show_certificate(context: ssl.SSLContext, certfile: Pem, tls: Tls) -> None:
    chain = _content("certfile", certfile)
    if not _blocks(chain, "CERTIFICATE"):
        problem = "has no certificate in PEM (-----BEGIN CERTIFICATE-----)"
        raise TlsSettingError(problem, setting="certfile", value=certfile)
    place, keyfile = ("certfile", certfile) if tls.keyfile is None else ("keyfile", tls.keyfile)
    if _KEY_WORDS not in _content(place, keyfile):
        problem = "has no key in PEM (-----BEGIN PRIVATE KEY-----)"
        if tls.keyfile is None:
            problem += "; name the file that has it (keyfile), or put it into this one"
        raise TlsSettingError(problem, setting=place, value=keyfile)
    password = _Password(tls.password, keyfile)
    try:
        with _path_of(certfile) as chain_path, _path_of(keyfile) as key_path:
            context.load_cert_chain(chain_path, key_path, password)
    except (OSError, ValueError) as error:  # ValueError: a password that is too long
        raise _of_key(error, password, place, keyfile, tls) from error


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
    error: OSError | ValueError, password: _Password, place: str, keyfile: Pem, tls: Tls
) -> TlsSettingError:
    reason = str(getattr(error, "reason", None) or "")
    if "MISMATCH" in reason:
        problem = f"its key is not that of the certificate {tls.certificate_text}"
        return TlsSettingError(problem, setting=place, value=keyfile)
    if password.was_asked:
        problem = "the password does not open its key"
        return TlsSettingError(problem, setting="password", value=keyfile)
    problem = "its certificate or its key is damaged"
    return TlsSettingError(problem, setting=place, value=keyfile)


# ------------------------------------------------------------------ files


def _is_text(value: Pem) -> bool:
    """True of PEM itself; OpenSSL writes lines of its own before the first block."""
    return isinstance(value, str) and (_IS_TEXT in value or "\n" in value)


def _can_be_shown(value: Pem) -> bool:
    """True of a path; a text may have a key in it."""
    text = str(value)
    return not _is_text(text) and len(text) <= _SHOWN_MAX


def _shown(value: Pem | None) -> str:
    """The place before a problem; never what stands in it."""
    if value is None:
        return ""
    if _can_be_shown(value):
        return f"{value}: "
    return "the text that is set: " if _is_text(value) else "the path that is set: "


def _content(setting: str, value: Pem) -> str:
    """What stands in it.

    Raises:
        TlsSettingError: it cannot be read, or is no PEM.
    """
    if _is_text(value):
        return str(value)
    try:
        with Path(value).open("rb") as file:
            content = file.read(_FILE_BYTES_MAX)
    except (OSError, ValueError) as error:  # ValueError: a NUL in its name
        problem = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        # The error of the system has the path in it, too.
        cause = error if _can_be_shown(value) else None
        raise TlsSettingError(problem, setting=setting, value=value) from cause
    if content.startswith(_JAVA_STORES):
        problem = (
            "is a store of Java's (JKS or PKCS #12) or DER, not PEM. Write it as PEM, e.g. "
            "certificates: keytool -list -rfc -keystore STORE > ca.pem; "
            "a key with its certificate (PKCS #12): openssl pkcs12 -in STORE -out client.pem"
        )
        raise TlsSettingError(problem, setting=setting, value=value)
    return content.decode("utf-8", "replace")


def _blocks(content: str, kind: str) -> list[str]:
    """The parts of a PEM file of one kind; people write comments between them."""
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
    thread.start()
    try:
        yield f"/dev/fd/{reading}"
    finally:
        os.close(reading)
        thread.join()
