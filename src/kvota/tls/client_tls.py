"""How a connection to a broker is encrypted: whom we trust, and the certificate that we show."""

import logging
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from kvota.tls.made import Made
from kvota.tls.pem import Pem, TlsSettingError, can_be_shown, shown_text, state_of
from kvota.tls.secret import Password, file_of, read_password

log = logging.getLogger(__name__)

Version = ssl.TLSVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS 1.2 or 1.3; the broker's certificate is always checked.

    Files are read again when they have changed, so a certificate that is renewed in its place is shown by the next connection.

    Attributes:
        cafile: certificates of those who may sign a broker's, PEM; None: those that this machine trusts.
        cafile_password: with it ``cafile`` is PKCS #12, which it opens.
        certfile: our own certificate and its chain, PEM, where brokers ask for one; its key may be in it. Or PKCS #12.
        keyfile: its key, PEM, where it is not in ``certfile``.
        password: of the key, or the PKCS #12 file, where it is encrypted; itself, or where it stands. It is in no text, as the key is not.
        crlfile: which of the brokers' certificates are revoked, PEM; None: no list is looked at.
        check_hostname: whether the broker's certificate has to be for the host that was asked.
        version_min: the lowest version of TLS.
        version_max: the highest.

    Raises:
        UsageError: a key or a password without a certificate.
    """

    cafile: Pem | None = field(default=None, repr=False)
    cafile_password: Password | None = field(default=None, repr=False)
    certfile: Pem | None = field(default=None, repr=False)
    keyfile: Pem | None = field(default=None, repr=False)
    password: Password | None = field(default=None, repr=False)
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
        if self.cafile_password is not None and self.cafile is None:
            problem = "it opens a store, and none is set (cafile)"
            raise TlsSettingError(problem, setting="cafile_password")

    def context(self) -> ssl.SSLContext:
        """Return what Python's connections are encrypted with; looks at the files, which takes some milliseconds where they have changed.

        Raises:
            TlsSettingError: a file cannot be used; says which and why. Where it could be before, that is one line in the log, and
                what it was stays in force.
        """
        try:
            line = self.look()
        except TlsSettingError as error:
            if self._kept.made is None:
                raise
            log.error("TLS to brokers: %s: what was in force stays: %s", error.setting, error)  # noqa: TRY400  (its text says all)
        else:
            if line:
                log.info("TLS to brokers: %s", line)
        return self.context_in_force()

    def context_in_force(self) -> ssl.SSLContext:
        """Return it as the last look has left it, for who may not wait for files; only the first time there is such a look."""
        if self._kept.made is None:
            self.look()
        assert self._kept.made is not None
        return self._kept.made.context

    def look(self) -> str:
        """Take other files into force; returns a line on it, empty where nothing has changed.

        Raises:
            TlsSettingError: they cannot be used, and what was in force stays; raised once for each change.
        """
        return self._kept.look(self)

    @property
    def ends(self) -> Mapping[str, datetime]:
        """When the first certificate, or list of revoked ones, ends that a setting names, by setting; as far as they have been read."""
        return {} if self._kept.made is None else self._kept.made.ends

    @property
    def state(self) -> tuple[object, ...]:
        """What is another one when a file has changed."""
        secrets = file_of(self.cafile_password), file_of(self.password)
        files = self.cafile, self.certfile, self.keyfile, self.crlfile, *secrets
        return tuple(map(state_of, files))

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
    """What was made last, and the files' states then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.made: Made | None = None
        self._seen: tuple[object, ...] = ()
        self._refused: tuple[object, ...] = ()

    def look(self, tls: Tls) -> str:
        with self._lock:
            state = tls.state
            if self.made is not None and state == self._seen:
                return ""
            # Tried again, and not said again: it may not have been the file's fault (no descriptor was left, say).
            is_said = self.made is not None and state == self._refused
            self._refused = state
            try:
                made = _made(tls)
            except TlsSettingError:
                if is_said:
                    return ""
                raise
            is_first, self.made, self._seen = self.made is None, made, state
            return "" if is_first else _what_is_in_force(tls, made)


def _what_is_in_force(tls: Tls, made: Made) -> str:
    trusted = f"trusts {tls.trusted_text}"
    if tls.certfile is None:
        return trusted
    return f"{trusted}, shows the certificate {tls.certificate_text}{made.end_text('certfile')}"


def _made(tls: Tls) -> Made:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = tls.version_min, tls.version_max
    context.check_hostname = tls.check_hostname
    made = Made(context)
    if tls.cafile is None:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_default_certs()
    else:
        made.trust(tls.cafile, read_password(tls.cafile_password))
    if tls.crlfile is not None:
        made.refuse_revoked(tls.crlfile)
    if tls.certfile is not None:
        made.show(tls.certfile, tls.keyfile, read_password(tls.password))
    return made
