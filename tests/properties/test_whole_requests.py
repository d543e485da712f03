"""However large mutations come, wait, are answered and end: each that stays gets its turn."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.session.test_mutations import WINDOW, delete

from kvota.session.pausing import Reason
from kvota.testing.scripted_broker import ScriptedBroker
from kvota.testing.stage import Cluster, Stage, quotas

pytestmark = pytest.mark.timeout(120)

SMALL = delete("few")
LARGE = delete(*(f"{number:03}{'n' * 200}" for number in range(400)))
FRAMES = {"small": SMALL, "large": LARGE, "many": delete(*map(str, range(1_200)))}
# Two of the large ones fit, or one of the other ones.
LIMIT_BYTES = 2_000_000


@dataclass
class One:
    """A connection with its broker.

    Attributes:
        unsent: what is left of its request.
        woken: how many of its wakes have been seen to.
    """

    stage: Stage
    broker: ScriptedBroker
    unsent: bytes = b""
    seen: int = 0
    woken: int = 0
    ended: bool = False

    def send(self, length: int) -> None:
        if not self.ended and not self.stage.machine.pauses_reading:
            self.stage.client(self.unsent[:length])
            self.unsent = self.unsent[length:]

    def answer(self) -> bool:
        """The broker answers what has reached it; False: nothing has."""
        if self.ended or self.seen == len(self.stage.to_broker):
            return False
        going_up, self.seen = self.stage.to_broker[self.seen :], len(self.stage.to_broker)
        self.stage.broker(self.broker.answers(going_up))
        return True

    def wake(self) -> bool:
        if self.woken == self.stage.wakes:
            return False
        self.woken += 1
        if self.ended:
            self.stage.machine.pass_room_on()
        else:
            self.stage.wake_up()
        return True

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self.stage.end()

    def mute(self, is_begin: bool) -> None:
        if self.ended:
            return
        if is_begin:
            self.stage.pausing.reasons |= Reason.DRAINING
        else:
            self.stage.resume(Reason.DRAINING)


ACTIONS = st.tuples(
    st.integers(0, 5), st.sampled_from(["small", "all", "answer", "wake", "end", "hold", "go on"])
)


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.sampled_from(["small", "large", "large", "many"]), min_size=6, max_size=6),
    users=st.lists(st.sampled_from(["a", "b", "c"]), min_size=6, max_size=6),
    actions=st.lists(ACTIONS, max_size=40),
)
def test_each_that_stays_gets_its_turn_and_nothing_is_kept(
    sizes: list[str], users: list[str], actions: list[tuple[int, str]]
) -> None:
    shared = Cluster(quotas(CONTROLLER_MUTATION=1_000_000), windows=WINDOW)
    shared.shared.whole_requests.large.limit_bytes = LIMIT_BYTES
    ones = [
        One(Stage(shared, number=number), ScriptedBroker(), FRAMES[size])
        for number, size in enumerate(sizes)
    ]
    for one, user in zip(ones, users, strict=True):
        one.stage.machine.caller.principal.name = user

    for number, action in actions:
        one = ones[number]
        if action in {"small", "all"}:
            one.send(20_000 if action == "small" else len(one.unsent))
        elif action in {"hold", "go on"}:
            one.mute(action == "hold")
        else:
            {"answer": one.answer, "wake": one.wake, "end": one.end}[action]()
    for one in ones:
        one.mute(is_begin=False)
    goes_on = True
    while goes_on:
        goes_on = any([one.wake() for one in ones] + [one.answer() for one in ones])
        for one in ones:
            before = len(one.unsent)
            one.send(before)
            goes_on |= len(one.unsent) < before

    for one in ones:
        assert one.ended or (one.stage.machine.idle and not one.unsent)
        assert one.ended or not one.stage.pausing.reasons
        one.end()
    whole = shared.shared.whole_requests
    assert (whole.small.used_bytes, whole.large.used_bytes, whole._lines) == (0, 0, {})
