"""A conversation about topics that are charged one by one: what is owed when it ends before its answer."""

from abc import abstractmethod
from collections.abc import Set

from kvota.session.caller import Caller
from kvota.session.exchanges.conversation import Conversation
from kvota.session.exchanges.exchange import RequestHead
from kvota.session.exchanges.mutation_charges import MutationCharges, Outcome
from kvota.session.exchanges.mutation_counts import MutationCounts


class ChargedTalk(Conversation):
    """Keeps the counts, the charges and the outcomes of its topics; a subclass says which of them do not go up."""

    def __init__(self, caller: Caller, head: RequestHead, frame: bytes, now_us: int) -> None:
        super().__init__(caller, head, frame, now_us)
        self._counts = MutationCounts(caller.shared)
        self._charges: MutationCharges | None = None
        self._has_gone_up = False
        self._outcomes: dict[int, Outcome] = {}  # told of, and not settled yet

    @property
    @abstractmethod
    def _left_out(self) -> Set[int]:
        """The places of the topics that are not asked for upstream, beside those without tokens."""

    def abandoned(self) -> None:
        """The connection ended before the answer: what was charged stays charged, and what has gone up is."""
        super().abandoned()
        if self._charges is None:
            return
        owed = self._leave(self._charges) + self._charges.unsettled(self._outcomes)
        self._charges.abandon()
        self._charges.owe(owed, self._now_us)

    def _leave(self, charges: MutationCharges) -> int:
        """Of topics that have no answer, or none that says what has become of them: what they may cost more."""
        now_ms = self._now_us // 1000
        if not self._has_gone_up:
            self._counts.withdraw(now_ms)
            return 0
        return self._counts.leave(self._left_out | charges.rejected, charges.all_charged(), now_ms)
