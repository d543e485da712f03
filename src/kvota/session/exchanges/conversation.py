"""An exchange as one generator: it says what goes upstream, or is asked outside, and gets the answer back."""

from abc import abstractmethod
from collections.abc import Generator
from typing import Any, NamedTuple

from kvota.model.errors import ProtocolError
from kvota.session.caller import Caller
from kvota.session.commands import Do
from kvota.session.due import Due
from kvota.session.exchanges.exchange import Exchange, RequestHead
from kvota.session.outside import Errand
from kvota.wire.varint import Frame

# A broker answers questions at once. One that does not for so long keeps the request, and memory for it.
QUESTION_MS_MAX = 30_000


class Sent(NamedTuple):
    """What goes upstream now: a question of the gateway's own, or the request.

    Attributes:
        correlation: of the answer.
        frame: a whole request.
        at_most_ms: so long the answer may take.
    """

    correlation: int
    frame: bytes
    at_most_ms: int = QUESTION_MS_MAX


class Onward(NamedTuple):
    """The end of a conversation that has changed nothing: the request goes up, and ``exchange`` takes its answer."""

    frame: bytes
    exchange: Exchange


# What comes back: the answer to what was sent, or the result of an errand.
Back = Any  # type: ignore[explicit-any]
# None: a step is done, and others may have their turn. In the end there is the answer for the client.
Talk = Generator[Sent | Errand | None, Back, Frame | Onward]


class Conversation(Exchange):
    """One request on its way through: a subclass says in ``_talk_over`` what is talked over.

    While it goes on nothing else of the connection is forwarded. A request with many parts is worked on
    in steps, with ``Do.STEP`` between them.
    """

    def __init__(self, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> None:
        self._head = head
        self._shared = caller.shared
        self._now_us = now_us
        self._talk: Talk = self._talk_over(caller, frame)

    @property
    def api(self) -> tuple[int, int] | None:
        """Key and version of the client's request."""
        return self._head.key, self._head.version

    @abstractmethod
    def _talk_over(self, caller: Caller, frame: bytes) -> Talk:
        """The conversation, from the whole request to the whole answer."""

    @classmethod
    def begin(cls, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> bytes:
        """Talk as far as goes without an answer.

        Raises:
            ProtocolError: the request cannot be read.
        """
        caller.wait()
        caller.whole.in_use = True
        return cls(caller, head, frame, now_us).step(caller, now_us)

    def answered(self, caller: Caller, frame: Frame, now_us: int) -> Frame:
        """Take the broker's answer to what was sent; go on.

        Raises:
            ProtocolError: the broker's answer cannot be read.
        """
        caller.wait()
        upstream, told = self._advance(caller, frame, now_us)
        if upstream:
            caller.commands.append((Do.SEND_UPSTREAM, upstream))
        return told

    def step(self, caller: Caller, now_us: int) -> bytes:
        """Do some more of what there is to do; returns what goes upstream.

        Raises:
            ProtocolError: the request, or what the broker has answered, cannot be read.
        """
        return self.told(caller, None, now_us)

    def told(self, caller: Caller, result: object, now_us: int) -> bytes:
        """Take the result of an errand, and go on; returns what goes upstream.

        Raises:
            ProtocolError: as ``step``.
        """
        upstream, told = self._advance(caller, result, now_us)
        if told:
            caller.answer_locally(self._head.correlation, told)
        return upstream

    def abandoned(self) -> None:
        """The connection ended before the answer."""
        self._talk.close()

    def _advance(self, caller: Caller, answer: object, now_us: int) -> tuple[bytes, Frame]:
        """Go on; returns what goes upstream, and what the client gets."""
        self._now_us = now_us
        caller.at_work = None
        try:
            wanted = self._talk.send(answer)
        except StopIteration as end:
            caller.whole.give_back()
            told: Frame = b""
            if isinstance(end.value, Onward):
                caller.expect((self._head.correlation, Due.EXCHANGE, end.value.exchange))
                # Before anything that is taken next.
                caller.commands.append((Do.SEND_UPSTREAM, end.value.frame))
            else:
                told = caller.told_in(end.value, self._head[:2], now_us)
            caller.go_on()
            return b"", told
        except ProtocolError:
            caller.at_work = self  # so that it is abandoned
            raise
        if isinstance(wanted, Sent):
            caller.expect((wanted.correlation, Due.EXCHANGE, self))
            caller.wait(wanted.at_most_ms)
            return wanted.frame, b""
        caller.at_work = self
        caller.commands.append((Do.STEP, None) if wanted is None else (Do.ERRAND, wanted))
        return b"", b""
