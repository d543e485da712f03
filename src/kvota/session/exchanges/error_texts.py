"""Answers whose error texts may name brokers: the client gets them without the addresses."""

from kvota.session.caller import Caller
from kvota.session.exchanges.exchange import RequestHead
from kvota.session.exchanges.rewriting import Rewriting
from kvota.wire import error_texts
from kvota.wire.steps import Steps
from kvota.wire.varint import Frame


class ErrorTexts(Rewriting):
    """AlterConfigs and IncrementalAlterConfigs: a broker that refuses may name all its listeners."""

    __slots__ = ()

    ANSWER_BYTES_MAX = error_texts.ANSWER_BYTES_MAX

    @classmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:
        """The request goes on as it is.

        Raises:
            ProtocolError: it is about more resources than one request may be.
        """
        error_texts.check_request(frame, head.key)
        return super().begin(caller, head, frame, now_us)

    def take_answer(self, caller: Caller, frame: Frame, now_us: int) -> Steps[Frame]:  # noqa: ARG002
        """Hide the addresses.

        Raises:
            ProtocolError: it cannot be read.
        """
        brokers = tuple(caller.shared.topology.brokers.values())
        hidden = error_texts.hide_addresses_in_steps(frame, self._key, self._version, brokers)
        return (yield from hidden)
