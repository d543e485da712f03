"""Says that connections were refused: of each address once a minute, however many there are."""

import logging
from dataclasses import dataclass

log = logging.getLogger(__name__)

_SAID_AGAIN_S = 60.0
# Of more addresses at a time only the sum is said: clients may have as many as they like.
_ADDRESSES_MAX = 1_000


@dataclass(slots=True)
class _Said:
    """What was said of one address, when, and how many were refused since."""

    reason: str
    at_s: float
    more: int = 0
    are: str = "were"


class Refusals:
    """The refused connections of the last minute, by address."""

    def __init__(self) -> None:
        self._of_host: dict[str, _Said] = {}
        self._others = 0

    def add(self, host: str, reason: str, now_s: float, *, is_only_said: bool = False) -> None:
        """A connection from this address was refused, on a monotonic clock.

        ``is_only_said``: it was let in (shadow mode).
        """
        said = self._of_host.get(host)
        if said is not None:
            said.more += 1
        elif len(self._of_host) < _ADDRESSES_MAX:
            verb = "would be" if is_only_said else "was"
            self._of_host[host] = _Said(reason, now_s, are="would be" if is_only_said else "were")
            log.warning("a connection from %s %s refused: %s", host, verb, reason)
        else:
            self._others += 1

    def sweep(self, now_s: float) -> None:
        """Say what has come on top of what was said a minute ago; due every other second."""
        for host, said in list(self._of_host.items()):
            if now_s - said.at_s < _SAID_AGAIN_S:
                break  # they stand in the order in which they were said
            del self._of_host[host]
            if said.more:
                log.warning(
                    "%d more connections from %s %s refused within a minute: %s",
                    said.more,
                    host,
                    said.are,
                    said.reason,
                )
        if self._others:
            log.warning("%d connections from other addresses were refused, too", self._others)
            self._others = 0
