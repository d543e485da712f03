"""A line in which places are kept, against the plainest model of one."""

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.engine import PlaceKey, Turn
from kvota.engine.kept_places import KEPT_MAX, KEPT_MS
from kvota.engine.waiting_line import WaitingLine

pytestmark = pytest.mark.timeout(120)

_KEYS = [PlaceKey("192.0.2.1", "alice", b"%d" % number) for number in range(3)]
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["join", "join", "join", "leave", "give up", "give up", "wake all", "time"]
        ),
        st.integers(0, 30),
        st.sampled_from([*_KEYS, None]),
    ),
    max_size=60,
)


@dataclass(eq=False)
class Waiter:
    """Somebody in line: it looks whether it is the first when it joins and whenever it is woken."""

    line: WaitingLine
    ticket: int = 0
    sees_to_be_first: bool = False
    turn: Turn = field(init=False)

    def join(self, key: PlaceKey | None, now_ms: int) -> None:
        self.turn = self.line.join(self.look, key, now_ms)
        self.ticket = self.turn.ticket
        self.look()

    def look(self) -> None:
        if hasattr(self, "turn"):
            self.sees_to_be_first = self.line.is_first(self.turn)


@settings(deadline=None, max_examples=300)
@given(steps=_STEPS)
def test_those_who_are_here_are_in_the_order_of_their_tickets_and_the_first_knows(
    steps: list[tuple[str, int, PlaceKey | None]],
) -> None:
    line, now_ms, next_ticket = WaitingLine(), 0, 0
    here: list[Waiter] = []
    kept: dict[PlaceKey, deque[tuple[int, int]]] = {key: deque() for key in _KEYS}
    for what, number, key in steps:
        chosen = here[number % len(here)] if here else None
        if what == "join":
            waiter = Waiter(line)
            waiter.join(key, now_ms)
            expected = next_ticket
            while key is not None and kept[key]:
                ticket, left_ms = kept[key].popleft()
                if now_ms - left_ms < KEPT_MS:
                    expected = ticket
                    break
            next_ticket += expected == next_ticket
            assert waiter.ticket == expected
            here.append(waiter)
        elif what == "leave" and chosen is not None:
            here.remove(chosen)
            line.leave(chosen.turn)
        elif what == "give up" and chosen is not None and key is not None:
            here.remove(chosen)
            line.give_up(chosen.turn, key, now_ms)
            kept[key].append((chosen.ticket, now_ms))
        elif what == "wake all":
            line.wake_all()
        elif what == "time":
            now_ms += number * 1_000
        assert len(line) == len(here)
        first = min(here, key=lambda waiter: waiter.ticket, default=None)
        # No wake-up is lost: whoever may go on has seen it. Nobody else is the first.
        assert [waiter for waiter in here if line.is_first(waiter.turn)] == (
            [first] if first else []
        )
        assert first is None or first.sees_to_be_first


def test_what_a_line_keeps_is_bounded_whoever_comes_and_goes() -> None:
    line = WaitingLine()

    for number in range(3 * KEPT_MAX):
        turn = line.join(lambda: None)
        line.give_up(turn, PlaceKey("192.0.2.1", "", b"%d" % number), number)

    assert (len(line), line.kept) == (0, KEPT_MAX)
