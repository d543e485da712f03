"""First come, first served, whatever those who are woken do at once."""

from collections.abc import Callable

import pytest

from kvota.engine import PlaceKey
from kvota.engine.waiting_line import Turn, WaitingLine


class Waiter:
    """Somebody in a line, who notes when it was woken and does what it was told to do then."""

    def __init__(self, line: WaitingLine, name: str, woken: list[str]) -> None:
        self.line = line
        self.name = name
        self.woken = woken
        self.then: Callable[[], object] = lambda: None
        self.turn: Turn = line.join(self._wake)

    def leave(self) -> None:
        self.line.leave(self.turn)

    def is_first(self) -> bool:
        return self.line.is_first(self.turn)

    def _wake(self) -> None:
        self.woken.append(self.name)
        self.then()


def waiters(names: str) -> tuple[WaitingLine, list[Waiter], list[str]]:
    line: WaitingLine = WaitingLine()
    woken: list[str] = []
    return line, [Waiter(line, name, woken) for name in names], woken


def test_who_comes_first_is_first() -> None:
    line, (a, b, c), woken = waiters("abc")

    assert [one.is_first() for one in (a, b, c)] == [True, False, False]
    assert (len(line), woken) == (3, [])


def test_when_the_first_leaves_the_next_is_woken_once() -> None:
    line, (a, b, c), woken = waiters("abc")

    a.leave()
    a.leave()

    assert woken == ["b"]
    assert [b.is_first(), c.is_first(), a.is_first()] == [True, False, False]
    assert len(line) == 2


def test_who_leaves_from_the_middle_wakes_nobody() -> None:
    line, (a, b, c), woken = waiters("abc")

    b.leave()
    b.leave()
    a.leave()

    assert woken == ["c"]
    assert len(line) == 1
    assert not b.is_first()
    assert c.is_first()


def test_the_last_one_leaves_an_empty_line() -> None:
    line, (a,), woken = waiters("a")

    a.leave()

    assert (len(line), woken, a.is_first()) == (0, [], False)
    assert Waiter(line, "b", woken).is_first()


def test_a_wake_that_leaves_at_once_passes_the_turn_on() -> None:
    line, (a, b, c, d), woken = waiters("abcd")
    b.then, c.then = b.leave, c.leave

    a.leave()

    assert woken == ["b", "c", "d"]
    assert (len(line), d.is_first()) == (1, True)


def test_a_wake_may_join_again_at_once() -> None:
    line, (a, b, c), woken = waiters("abc")
    again: list[Turn] = []

    def to_the_end() -> None:
        b.leave()
        again.append(line.join(lambda: woken.append("b again")))

    b.then = to_the_end
    a.leave()

    assert woken == ["b", "c"]
    assert c.is_first()
    c.leave()
    assert woken == ["b", "c", "b again"]
    assert line.is_first(again[0])


def test_one_alone_may_leave_and_join_in_its_wake() -> None:
    line, (a, b), woken = waiters("ab")

    def once_more() -> None:
        b.leave()
        b.turn = line.join(once_more)

    b.turn.wake = once_more
    a.leave()

    assert woken == []
    assert (len(line), b.is_first()) == (1, True)


def test_a_wake_may_send_others_away() -> None:
    _, (a, b, c, d), woken = waiters("abcd")
    b.then = c.leave

    a.leave()
    b.leave()

    assert woken == ["b", "d"]
    assert d.is_first()


def test_everybody_is_woken_once_when_something_has_changed() -> None:
    line, (_, b, _), woken = waiters("abc")
    b.then = lambda: Waiter(line, "new", woken)

    line.wake_all()

    assert woken == ["a", "b", "c"]
    assert len(line) == 4


def test_all_who_leave_when_they_are_woken_are_woken_once() -> None:
    line, (a, b, c), woken = waiters("abc")
    a.then, b.then, c.then = a.leave, b.leave, c.leave

    line.wake_all()

    assert woken == ["a", "b", "c"]
    assert len(line) == 0


def test_the_first_is_told_when_it_became_so_after_it_had_looked() -> None:
    _, (a, b, c), woken = waiters("abc")
    c.then = a.leave

    c.line.wake_all()

    # When b looked, a was still before it.
    assert woken == ["a", "b", "c", "b"]
    assert b.is_first()


def test_a_change_in_the_middle_of_waking_is_looked_at_by_all() -> None:
    line, (a, _), woken = waiters("ab")

    def change_once_more() -> None:
        a.then = lambda: None
        line.wake_all()

    a.then = change_once_more

    line.wake_all()

    assert woken == ["a", "b", "a", "b"]


def test_a_thousand_who_leave_at_once_do_not_nest() -> None:
    line: WaitingLine = WaitingLine()
    woken: list[str] = []
    crowd = [Waiter(line, str(number), woken) for number in range(20_000)]
    for one in crowd[1:]:
        one.then = one.leave

    crowd[0].leave()

    assert woken == [one.name for one in crowd[1:]]
    assert len(line) == 0


def test_a_wake_that_fails_does_not_stop_the_line_for_ever() -> None:
    _, (a, b, c), woken = waiters("abc")

    def fail() -> None:
        msg = "woken in vain"
        raise RuntimeError(msg)

    b.then = fail

    with pytest.raises(RuntimeError, match="in vain"):
        a.leave()
    b.leave()

    assert woken == ["b", "c"]
    assert c.is_first()


# ------------------------------------------------------------------ places that are kept

ALICE = PlaceKey("192.0.2.1", "alice", b"app")
BOB = PlaceKey("192.0.2.1", "bob", b"app")


def test_who_gave_up_and_comes_back_has_its_old_place() -> None:
    line, (a, b, c), woken = waiters("abc")

    line.give_up(b.turn, ALICE, 25_000)
    back = line.join(lambda: woken.append("b again"), ALICE, 25_100)

    assert len(line) == 3
    a.leave()
    assert woken == ["b again"]
    assert line.is_first(back)
    line.leave(back)
    assert woken == ["b again", "c"]
    assert c.is_first()


def test_nobody_waits_for_who_is_away() -> None:
    line, (a, b, c), woken = waiters("abc")

    line.give_up(a.turn, ALICE, 0)
    assert woken == ["b"]
    b.leave()

    assert woken == ["b", "c"]
    assert (c.is_first(), len(line), line.kept) == (True, 1, 1)


def test_who_comes_back_as_the_first_is_before_the_one_that_was() -> None:
    line, (a, b), woken = waiters("ab")

    line.give_up(a.turn, ALICE, 0)
    back = line.join(lambda: woken.append("a again"), ALICE, 50)

    assert (line.is_first(back), b.is_first()) == (True, False)
    line.leave(back)
    assert woken == ["b", "b"]
    assert b.is_first()


def test_a_place_is_for_who_left_it_and_taken_once() -> None:
    line, (a, b), woken = waiters("ab")

    line.give_up(a.turn, ALICE, 0)
    for key in (BOB, None):
        line.join(lambda: woken.append("another"), key, 50)
        assert b.is_first()
    back = line.join(lambda: woken.append("back"), ALICE, 50)
    once_more = line.join(lambda: woken.append("once more"), ALICE, 50)

    assert (line.is_first(back), line.kept) == (True, 0)
    line.leave(back)
    assert b.is_first()
    assert not line.is_first(once_more)


def test_of_two_places_of_one_client_the_first_left_is_the_first_taken() -> None:
    line, (a, b, c), woken = waiters("abc")
    line.give_up(c.turn, ALICE, 0)
    line.give_up(a.turn, ALICE, 10)

    first = line.join(lambda: woken.append("first"), ALICE, 20)

    assert b.is_first()
    second = line.join(lambda: woken.append("second"), ALICE, 30)
    assert line.is_first(second)
    assert not line.is_first(first)


def test_a_turn_that_was_left_leaves_no_place() -> None:
    line, (a, _), _ = waiters("ab")

    a.leave()
    line.give_up(a.turn, ALICE, 0)

    assert line.kept == 0
