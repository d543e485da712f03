"""Requests that go on as they are, and whose answers are read whole and rewritten."""

from abc import abstractmethod

from kvota.session.caller import Caller
from kvota.session.due import Due
from kvota.session.exchanges.exchange import Exchange, RequestHead
from kvota.wire.steps import Steps, at_once
from kvota.wire.varint import Frame


class Rewriting(Exchange):
    """Remembers which answer is due; a subclass says what becomes of it."""

    __slots__ = ("_key", "_version")

    def __init__(self, key: int, version: int) -> None:
        self._key = key
        self._version = version

    @property
    def api(self) -> tuple[int, int] | None:
        """Key and version of the client's request."""
        return self._key, self._version

    @classmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:  # noqa: ARG003
        """The request goes on as it is."""
        caller.expect((head.correlation, Due.EXCHANGE, cls(head.key, head.version)))
        return frame

    def answered(self, caller: Caller, frame: Frame, now_us: int) -> Frame:
        """Rewrite it at once.

        Raises:
            ProtocolError: as ``take_answer``.
        """
        return at_once(self.take_answer(caller, frame, now_us))

    @abstractmethod
    def take_answer(self, caller: Caller, frame: Frame, now_us: int) -> Steps[Frame]:
        """Rewrite it a little at a time."""
