"""What connections are encrypted with, as it was made of files, and until when these are good."""

import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from kvota.tls import pem
from kvota.tls.certificate import end_of_revocation_list, read_certificate
from kvota.tls.pem import Pem


@dataclass(frozen=True, slots=True)
class Made:
    """A context, which its methods fill.

    Attributes:
        context: OpenSSL's.
        ends: by setting (``certfile``, ``cafile``, …), when the first certificate, or list of revoked ones, that it names ends.
    """

    context: ssl.SSLContext
    ends: dict[str, datetime] = field(default_factory=dict)

    def show(self, certfile: Pem, keyfile: Pem | None, password: str | None) -> None:
        """Have this certificate shown; as ``pem.show``."""
        shown = pem.show(self.context, certfile, keyfile, password)
        self._note("certfile", shown, _end_of_certificate)

    def trust(self, cafile: Pem, password: str | None = None, *, setting: str = "cafile") -> None:
        """Have peers trusted by these; as ``pem.trust``."""
        trusted = pem.trust(self.context, cafile, password, setting=setting)
        self._note(setting, trusted, _end_of_certificate)

    def refuse_revoked(self, crlfile: Path, *, setting: str = "crlfile") -> None:
        """Have peers refused whom these lists name; as ``pem.refuse_revoked``."""
        lists = pem.refuse_revoked(self.context, crlfile, setting=setting)
        self._note(setting, lists, end_of_revocation_list)

    def end_text(self, setting: str) -> str:
        """Words on when it ends, to go behind its name; none where that cannot be told."""
        end = self.ends.get(setting)
        return "" if end is None else f", which ends on {end:%Y-%m-%d}"

    def _note(
        self, setting: str, blocks: Sequence[str], end_of: Callable[[bytes], datetime | None]
    ) -> None:
        for block in blocks:
            with suppress(ValueError):  # OpenSSL takes some that cannot be read here
                end = end_of(pem.der_of(block))
                if end is not None:
                    self.ends[setting] = min(end, self.ends.get(setting, end))


def _end_of_certificate(der: bytes) -> datetime:
    return read_certificate(der).ends
