"""What the log says of connections: each kind of line stands here once, and repeats of it are counted.

A client that closes is no news (debug). What comes again and again (wrong passwords, no place, bytes that are
no Kafka) is said once a minute for each user, address and reason. Each kind has a table of its own, and each address (of
IPv6: each /64) its part of it: nobody at one can hide what happens to others behind lines of his own.
"""

import logging
from collections.abc import Callable

from kvota.gateway.own_addresses import network_of
from kvota.gateway.repeats import Repeats
from kvota.model.address import Address, address_text
from kvota.model.plain_text import on_one_line, shortened
from kvota.session.budget import User
from kvota.session.principal import ANONYMOUS, LoginRefusal

log = logging.getLogger(__name__)

_SHOWN_MAX = 100
_NEEDS_LOGIN = (
    ". Nobody had logged in: a broker closes so where its listener is a SASL one, "
    "or has TLS, which the gateway speaks to brokers where upstream.tls says so"
)
# Reasons that differ in their numbers only are one.
_WITHOUT_DIGITS = str.maketrans("", "", "0123456789")


class Journal:
    """Writes the lines.

    Args:
        now_s: tells the time on a monotonic clock.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._refused = Repeats("refused connections")
        self._gave_way = Repeats("connections that gave way")
        self._closed = Repeats("closed connections")
        self._warned = Repeats("what was noticed on connections")
        self._logins = Repeats("refused logins")
        self._brokers = Repeats("connections that brokers have closed")
        self._all = (
            self._refused,
            self._gave_way,
            self._closed,
            self._warned,
            self._logins,
            self._brokers,
        )

    def refused(self, host: str, reason: str, *, is_only_said: bool = False) -> None:
        """A new connection was not taken in; ``is_only_said``: it was (shadow mode)."""
        was, were = ("would be", "would be") if is_only_said else ("was", "were")
        self._refused.say(
            f"a connection from {host} {was} refused: {reason}",
            about=host,
            whose=network_of(host),
            again=f"more connections from {host} {were} refused within a minute: {reason}",
            now_s=self._now_s(),
        )

    def gave_way(self, holder: User | None, host: str, *, of: int, places: int) -> None:
        """One of so many connections was closed, or told to leave, for a newcomer; all places are taken.

        Args:
            holder: whose it is, None: nobody's yet.
            host: the address it has come from.
            of: how many there are of this holder; of nobody's: from this address.
            places: how many there are.
        """
        whose = f"from {host}"
        if holder is None:
            whose += " that have not logged in or asked anything yet"
        elif holder[0] != ANONYMOUS:
            whose = f"of user {shown(holder[0])}"
        self._gave_way.say(
            f"all {places} connections are in use (limits.connections_max): of the {of} {whose} one has "
            "given way to a newcomer",
            about=whose,
            whose=network_of(host),
            again=f"more connections {whose} have given way to newcomers within a minute",
            now_s=self._now_s(),
        )

    def closed(self, number: int, peer: str, reason: str, level: int = logging.WARNING) -> None:
        """The gateway has closed a connection."""
        host = _host_of(peer)
        self._closed.say(
            f"connection {number} from {peer} closed: {reason}",
            about=(host, reason.translate(_WITHOUT_DIGITS)),
            whose=network_of(host),
            again=f"more connections from {host} were closed within a minute for such a reason: {reason}",
            now_s=self._now_s(),
            level=level,
        )

    def warn(self, number: int, peer: str, warning: object) -> None:
        """Something that has been noticed on a connection; a login that the broker has refused."""
        host = _host_of(peer)
        if isinstance(warning, LoginRefusal):
            self._login_refused(host, warning)
            return
        self._warned.say(
            f"connection {number} from {peer}: {warning}",
            about=(host, warning),
            whose=network_of(host),
            again=f"more connections from {host} within a minute: {warning}",
            now_s=self._now_s(),
        )

    def _login_refused(self, host: str, refusal: LoginRefusal) -> None:
        who = "" if refusal.user is None else f" as {shown(refusal.user)}"
        how = f" with {shown(refusal.mechanism)}" if refusal.mechanism else ""
        self._logins.say(
            f"a login{who}{how} from {host} was refused: {printable(refusal.why)}",
            about=(refusal.user, host),
            whose=network_of(host),
            again=f"more logins{who} from {host} were refused within a minute",
            now_s=self._now_s(),
        )

    def broker_closed(
        self, broker: Address, number: int, peer: str, *, due: int, cause: str, needs_login: bool
    ) -> None:
        """The broker has closed a connection that its client had not closed; ``due`` answers are missing."""
        host, where = _host_of(peer), address_text(*broker)
        if due:
            rest = f"{answers(due)} due, the client will send {'that request' if due == 1 else 'those requests'} again"
        else:
            rest = "no answer was due: it was idle, or a request that waits for none was refused"
        self._brokers.say(
            f"broker {where} closed connection {number} from {peer}{cause}; {rest}"
            f"{_NEEDS_LOGIN if due and needs_login else ''}",
            about=(broker, host, due > 0),
            whose=network_of(host),
            again=f"more connections from {host} were closed by broker {where} within a minute",
            now_s=self._now_s(),
            level=logging.WARNING if due else logging.INFO,
        )

    def sweep(self) -> None:
        """Say how often what was said has come again; due every other second."""
        for repeats in self._all:
            repeats.sweep(self._now_s())

    def finish(self) -> None:
        """Say what has not been said yet."""
        for repeats in self._all:
            repeats.finish()


def answers(count: int) -> str:
    """Say how many answers, with the verb behind it."""
    return "1 answer was" if count == 1 else f"{count} answers were"


def shown(name: str) -> str:
    """Quote a name that a client has sent: on one line, and cut where it is long."""
    return f'"{printable(name)}"'


def printable(text: str) -> str:
    """A peer's text on one line of at most 100 characters, without what a terminal would obey."""
    return on_one_line(shortened(text, _SHOWN_MAX))


def _host_of(peer: str) -> str:
    return peer.rpartition(":")[0] or peer
