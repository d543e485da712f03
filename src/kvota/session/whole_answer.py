"""Memory for an answer that is kept until it is whole, and until its client has taken it: all connections share it."""

from collections.abc import Callable

from kvota.session.budget import BudgetShare
from kvota.session.caller import Caller
from kvota.session.commands import Do

# Larger ones than this share a budget; others are here with one read.
FREE_ANSWER_BYTES = 262_144
# What a client has not taken counts above this: so much of an answer that goes on while it arrives may
# be there, too, of its last read.
_FREE_UNREAD_BYTES = 2 * FREE_ANSWER_BYTES


class WholeAnswer:
    """What one connection takes of it, for one answer at a time.

    Attributes:
        waits: others fill the memory; the broker is not read meanwhile.
    """

    __slots__ = ("_caller", "_is_unread", "_need", "_share", "waits")

    def __init__(self, caller: Caller, wake: Callable[[], None]) -> None:
        self._caller = caller
        self._share = BudgetShare(caller.shared.whole_answers, wake)
        self._need = 0
        self._is_unread = False
        self.waits = False

    def take(self, need: int) -> None:
        """An answer of so many bytes arrives: without room for it the broker is read no further."""
        self._need = need
        self._is_unread = False
        if not self._share.take(need, self._caller.user) and not self.waits:
            self.waits = True
            self._caller.commands.append((Do.READ_UPSTREAM, False))

    @property
    def keeps_others_waiting(self) -> bool:
        """True while it takes memory that others wait for."""
        return self._share.keeps_others_waiting

    def leave(self) -> None:
        """It has gone on (what had been read before the broker was left may have been all of it)."""
        if not self._is_unread:
            self._share.leave()
        self._read_on()

    def stay_unread(self, unread_bytes: int) -> None:
        """Its client reads slowly: what waits for that takes memory as what arrives does."""
        if unread_bytes > _FREE_UNREAD_BYTES and not self._share.taken_bytes and not self.waits:
            self._is_unread = True
            self._share.hold(unread_bytes, self._caller.user)

    def has_been_read(self) -> None:
        """Its client has taken it."""
        if self._is_unread:
            self._is_unread = False
            self._share.give_back()

    def woken(self) -> None:
        """There may be room now."""
        if self.waits and self._share.take(self._need, self._caller.user):
            self._read_on()

    def _read_on(self) -> None:
        if self.waits:
            self.waits = False
            self._caller.commands.append((Do.READ_UPSTREAM, True))

    def pass_on(self) -> None:
        """Who was woken and has no use for the room lets the next one have it."""
        self._share.pass_on()

    def close(self) -> None:
        """The connection is over."""
        self._share.leave()
        self._share.close()
