"""The gateway's own eye on slow senders, in simulated time: whoever keeps others waiting for room has to go.

Only in worlds of adversaries, some of whom announce much and then stand still, or send byte by byte (``pipe.Stall``).
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tests.simulation.pipe import Stall
from tests.simulation.relays import Relay
from tests.simulation.timeline import Timeline, Timer

from kvota.gateway.settings import GatewayLimits
from kvota.gateway.slow_senders import SlowSenders
from kvota.session.connection import Connection
from kvota.session.pausing import Reason
from kvota.session.shared import Shared

STALLING_RATIO = 0.3
_SWEEP_US = 2_000_000
_PAUSES_US = (100_000, 500_000, 20_000_000, 200_000_000)
# Words of ``slow_senders``: these have waited for room.
_NO_ROOM, _NO_MEMORY = "no room for its request", "no memory for its topic mutation"


def drawn_stall(rng: Random, all_bytes: int) -> Stall:
    """Somewhere in what a client sends, for longer than others may be kept waiting, or less."""
    return Stall(
        after_bytes=rng.randint(1, max(1, all_bytes)),
        single_bytes=rng.choice((1, 1, 3, 20)),
        pause_us=rng.choice(_PAUSES_US),
    )


class _Loop:
    """As much of an event loop as is asked for."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def time(self) -> float:
        return self._timeline.now_us / 1e6

    def call_later(self, delay_s: float, action: Callable[..., None], *args: object) -> Timer:
        return self._timeline.after_us(round(delay_s * 1e6), lambda: action(*args))


class _Looked:
    """A connection as it is looked at."""

    def __init__(self, relay: Relay, relays: list[Relay]) -> None:
        self._relay = relay
        self._relays = relays
        self.number = relay.watch.number

    @property
    def machine(self) -> Connection:
        return self._relay.machine

    @property
    def closing(self) -> bool:
        return self._relay.closed

    @property
    def has_asked(self) -> bool:
        relay = self._relay
        asked = relay.pausing.reasons & (Reason.DIALLING | Reason.ASKING)
        return relay.broker is not None or bool(asked)

    def close(self, reason: str, *, by: str) -> None:
        """It is sent away; what has gone up may lose its answer.

        Raises:
            InvariantError: for what others do.
        """
        assert by == "slow"
        is_starved = reason.startswith(_NO_ROOM)
        if reason.startswith(_NO_MEMORY):
            is_starved = not (self._stands_behind_its_own or self._a_broker_is_slow)
        if is_starved:
            raise self._relay.watch.fail(f"is sent away: {reason}")
        self._relay.watch.broker_gone = True
        self._relay.close()

    @property
    def _stands_behind_its_own(self) -> bool:
        """True while another large mutation of the same user has the turn."""
        whole = self._relay.machine.caller.whole
        if whole._place is None:
            return False
        user, turn = whole._place
        return not whole._all.is_first(turn, user)

    @property
    def _a_broker_is_slow(self) -> bool:
        """True while memory is taken for what a broker has not answered: that is no client's doing."""
        return any(relay.machine.caller.whole.in_use for relay in self._relays)


class Senders:
    """``SlowSenders`` over the connections of a world.

    Args:
        relays: lists them.
        is_over: true when nobody comes any more and all have gone.
    """

    def __init__(
        self,
        shared: Shared,
        timeline: Timeline,
        relays: Callable[[], list[Relay]],
        is_over: Callable[[], bool],
    ) -> None:
        self._relays = relays
        self._is_over = is_over
        self._timeline = timeline
        places: Any = self
        self._slow = SlowSenders(places, GatewayLimits(), shared.budgets, shared.early_charges)
        loop: Any = _Loop(timeline)
        self._slow.watch(loop)
        self._timeline.after_us(_SWEEP_US, self._sweep)

    def __iter__(self) -> Iterator[_Looked]:
        relays = [relay for relay in self._relays() if not relay.closed]
        return iter([_Looked(relay, relays) for relay in relays])

    def _sweep(self) -> None:
        self._slow.sweep(self._timeline.now_us / 1000)
        if not self._is_over():
            self._timeline.after_us(_SWEEP_US, self._sweep)
