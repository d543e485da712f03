"""Answers about the cluster, whose refusals may name the broker's connections: the client gets them without."""

from kvota.session.caller import Caller
from kvota.session.exchanges.rewriting import Rewriting
from kvota.wire import refusals
from kvota.wire.steps import Steps
from kvota.wire.varint import Frame


class Refusals(Rewriting):
    """Those of ``wire.refusals``; they are read whole, and all else in them passes."""

    __slots__ = ()

    def take_answer(self, caller: Caller, frame: Frame, now_us: int) -> Steps[Frame]:  # noqa: ARG002
        """Hide the connections."""
        return (yield from refusals.hide_connections_in_steps(frame))
