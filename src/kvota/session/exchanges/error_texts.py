"""Answers whose error texts may name brokers: the client gets them without the addresses."""

from kvota.session.caller import Caller
from kvota.session.exchanges.rewriting import Rewriting
from kvota.wire import error_texts


class ErrorTexts(Rewriting):
    """AlterConfigs and IncrementalAlterConfigs: a broker that refuses may name all its listeners."""

    __slots__ = ()

    def answered(self, caller: Caller, frame: bytes, now_us: int) -> bytes:  # noqa: ARG002
        """Hide the addresses.

        Raises:
            ProtocolError: it cannot be read.
        """
        brokers = caller.shared.topology.brokers.values()
        return error_texts.hide_addresses(frame, self._key, self._version, brokers)
