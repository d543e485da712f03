"""One question of a client that is read whole, and what becomes of its answer."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from kvota.session.caller import Caller


class RequestHead(NamedTuple):
    """What stands before a request's body."""

    key: int
    version: int
    correlation: int


class Exchange(ABC):
    """A conversation that has begun: it stands in ``Caller.due`` until its answer is here.

    An exchange may wait (``Caller.wait``), ask questions of its own on the caller's connection
    (``Do.SEND_UPSTREAM`` and another entry in ``Caller.due``), and answer without the broker.
    """

    __slots__ = ()

    @classmethod
    @abstractmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:
        """Take a whole request; returns what goes upstream for it now.

        Raises:
            ProtocolError: it is not what its head says.
        """

    @abstractmethod
    def answered(self, caller: Caller, frame: bytes, now_us: int) -> bytes:
        """Take the answer; returns what the client gets instead of it.

        Raises:
            ProtocolError: it cannot be read, or must not be forwarded; nothing of it is.
        """

    def abandoned(self) -> None:  # noqa: B027  (most have nothing to record)
        """The connection has ended before the answer: record what was charged."""
