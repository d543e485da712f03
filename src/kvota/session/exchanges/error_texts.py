"""Answers whose error texts may name brokers: the client gets them without the addresses."""

from kvota.session.caller import Caller
from kvota.session.due import Due
from kvota.session.exchanges.exchange import Exchange, RequestHead
from kvota.wire import error_texts


class ErrorTexts(Exchange):
    """AlterConfigs and IncrementalAlterConfigs: a broker that refuses may name all its listeners."""

    __slots__ = ("_key", "_version")

    def __init__(self, key: int, version: int) -> None:
        self._key = key
        self._version = version

    @classmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:  # noqa: ARG003
        """The request goes on as it is."""
        caller.expect((head.correlation, Due.EXCHANGE, cls(head.key, head.version)))
        return frame

    def answered(self, caller: Caller, frame: bytes, now_us: int) -> bytes:  # noqa: ARG002
        """Hide the addresses.

        Raises:
            ProtocolError: it cannot be read.
        """
        brokers = caller.shared.topology.brokers.values()
        return error_texts.hide_addresses(frame, self._key, self._version, brokers)
