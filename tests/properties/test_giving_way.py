"""Whoever comes when all places are taken: who gives way, and what it costs to find out."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from kvota.session.budget import User
from kvota.session.giving_way import LOGIN_S, STRANGERS_PART, Chosen, GivingWay, Look, Standing
from kvota.session.principal import ANONYMOUS

HOSTS = ("here", "there", "elsewhere")
HOLDERS: tuple[User | None, ...] = (
    None,
    ("alice", ""),
    ("bob", ""),
    *((ANONYMOUS, host) for host in HOSTS),
)


@dataclass
class Seen:
    """A connection as it is."""

    host: str
    holder: User | None
    standing: Standing
    came_s: float
    since_s: float


@dataclass
class Field:
    """All who are here, and what is done to them.

    Attributes:
        looks: how often one connection was looked at.
    """

    places: int
    here: dict[int, Seen] = field(default_factory=dict)
    looks: int = 0
    now_s: float = 100.0

    def __post_init__(self) -> None:
        self.giving_way: GivingWay[int] = GivingWay(self.places, self._look)
        self.numbers = count()

    def _look(self, who: int) -> Look:
        self.looks += 1
        seen = self.here.get(who)
        if seen is None:
            return Look("", None, Standing.AT_WORK, 0.0)
        return Look(seen.host, seen.holder, seen.standing, seen.since_s)

    def comes(self, host: str) -> int:
        who = next(self.numbers)
        self.here[who] = Seen(host, None, Standing.IDLE, self.now_s, self.now_s)
        self.giving_way.came(who, host, self.now_s)
        return who

    def goes(self, who: int) -> None:
        del self.here[who]
        self.giving_way.left(who)

    def count(self) -> None:
        self.giving_way.count([(who, self._look(who)) for who in self.here])

    @property
    def held(self) -> Counter[User]:
        return Counter(seen.holder for seen in self.here.values() if seen.holder is not None)

    def at(self, host: str) -> int:
        """How many connections this address has that are no user's."""
        its_own = (None, (ANONYMOUS, host))
        return sum(seen.host == host and seen.holder in its_own for seen in self.here.values())

    def may_be_asked(self, host: str) -> set[User]:
        """Who holds more than a fair share, and would still hold no fewer than a newcomer's address."""
        held, newcomers, own = self.held, (ANONYMOUS, host), self.at(host)
        holders = len(set(held) | {newcomers})
        return {
            holder
            for holder, of_it in held.items()
            if of_it > self.places / holders and of_it - 1 > own
        }

    def of(self, holders: set[User], *, at_work: bool) -> list[Seen]:
        return [
            seen
            for seen in self.here.values()
            if seen.holder in holders and (seen.standing >= Standing.AT_WORK) == at_work
        ]


def _full(places: int, random: Random) -> Field:
    """In some of them one holder has most of the places."""
    full = Field(places)
    greedy = random.choice(HOLDERS)
    for _ in range(places):
        host = random.choice(HOSTS)
        seen = full.here[full.comes(host)]
        holder = greedy if random.random() < 0.5 else random.choice(HOLDERS)
        seen.holder = (ANONYMOUS, host) if holder and holder[0] == ANONYMOUS else holder
        seen.standing = random.choice(list(Standing))
        seen.since_s = full.now_s = full.now_s + random.choice((0.0, 0.5, 3.0))
    return full


# Drawn one by one these hundreds of choices would take longer than all the rest.
RANDOMS = st.integers(0, 2**32).map(Random)
fields = st.builds(_full, st.integers(1, 30), RANDOMS)


# ------------------------------------------------------------------ who gives way


@given(full=fields, host=st.sampled_from(HOSTS), may_tell=st.booleans())
def test_who_gives_way_is_who_should(full: Field, host: str, may_tell: bool) -> None:
    full.count()

    chosen = full.giving_way.choose(host, full.now_s, may_tell=may_tell)

    asked = full.may_be_asked(host)
    strangers = [seen for seen in full.here.values() if seen.holder is None]
    at_ease, at_work = full.of(asked, at_work=False), full.of(asked, at_work=True)
    if chosen is None:  # somebody always does if there is anybody who may
        assert all(seen.came_s > full.now_s - LOGIN_S for seen in strangers)
        assert all(seen.host != host for seen in strangers)
        assert not _has_one_too_many(full, strangers, host)
        assert not at_ease
        assert not (at_work and may_tell)
    elif chosen.holder is None:
        seen = full.here[chosen.who]
        assert seen.holder is None
        is_overdue = seen.came_s <= full.now_s - LOGIN_S
        is_needed = len(strangers) > full.places / STRANGERS_PART
        assert is_needed or is_overdue or not (at_ease or (at_work and may_tell))
        # Nobody's login is cut short for somebody whose address has as many connections.
        assert is_overdue or seen.host == host or full.at(seen.host) > full.at(host) + 1
    else:
        assert chosen.holder in asked  # never one with a fair share, or fewer than the newcomer's
        _check_choice(full, chosen, asked)
        if len(strangers) > full.places / STRANGERS_PART:
            assert host not in {seen.host for seen in strangers}
            assert not _has_one_too_many(full, strangers, host)
        assert not (chosen.is_at_work and at_ease)
        assert may_tell or not chosen.is_at_work


def _has_one_too_many(full: Field, strangers: list[Seen], host: str) -> bool:
    """True where each address with the most strangers has more connections than the newcomer's would have."""
    of_host = Counter(seen.host for seen in strangers)
    most = [other for other, here in of_host.items() if here == max(of_host.values())]
    return bool(most) and all(full.at(other) > full.at(host) + 1 for other in most)


def _check_choice(full: Field, chosen: Chosen[int], asked: set[User]) -> None:
    """Of the largest that has any like it, who has least to lose, longest idle first."""
    held, seen = full.held, full.here[chosen.who]
    assert seen.holder is not None
    assert seen.holder == chosen.holder
    assert (seen.standing >= Standing.AT_WORK) == chosen.is_at_work
    alike = full.of(asked, at_work=chosen.is_at_work)
    assert held[seen.holder] == max(held[other.holder] for other in alike if other.holder)
    assert chosen.holding == held[seen.holder]
    its_own = [other for other in alike if other.holder == seen.holder]
    assert (seen.standing, seen.since_s) == min((o.standing, o.since_s) for o in its_own)


@given(random=RANDOMS, full=fields)
def test_between_two_counts_nobody_who_has_begun_to_work_is_closed(
    random: Random, full: Field
) -> None:
    full.count()
    for seen in full.here.values():
        seen.standing = random.choice(list(Standing))

    while full.here:
        chosen = full.giving_way.choose("here", full.now_s, may_tell=random.random() < 0.5)
        if chosen is None:
            break
        seen = full.here[chosen.who]
        assert seen.holder == chosen.holder
        assert seen.holder is None or seen.standing < Standing.AT_WORK or chosen.is_at_work
        full.goes(chosen.who)


@given(random=RANDOMS, full=fields)
def test_nobody_is_forgotten_or_chosen_twice(random: Random, full: Field) -> None:
    """Whatever happens in between: as many stay as have a place, and each newcomer costs one of them."""
    for _ in range(20):
        if random.random() < 0.5:
            full.count()
        host = random.choice(HOSTS)
        if len(full.here) >= full.places:
            before = set(full.here)
            chosen = full.giving_way.choose(host, full.now_s, may_tell=True)
            if chosen is None:
                continue
            assert chosen.who in before
            full.goes(chosen.who)
        who = full.comes(host)
        if random.random() < 0.5:
            full.here[who].holder = random.choice([("alice", ""), (ANONYMOUS, host)])
        full.now_s += random.choice((0.0, 0.1, LOGIN_S))
    held = full.held
    full.count()
    assert full.giving_way._held == held
    assert len(full.giving_way._strangers) == len(full.here) - held.total()


@given(newcomers=st.integers(1, 60), other=st.integers(0, 40))
def test_of_one_who_has_all_places_exactly_one_gives_way_for_each_newcomer(
    newcomers: int, other: int
) -> None:
    full = Field(100)
    for number in range(100):
        full.here[full.comes("here")].holder = ("bob" if number < other else "alice", "")
    wanted = full.held + Counter({("carol", ""): newcomers})

    for _ in range(newcomers):
        full.count()
        before = full.held
        chosen = full.giving_way.choose("there", full.now_s, may_tell=True)
        assert chosen is not None
        assert chosen.holding == max(before.values())
        full.goes(chosen.who)
        full.here[full.comes("there")].holder = ("carol", "")

    held = full.held
    assert held.total() == 100
    # Who comes is a holder of its own before it has logged in, and of two that are alike either one may go.
    least = 100 // len(wanted) - 1
    assert all(held[holder] >= min(much, least) for holder, much in wanted.items())


def test_who_has_a_fair_share_keeps_it_while_others_log_in() -> None:
    """Twenty users with four connections each, of 90 places; and ten who have not logged in."""
    full = Field(90)
    for number in range(80):
        full.here[full.comes("here")].holder = (f"user-{number % 20}", "")
    for _ in range(10):
        full.comes("there")
    full.count()

    chosen = full.giving_way.choose("elsewhere", full.now_s, may_tell=True)

    assert chosen is not None
    assert full.here[chosen.who].host == "there"


# ------------------------------------------------------------------ what it costs


@given(
    here=st.integers(10, 200),
    newcomers=st.integers(1, 400),
    standings=st.lists(st.sampled_from(Standing), min_size=1, max_size=7),
    later=st.lists(st.sampled_from(Standing), min_size=1, max_size=7),
)
def test_a_flood_costs_a_few_looks_for_each(
    here: int, newcomers: int, standings: list[Standing], later: list[Standing]
) -> None:
    """Between two counts: however they have changed meanwhile, each is looked at a few times in all."""
    full = Field(here)
    for number in range(here):
        seen = full.here[full.comes("here")]
        seen.holder, seen.standing = ("alice", ""), standings[number % len(standings)]
    full.count()
    for number, seen in enumerate(full.here.values()):
        seen.standing = later[number % len(later)]
    full.looks = 0

    for _ in range(newcomers):
        chosen = full.giving_way.choose("there", full.now_s, may_tell=True)
        if chosen is not None:
            full.goes(chosen.who)
            full.comes("there")

    assert full.looks <= len(Standing) * here + 2 * newcomers
