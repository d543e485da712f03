"""One login of a connection of ours, and how long it lasts."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kvota.client.broker_error import BrokerError
from kvota.client.messages import Answer, Fields
from kvota.client.scram import Scram
from kvota.client.security import OAUTHBEARER, Security
from kvota.model.address import Address, address_text
from kvota.model.plain_text import on_one_line, shortened
from kvota.wire.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kvota.wire.error_code import ErrorCode

# Says the client after a document that tells why its token is refused (RFC 7628); then the broker refuses in so many words.
_UNDERSTOOD = b"\x01"
_SHOWN_MAX = 200

# Asks the broker: the API's key, what the request holds, its version (None: the highest).
Ask = Callable[[int, Fields, int | None], Awaitable[Answer]]


class Login:
    """Logs in by the messages that ``ask`` sends."""

    def __init__(self, security: Security, address: Address, ask: Ask) -> None:
        self._security = security
        self._at = address_text(*address)
        self._ask = ask

    async def run(self) -> int:
        """Log in; returns for how many milliseconds the broker lets us stay so, 0: for ever (KIP-368).

        Raises:
            BrokerError: the login is refused.
            UsageError: the token cannot be had, or is none.
            ProtocolError: the broker does not know the password either.
        """
        security = self._security
        content: Fields = {"mechanism": security.mechanism}
        answer = await self._ask(SASL_HANDSHAKE, content, 1)
        code = int(answer.error_code)
        if code:
            offered = ", ".join(answer.mechanisms)
            what = f"{self._at}: login by {security.mechanism} (it takes {offered or 'none'})"
            raise BrokerError(what, code)
        if security.mechanism == "PLAIN":
            last = await self._authenticate(f"\0{security.username}\0{security.password}".encode())
        elif security.mechanism == OAUTHBEARER:
            last = await self._show_token()
        else:
            assert security.mechanism is not None
            scram = Scram(
                security.mechanism,
                security.username,
                security.password,
                is_delegation_token=security.is_delegation_token,
            )
            challenge = await self._authenticate(scram.first())
            last = await self._authenticate(scram.final(bytes(challenge.auth_bytes)))
            scram.check(bytes(last.auth_bytes))
        lifetime = getattr(last, "session_lifetime", None)
        return 0 if lifetime is None else round(lifetime.total_seconds() * 1000)

    async def _show_token(self) -> Answer:
        # A token may come from a file, or from somebody who is asked for it.
        token = await asyncio.to_thread(self._security.fresh_token)
        last = await self._authenticate(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
        if not last.auth_bytes:
            return last
        await self._authenticate(_UNDERSTOOD)
        said = bytes(last.auth_bytes).decode(errors="replace")
        raise self._refused(ErrorCode.SASL_AUTHENTICATION_FAILED, said)

    async def _authenticate(self, token: bytes) -> Answer:
        answer: Any = await self._ask(SASL_AUTHENTICATE, {"auth_bytes": token}, None)
        code = int(answer.error_code)
        if code:
            raise self._refused(code, answer.error_message)
        return answer

    def _refused(self, code: int, said: str | None) -> BrokerError:
        who = f' of "{self._security.username}"' if self._security.username else ""
        words = None if said is None else on_one_line(shortened(said, _SHOWN_MAX))
        return BrokerError(f"{self._at}: login{who} by {self._security.mechanism}", code, words)
