"""A Produce is charged by its announced size; what of it never comes is given back at the end.

Its row is as it was, and behind it stands another one with a negative value, as for mutations that a
broker has refused. ``kvota.engine.receipt`` says how much of what is missing can be given back.
"""

from kvota.engine import Receipt
from kvota.model.decision_sink import ADMITTED, NO_ANSWER
from kvota.session.caller import Caller
from kvota.session.route import Kind, Route

_CHARGED = frozenset({Kind.PRODUCE, Kind.CHARGED_PRODUCE})


class Unfinished:
    """The charge of the last request whose end had not come with its head.

    Attributes:
        route: of that request.
        begun_us: when its head went on.
    """

    __slots__ = ("_caller", "_receipt", "begun_us", "route")

    route: Route

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._receipt: Receipt | None = None
        self.begun_us = 0

    def begin(self, now_us: int, *, is_swallowed: bool) -> None:
        """The request has gone on (or nowhere), and more of it is to come."""
        # In shadow mode it may have gone on uncharged, or stand in one chunk with one that has.
        is_uncharged = is_swallowed or self._caller.uncharged_us == now_us
        self._receipt = None
        self.begun_us = now_us
        if self.route.kind in _CHARGED and not is_uncharged:
            self._receipt = Receipt(self.route.lane, now_us // 1000)

    def give_back(self, missing_bytes: int, now_us: int) -> None:
        """The rest never comes; the second time nothing is given back."""
        receipt, self._receipt = self._receipt, None
        if receipt is None or not missing_bytes:
            return
        shared, route = self._caller.shared, self.route
        given_bytes = shared.engine.give_back(receipt, missing_bytes, now_us // 1000)
        if not given_bytes:
            return
        if route.is_outdated:
            route.use_last()  # the row shows what is in force now
        seq = shared.sink.next_seq()
        shared.sink.append(route.memo, seq, now_us, -given_bytes, 0, NO_ANSWER, ADMITTED)
