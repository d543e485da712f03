"""How a connection to a broker is encrypted: whom we trust, and the certificate that we show."""

import ssl
import threading
from dataclasses import dataclass, field
from pathlib import Path

from kvota.tls.pem import (
    Pem,
    TlsSettingError,
    can_be_shown,
    refuse_revoked,
    show,
    shown_text,
    state_of,
    trust,
)

Version = ssl.TLSVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS 1.2 or 1.3; the broker's certificate is always checked.

    Files are read again when they have changed, so a certificate that is renewed in its place is shown by the next connection.

    Attributes:
        cafile: certificates of those who may sign a broker's, PEM; None: those that this machine trusts.
        certfile: our own certificate and its chain, PEM, where brokers ask for one; its key may be in it.
        keyfile: its key, PEM, where it is not in ``certfile``.
        password: of the key, where it is encrypted; it is in no text, as the key is not.
        crlfile: which of the brokers' certificates are revoked, PEM; None: no list is looked at.
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
    crlfile: Path | None = field(default=None, repr=False)
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
        return str(self.cafile) if can_be_shown(self.cafile) else "the certificates that are set"

    @property
    def certificate_text(self) -> str:
        """Which certificate is shown, for people."""
        return shown_text(self.certfile)


class _Kept:
    """The context that was made last, and the files' states then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._context: ssl.SSLContext | None = None
        self._states: tuple[object, ...] = ()

    def context_of(self, tls: Tls) -> ssl.SSLContext:
        """Return it, made anew where a file has changed; what cannot be read leaves the one before in force."""
        with self._lock:
            states = tuple(map(state_of, (tls.cafile, tls.certfile, tls.keyfile, tls.crlfile)))
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


def _made(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = tls.version_min, tls.version_max
    context.check_hostname = tls.check_hostname
    if tls.cafile is None:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_default_certs()
    else:
        trust(context, tls.cafile)
    if tls.crlfile is not None:
        refuse_revoked(context, tls.crlfile)
    if tls.certfile is not None:
        show(context, tls.certfile, tls.keyfile, tls.password)
    return context
