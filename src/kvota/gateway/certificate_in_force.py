"""The certificate that a listener shows, and the next one as soon as its files have changed."""

import asyncio
import logging
import ssl
from collections.abc import Sequence
from datetime import datetime

from kvota.tls.pem import TlsSettingError
from kvota.tls.server_tls import ServerTls, make_context

log = logging.getLogger(__name__)

_LOOK_S = 2.0


class CertificateInForce:
    """Of one listener. Connections keep what they began with.

    Args:
        tls: its settings.
        setting: what they are called in the file, e.g. ``gateway.tls``.

    Attributes:
        tls: what is in force.
        context: for new connections.
        ends: when the certificate ends.

    Raises:
        TlsSettingError: a file cannot be used.
    """

    def __init__(self, tls: ServerTls, setting: str) -> None:
        self.tls, self.setting = tls, setting
        self._seen = self._refused = tls.state
        made = make_context(tls)
        self.context: ssl.SSLContext = made.context
        self.ends: datetime = made.ends

    def look(self) -> str:
        """Take other files into force; returns a line on it, empty where nothing has changed.

        Raises:
            TlsSettingError: they cannot be used, and what was in force stays; said once for each change.
        """
        state = self.tls.state
        if state in (self._seen, self._refused):
            return ""
        self._refused = state
        return self._put_in_force(self.tls, state)

    def replace(self, tls: ServerTls) -> str:
        """Go by other settings, or by the same and the files as they are now; as ``look``."""
        state = tls.state
        if tls == self.tls and state == self._seen:
            return ""
        return self._put_in_force(tls, state)

    def _put_in_force(self, tls: ServerTls, state: tuple[object, ...]) -> str:
        made = make_context(tls)
        self.tls, self.context, self.ends = tls, made.context, made.ends
        self._seen = self._refused = state
        return f"{self.setting}: shows the certificate {tls.certfile}, which ends on {made.ends:%Y-%m-%d}"


async def watch_certificates(certificates: Sequence[CertificateInForce]) -> None:
    """Look at the files every other second, until cancelled."""
    while certificates:
        await asyncio.sleep(_LOOK_S)
        for one in certificates:
            try:
                line = await asyncio.to_thread(one.look)
            except TlsSettingError as error:
                # The two files of a pair are not renewed in one moment, so it may be right soon.
                words = "%s.%s: the certificate in force stays: %s"
                log.error(words, one.setting, error.setting, error)  # noqa: TRY400  (its text says all)
            else:
                if line:
                    log.info("%s", line)
