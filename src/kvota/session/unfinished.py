"""A Produce whose end is not here yet: when it is charged, and what becomes of the charge where it breaks off.

A debt bucket is charged at the head, by the size that is announced. What of it never comes is given back at
the end: its row is as it was, and behind it stands another one with a negative value, as for mutations that
a broker has refused. ``kvota.engine.receipt`` says how much of what is missing can be given back.
Everything else is charged when the last byte is here, as by a broker.
"""

from kvota.engine import Receipt
from kvota.model.decision_sink import ADMITTED, NO_ANSWER
from kvota.session.caller import Caller
from kvota.session.charged_produce import AdmittedProduce, append_rows, charge_bytes

# What time pays so soon keeps nobody waiting.
_PAID_SOON_S = 1.0


class Unfinished:
    """The Produce of one connection of which a part has gone on, while there is one."""

    __slots__ = ("_caller", "_is_charged", "_produce", "_receipt")

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._produce: AdmittedProduce | None = None
        self._is_charged = False  # or goes on uncharged; else it is charged at its end
        self._receipt: Receipt | None = None  # of what was charged at its head

    @property
    def is_in_the_way(self) -> bool:
        """True while others wait for their turn on the counter that was charged before all is here."""
        return self._receipt is not None and bool(self._receipt.lane.line)

    @property
    def is_expected(self) -> bool:
        """True where the last answer that is due is to the running request, of whatever API."""
        return self._produce is None or (self._is_charged and self._produce.awaits_answer)

    def admit(self, produce: AdmittedProduce, now_us: int, *, is_here: bool) -> None:
        """Charge what goes on now, of which all is here, or will be."""
        if is_here:
            charge_bytes(self._caller, produce, now_us)
            return
        lane = produce.route.lane
        self._produce = produce
        self._is_charged = lane.is_charged_at_the_head
        if self._is_charged and charge_bytes(self._caller, produce, now_us):
            self._receipt = Receipt(lane, now_us // 1000)
            self._caller.shared.early_charges.add(self)

    def keeps_line_waiting(self, missing_bytes: int) -> float:
        """The limit of the counter whose line waits because of what is missing, in bytes/s; 0: none does."""
        lane = None if self._receipt is None else self._receipt.lane
        if lane is None or not lane.line or lane.limit is None:
            return 0.0
        return lane.limit if missing_bytes > lane.limit * _PAID_SOON_S else 0.0

    def end(self, now_us: int) -> None:
        """The last byte is here."""
        if self._receipt is not None:
            self._receipt = None
            self._caller.shared.early_charges.remove(self)
        produce, self._produce = self._produce, None
        if produce is None or self._is_charged:
            return
        if produce.route.is_outdated:
            self._caller.look_up_now(produce.route, produce.route.client_id or b"", now_us)
        charge_bytes(self._caller, produce, now_us)

    def close(self) -> None:
        """It breaks off: its further quotas were charged all the same."""
        if self._produce is not None and not self._is_charged:
            append_rows(self._caller, self._produce.further, NO_ANSWER)
            self._produce = None

    def give_back(self, missing_bytes: int, now_us: int) -> None:
        """The rest never comes; the second time nothing is given back."""
        receipt, self._receipt = self._receipt, None
        if receipt is None or self._produce is None:
            return
        shared, route = self._caller.shared, self._produce.route
        shared.early_charges.remove(self)
        given_bytes = shared.engine.give_back(receipt, missing_bytes, now_us // 1000)
        if not given_bytes:
            return
        if route.is_outdated:
            route.use_last()  # the row shows what is in force now
        seq = shared.sink.next_seq()
        shared.sink.append(route.memo, seq, now_us, -given_bytes, 0, NO_ANSWER, ADMITTED)
