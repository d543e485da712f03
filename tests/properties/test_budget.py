"""The room for announced bytes, whatever many users do with it."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.session.budget import AnnouncedBudget, BudgetShare

LIMIT = 1_000
KEPT = LIMIT // 8  # for users who hold no more than that
USERS = [("ada", ""), ("bob", ""), ("ANONYMOUS", "192.0.2.1"), ("ANONYMOUS", "192.0.2.2")]


class Client:
    """A connection: it asks for room for one frame at a time, as a session does."""

    def __init__(self, world: "World", user: tuple[str, str]) -> None:
        self.world = world
        self.user = user
        self.share = BudgetShare(world.budget, self._wake)
        self.wants_bytes = 0  # of the frame that waits
        self.is_woken = False
        self.has_given_up = False
        self.passed_before_bytes = 0

    def _wake(self) -> None:
        self.is_woken = True

    @property
    def holds(self) -> bool:
        return self.share.taken_bytes > 0 and not self.wants_bytes

    def ask(self, size_bytes: int) -> None:
        if self.holds:
            return
        if not self.wants_bytes:
            self.passed_before_bytes = self.world.passed_bytes
            self.wants_bytes = size_bytes
            self.has_given_up = False
        if self.share.take(self.wants_bytes, self.user):
            self.world.passed_bytes += self.wants_bytes
            self.wants_bytes = 0

    def see_to_it(self) -> None:
        """What the driver does some time after a wake."""
        if self.is_woken:
            self.is_woken = False
            if self.wants_bytes:
                self.ask(self.wants_bytes)
            self.share.pass_on()
            assert not (self.has_given_up and self.share.taken_bytes), "room without a use is kept"

    def end(self) -> None:
        """The frame has arrived."""
        if self.holds:
            self.share.give_back()

    def give_up(self) -> None:
        """The frame goes elsewhere; whether it waited is not looked at."""
        if self.wants_bytes:
            self.wants_bytes = 0
            self.has_given_up = True

    def close(self) -> None:
        self.share.close()
        self.share.give_back()
        self.world.clients[self.world.clients.index(self)] = Client(self.world, self.user)


@dataclass
class World:
    passed_bytes: int = 0
    waits: int = 0
    clients: list[Client] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.budget = AnnouncedBudget(limit_bytes=LIMIT, when_waited=self._waited)
        self.clients = [Client(self, user) for user in USERS for _ in range(3)]

    def _waited(self) -> None:
        self.waits += 1

    def see_to_all(self) -> None:
        while any(client.is_woken for client in self.clients):
            for client in list(self.clients):
                client.see_to_it()

    def check(self) -> None:
        taken = [client.share.taken_bytes for client in self.clients if client.share.taken_bytes]
        assert self.budget.used_bytes == sum(taken)
        assert sum(taken) <= LIMIT or len(taken) == 1
        for user in USERS:
            held = sum(c.share.taken_bytes for c in self.clients if c.user == user)
            assert self.budget.held_bytes(user) == held


SIZES = st.one_of(st.integers(1, 100), st.integers(1, 600), st.integers(900, 1_500))
NUMBERS = st.integers(0, 3 * len(USERS) - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), NUMBERS, SIZES),
        st.tuples(st.just("ask"), NUMBERS, SIZES),
        st.tuples(
            st.sampled_from(["end", "end", "see", "give up", "close", "look", "sweep"]),
            NUMBERS,
            st.just(0),
        ),
    ),
    max_size=120,
)


def play(world: World, step: tuple[str, int, int]) -> None:
    what, number, size_bytes = step
    client = world.clients[number]
    match what:
        case "ask":
            client.ask(size_bytes)
        case "end":
            client.end()
        case "see":
            client.see_to_it()
        case "give up":
            client.give_up()
        case "close":
            client.close()
        case "look":
            world.budget.look()
        case _:
            world.budget.sweep()


@settings(deadline=None, max_examples=300)
@given(steps=STEPS)
def test_no_more_is_taken_than_there_is_and_nobody_is_left_waiting(
    steps: list[tuple[str, int, int]],
) -> None:
    world = World()
    for step in steps:
        play(world, step)
        world.check()

    while any(client.wants_bytes or client.share.taken_bytes for client in world.clients):
        before = [(client.wants_bytes, client.share.taken_bytes) for client in world.clients]
        world.see_to_all()
        for client in list(world.clients):
            client.end()
        world.check()
        after = [(client.wants_bytes, client.share.taken_bytes) for client in world.clients]
        assert after != before, "somebody waits, and nobody will wake it"

    world.see_to_all()
    assert world.budget.used_bytes == 0
    assert not world.budget.is_waited_for


@settings(deadline=None, max_examples=200)
@given(steps=STEPS)
def test_where_several_wait_nobody_is_let_in_who_would_leave_less_than_it_holds(
    steps: list[tuple[str, int, int]],
) -> None:
    world = World()
    for step in steps:
        world.see_to_all()
        used_bytes, user = world.budget.used_bytes, world.clients[step[1]].user
        others_wait = any(c.wants_bytes and c.user != user for c in world.clients)
        held_bytes = world.budget.held_bytes(user)
        next_waits = any(world.budget._is_next(*item) for item in world.budget._waiting.items())

        play(world, step)

        more_bytes = world.budget.held_bytes(user) - held_bytes
        if step[0] == "ask" and more_bytes and others_wait and used_bytes and not next_waits:
            left_bytes = LIMIT - world.budget.used_bytes
            assert held_bytes + more_bytes <= left_bytes


@settings(deadline=None, max_examples=100)
@given(
    large_bytes=st.integers(1, 1_500),
    sizes=st.lists(st.integers(40, 400), min_size=1, max_size=10),
    holds=st.integers(1, 5),
)
def test_nobody_starves_whatever_its_size_while_others_come_again_and_again(
    large_bytes: int, sizes: list[int], holds: int
) -> None:
    world = World()
    large, *others = world.clients
    for number in range(2_000):
        if number == holds:
            large.ask(large_bytes)
        others[number % len(others)].ask(sizes[number % len(sizes)])
        world.see_to_all()
        others[(number - holds) % len(others)].end()
        world.see_to_all()
        if large.holds:
            break

    passed_bytes = world.passed_bytes - large.passed_before_bytes
    assert large.holds
    assert passed_bytes <= 10 * LIMIT


@settings(deadline=None, max_examples=200)
@given(
    sizes=st.lists(SIZES, min_size=1, max_size=3),
    small_bytes=st.integers(1, KEPT),
    ends=st.lists(st.integers(0, 2), max_size=3),
)
def test_whatever_one_user_announces_another_ones_small_frame_goes_on_at_once(
    sizes: list[int], small_bytes: int, ends: list[int]
) -> None:
    world = World()
    crowd, other = world.clients[:3], world.clients[3]
    for client, size_bytes in zip(crowd, sizes, strict=False):
        client.ask(size_bytes)
    for number in ends:
        crowd[number].end()
        world.see_to_all()
    if any(client.share.taken_bytes > LIMIT - KEPT for client in crowd):
        return  # a frame of this size passes alone

    other.ask(small_bytes)

    assert other.holds


def test_users_take_turns_however_many_connections_one_of_them_has() -> None:
    world = World()
    crowd = [Client(world, USERS[0]) for _ in range(8)]
    others = [Client(world, USERS[1]) for _ in range(2)]
    for client in (*crowd, *others):
        client.ask(900)
    served: list[Client] = []
    for _ in range(5):
        (holder,) = (client for client in (*crowd, *others) if client.holds)
        served.append(holder)
        holder.end()
        world.see_to_all()
        for client in (*crowd, *others):
            client.see_to_it()

    assert sum(client in others for client in served) == 2


def test_others_go_on_when_the_one_that_kept_them_back_has_gone() -> None:
    world = World()
    slow, large, small = world.clients[0], world.clients[3], world.clients[6]
    slow.ask(400)
    large.ask(900)
    for _ in range(10):
        small.ask(100)
        small.end()
        world.see_to_all()
    small.ask(100)
    assert not small.holds

    large.close()
    world.see_to_all()

    assert small.holds


def test_a_frame_that_is_next_keeps_others_back_for_some_time_only() -> None:
    world = World()
    slow, large, small = world.clients[0], world.clients[3], world.clients[6]
    slow.ask(400)
    large.ask(900)
    for _ in range(40):
        small.ask(100)
        small.end()
        world.see_to_all()
    small.ask(100)
    assert not small.holds
    assert world.waits == 2

    for _ in range(20):
        world.budget.look()
    world.see_to_all()

    assert small.holds


def test_who_fills_the_room_itself_keeps_nobody_back_for_a_further_frame() -> None:
    world = World()
    slow, further, small = world.clients[0], world.clients[1], world.clients[3]
    slow.ask(800)
    further.ask(900)
    for _ in range(40):
        small.ask(100)
        assert small.holds
        small.end()
        world.see_to_all()


def test_all_but_what_is_kept_may_be_one_users_again_when_others_have_not_waited_for_some_time() -> (
    None
):
    world = World()
    first, second, other = world.clients[0], world.clients[1], world.clients[3]
    first.ask(1_000)
    other.ask(100)
    first.end()
    world.see_to_all()
    other.end()
    first.ask(500)
    second.ask(500 - KEPT)
    assert not second.holds

    for _ in range(15):
        world.budget.sweep()
    world.see_to_all()

    assert second.holds


@pytest.mark.parametrize("size_bytes", [1, LIMIT, 10 * LIMIT])
def test_alone_everything_passes(size_bytes: int) -> None:
    world = World()
    client = world.clients[0]

    client.ask(size_bytes)

    assert client.holds
    assert world.waits == 0
