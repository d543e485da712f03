"""The certificate that a listener shows, and the next one as soon as its files have changed."""

import asyncio
import logging
import ssl
from collections.abc import Mapping
from typing import Protocol

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

    Raises:
        TlsSettingError: a file cannot be used.
    """

    def __init__(self, tls: ServerTls, setting: str) -> None:
        self.tls, self.setting = tls, setting
        self._seen = self._refused = tls.state
        self.context: ssl.SSLContext = make_context(tls).context

    def look(self) -> str:
        """Take other files into force; returns a line on it, empty where nothing has changed.

        Raises:
            TlsSettingError: they cannot be used, and what was in force stays; said once for each change.
        """
        state = self.tls.state
        if state == self._seen:
            return ""
        # Tried again, and not said again: it may not have been the file's fault (no descriptor was left, say).
        is_said, self._refused = state == self._refused, state
        try:
            return self._put_in_force(self.tls, state)
        except TlsSettingError:
            if is_said:
                return ""
            raise

    def replace(self, tls: ServerTls) -> str:
        """Go by other settings, or by the same and the files as they are now; as ``look``."""
        state = tls.state
        if tls == self.tls and state == self._seen:
            return ""
        return self._put_in_force(tls, state)

    def _put_in_force(self, tls: ServerTls, state: tuple[object, ...]) -> str:
        made = make_context(tls)
        self.tls, self.context = tls, made.context
        self._seen = self._refused = state
        return f"shows the certificate {tls.certfile}{made.end_text('certfile')}"


class Renewable(Protocol):
    """What has files of certificates."""

    def look(self) -> str:
        """Take other files into force; raises and returns as ``CertificateInForce.look``."""


async def watch_certificates(watched: Mapping[str, Renewable]) -> None:
    """Look at the files every other second, until cancelled.

    Args:
        watched: by what their settings are called in the file.
    """
    while watched:
        await asyncio.sleep(_LOOK_S)
        for setting, one in watched.items():
            try:
                line = await asyncio.to_thread(one.look)
            except TlsSettingError as error:
                # The two files of a pair are not renewed in one moment, so it may be right soon.
                words = "%s.%s: the certificate in force stays: %s"
                log.error(words, setting, error.setting, error)  # noqa: TRY400  (its text says all)
            except Exception:  # a file must not end the gateway
                log.exception("%s: the certificate in force stays", setting)
            else:
                if line:
                    log.info("%s: %s", setting, line)
