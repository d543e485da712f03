"""One question of a client that is read whole, and what becomes of its answer."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from kvota.session.caller import Caller
from kvota.wire.steps import Steps
from kvota.wire.varint import Frame

# Answers that must be read whole: Metadata of 1.5 million partitions, asked for by the gateway itself.
WHOLE_ANSWER_BYTES_MAX = 64 * 2**20


class RequestHead(NamedTuple):
    """What stands before a request's body."""

    key: int
    version: int
    correlation: int


class Exchange(ABC):
    """A conversation that has begun: it stands in ``Caller.due`` until its answer is here.

    An exchange may wait (``Caller.wait``), ask questions of its own on the caller's connection
    (``Do.SEND_UPSTREAM`` and another entry in ``Caller.due``), and answer without the broker.

    Attributes:
        ANSWER_BYTES_MAX: a larger answer ends the connection.
    """

    __slots__ = ()

    ANSWER_BYTES_MAX: ClassVar[int] = WHOLE_ANSWER_BYTES_MAX

    @property
    def api(self) -> tuple[int, int] | None:
        """Key and version of the client's request; None: its answer has no throttle time to be raised."""
        return None

    @classmethod
    @abstractmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:
        """Take a whole request; returns what goes upstream for it now.

        Raises:
            ProtocolError: it is not what its head says.
        """

    @abstractmethod
    def answered(self, caller: Caller, frame: Frame, now_us: int) -> Frame:
        """Take the answer; returns what the client gets instead of it.

        Raises:
            ProtocolError: it cannot be read, or must not be forwarded; nothing of it is.
        """

    def take_answer(self, caller: Caller, frame: Frame, now_us: int) -> Steps[Frame]:
        """Take the answer as ``answered`` does, a large one a little at a time.

        Raises:
            ProtocolError: as ``answered``.
        """
        yield from ()
        return self.answered(caller, frame, now_us)

    @property
    def has_front(self) -> bool:
        """True where of a large answer only the beginning matters: ``front`` takes it."""
        return False

    def front(self, caller: Caller, part: Frame) -> tuple[bytes, int] | None:  # noqa: ARG002
        """Take the beginning of an answer that is too large to be kept.

        Returns:
            What the client gets instead of it, and how many bytes it replaces: what stands behind them goes
            on as it is. None: more of it is needed.

        Raises:
            ProtocolError: as ``answered``.
        """
        return None

    def abandoned(self) -> None:  # noqa: B027  (most have nothing to record)
        """The connection has ended before the answer: record what was charged."""
