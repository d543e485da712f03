"""Who gives way when all places for connections are taken and somebody new comes.

A holder is a user; without a name, an address. Who has shown neither a login nor (where nobody asks for one) a
request is a stranger and holds nothing yet. In this order somebody gives way:

1. the oldest stranger that has had time enough to log in; where strangers have more than an eighth of the places,
   as 4. says;
2. the holder of the most connections, if it holds more than a fair share (the places by the number of holders, the
   newcomer's address among them) and would still hold no fewer than the newcomer's address: of its
   connections one that has nothing to lose, longest idle first, then one whose requests have not gone up, then
   one that waits for records;
3. the same, where all of these are at work: one is told to leave, and loses nothing; the last of them are those
   that are kept back with records that nobody sends again;
4. the oldest stranger of the address that has most of them, if it has more connections than the newcomer's would have; else
   of the newcomer's own.

All connections are counted from time to time. In between a newcomer costs a few steps, however many there are.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable
from enum import IntEnum
from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, NamedTuple, TypeVar

from kvota.session.budget import User
from kvota.session.principal import ANONYMOUS

# A login takes a few answers of the broker.
LOGIN_S = 5.0
# This part of the places is for those who are about to log in.
STRANGERS_PART = 8


class Standing(IntEnum):
    """What is lost with a connection, the least first."""

    IDLE = 0  # nothing
    UNREAD = 1  # requests that have not gone up: their client sends them again
    AWAITS_RECORDS = 2  # Fetches without an answer: their client asks again
    AT_WORK = 3  # answers
    SENT_ONCE = (
        4  # records with acks = 0 that are here and have not gone up: nobody sends them again
    )


class Look(NamedTuple):
    """What is seen of one connection.

    Attributes:
        host: the client's address.
        holder: None: a stranger.
        standing: of the connection.
        since_s: when it was last seen to ask something, or when it came; on a monotonic clock.
    """

    host: str
    holder: User | None
    standing: Standing
    since_s: float


K = TypeVar("K", bound=Hashable)


class Chosen(NamedTuple, Generic[K]):
    """Who gives way.

    Attributes:
        who: the connection.
        holder: of it, None: a stranger.
        holding: how many connections its holder has (of strangers: its address), with this one.
        is_at_work: it is only told to leave: answers are due to it, or it is kept back with ``SENT_ONCE``.
    """

    who: K
    holder: User | None
    holding: int
    is_at_work: bool


class GivingWay(Generic[K]):
    """The order in which connections give way.

    Args:
        places: how many there are.
        look: looks at one connection closely, before it is chosen.
    """

    def __init__(self, places: int, look: Callable[[K], Look]) -> None:
        self._places = places
        self._look = look
        self._strangers: _Strangers[K] = _Strangers()
        self._holder_of: dict[K, User] = {}
        self._held: Counter[User] = Counter()
        self._at_ease: _Ranking[K] = _Ranking({}, self._held)
        self._at_work: _Ranking[K] = _Ranking({}, self._held)

    # ------------------------------------------------------------------ who is here

    def came(self, who: K, host: str, now_s: float) -> None:
        """Somebody has been given a place."""
        self._strangers.add(who, host, now_s)

    def left(self, who: K) -> None:
        """Its place is free, or will be."""
        self._strangers.remove(who)
        holder = self._holder_of.pop(who, None)
        if holder is not None:
            self._held[holder] -= 1
            if not self._held[holder]:
                del self._held[holder]

    def count(self, seen: Iterable[tuple[K, Look]]) -> None:
        """Take in what is seen of all who are here and have not been told to leave."""
        self._holder_of.clear()
        self._held.clear()
        at_ease: dict[User, list[_Candidate[K]]] = {}
        at_work: dict[User, list[_Candidate[K]]] = {}
        for number, (who, look) in enumerate(seen):
            holder = look.holder
            if holder is None:
                self._strangers.add(who, look.host, look.since_s)
                continue
            self._settle(who, holder)
            ranked = at_work if look.standing >= Standing.AT_WORK else at_ease
            ranked.setdefault(holder, []).append((look.standing, look.since_s, number, who))
        self._at_ease = _Ranking(at_ease, self._held)
        self._at_work = _Ranking(at_work, self._held)

    def _settle(self, who: K, holder: User) -> None:
        self._strangers.remove(who)
        self._holder_of[who] = holder
        self._held[holder] += 1

    # ------------------------------------------------------------------ who gives way

    def choose(self, host: str, now_s: float, *, may_tell: bool) -> Chosen[K] | None:
        """Who gives way to a newcomer from this address; None: nobody has to.

        Args:
            host: the newcomer's address.
            now_s: as in ``Look``.
            may_tell: whether somebody may be told to leave.
        """
        return (
            self._overdue_stranger(now_s)
            or (self._stranger(host) if self._are_strangers_many else None)
            or self._of_a_holder(self._at_ease, host)
            or (self._of_a_holder(self._at_work, host) if may_tell else None)
            or self._stranger(host)
        )

    @property
    def _are_strangers_many(self) -> bool:
        return len(self._strangers) * STRANGERS_PART > self._places

    def _at(self, host: str) -> int:
        """How many connections this address has that are no user's."""
        return self._strangers.of_host(host) + self._held.get((ANONYMOUS, host), 0)

    def _overdue_stranger(self, now_s: float) -> Chosen[K] | None:
        strangers = self._strangers
        while strangers and strangers.oldest_since_s <= now_s - LOGIN_S:
            chosen = self._chosen_stranger(strangers.oldest())
            if chosen is not None:
                return chosen
        return None

    def _stranger(self, host: str) -> Chosen[K] | None:
        strangers = self._strangers
        while strangers:
            of_most = strangers.host_of_most
            if self._at(of_most) <= self._at(host) + 1:
                of_most = host
            if not strangers.of_host(of_most):
                return None
            chosen = self._chosen_stranger(strangers.oldest_of(of_most))
            if chosen is not None:
                return chosen
        return None

    def _chosen_stranger(self, who: K) -> Chosen[K] | None:
        """None: it has logged in since it was counted, and is looked at with the others next time."""
        holder = self._look(who).holder
        if holder is not None:
            self._settle(who, holder)
            return None
        return Chosen(who, None, self._strangers.at_its_address(who), is_at_work=False)

    def _of_a_holder(self, ranking: "_Ranking[K]", host: str) -> Chosen[K] | None:
        newcomers = (ANONYMOUS, host)
        own = self._at(host)
        holders = len(self._held) + (newcomers not in self._held)
        while (holder := ranking.largest()) is not None:
            held = self._held[holder]
            # One more of its own would have to go if it came again: nobody changes places for ever.
            if held * holders <= self._places or held <= own + 1:
                return None
            who = ranking.first(holder, self._look)
            if who is not None:
                return Chosen(who, holder, held, is_at_work=ranking is self._at_work)
        return None


# What there is to lose, since when, a number that no two have, who.
_Candidate = tuple[Standing, float, int, K]


class _Ranking(Generic[K]):
    """Holders by how many connections they had when they were counted, the most first; and their connections."""

    def __init__(self, candidates: dict[User, list[_Candidate[K]]], held: Counter[User]) -> None:
        self._candidates = candidates
        self._held = held  # how many they have now
        self._heaps: set[User] = set()  # whose candidates are in order
        self._holders = [(-held[holder], holder) for holder in candidates]
        heapify(self._holders)

    def largest(self) -> User | None:
        """The one who holds the most now, of those who have candidates."""
        holders = self._holders
        while holders:
            negative, holder = holders[0]
            now = self._held.get(holder, 0)
            if not now or not self._candidates[holder]:
                heappop(holders)
            elif now < -negative:
                heapreplace(holders, (-now, holder))
            else:
                return holder
        return None

    def first(self, holder: User, look: Callable[[K], Look]) -> K | None:
        """Of this one, who loses least; None: nobody is as it was when it was counted."""
        candidates = self._candidates[holder]
        if holder not in self._heaps:
            self._heaps.add(holder)
            heapify(candidates)
        while candidates:
            standing, since_s, number, who = heappop(candidates)
            now = look(who)
            if now.holder != holder:
                continue
            if now.standing <= standing:
                return who
            if standing >= Standing.AT_WORK or now.standing < Standing.AT_WORK:
                heappush(candidates, (now.standing, since_s, number, who))
        return None


class _Strangers(Generic[K]):
    """Those who hold nothing yet, in the order in which they came, and by address."""

    def __init__(self) -> None:
        # Not plain dicts: finding their first keys costs a walk over all that have left.
        self._all: OrderedDict[K, tuple[str, float]] = OrderedDict()
        self._of_host: dict[str, OrderedDict[K, None]] = {}
        self._hosts_with: list[OrderedDict[str, None]] = [OrderedDict()]  # so many strangers

    def __len__(self) -> int:
        return len(self._all)

    @property
    def oldest_since_s(self) -> float:
        return self._all[self.oldest()][1]

    def oldest(self) -> K:
        return next(iter(self._all))

    @property
    def host_of_most(self) -> str:
        """The address that has the most."""
        return next(iter(self._hosts_with[-1]))

    def oldest_of(self, host: str) -> K:
        return next(iter(self._of_host[host]))

    def of_host(self, host: str) -> int:
        return len(self._of_host.get(host, ()))

    def at_its_address(self, who: K) -> int:
        return self.of_host(self._all[who][0])

    def add(self, who: K, host: str, now_s: float) -> None:
        if who in self._all:
            return
        self._all[who] = host, now_s
        of_host = self._of_host.setdefault(host, OrderedDict())
        self._move(host, len(of_host), len(of_host) + 1)
        of_host[who] = None

    def remove(self, who: K) -> None:
        found = self._all.pop(who, None)
        if found is None:
            return
        host, _ = found
        of_host = self._of_host[host]
        del of_host[who]
        self._move(host, len(of_host) + 1, len(of_host))
        if not of_host:
            del self._of_host[host]

    def _move(self, host: str, before: int, now: int) -> None:
        hosts_with = self._hosts_with
        if now == len(hosts_with):
            hosts_with.append(OrderedDict())
        if before:
            del hosts_with[before][host]
        if now:
            hosts_with[now][host] = None
        while len(hosts_with) > 1 and not hosts_with[-1]:
            hosts_with.pop()
