"""No message holds the loop for long: the work of each step is counted, whatever the message says.

Counted is what the interpreter's profiler tells of: calls and returns, of Python and of C. 200,000 of them are some 15 ms;
``./run bench steps`` has the times, those of copies of megabytes too.
"""

from collections.abc import Callable

import pytest
from tests.unit.counted_calls import with_calls
from tests.unit.steps.quota_messages import ALL_ATTACKS as ATTACKS
from tests.unit.steps.stand import Measure

CALLS_MAX = 250_000
SHRINK = 16
# Others take the same steps, and these many of them.
_LONG = {
    "create_topics_beyond_the_limit",
    "delete_known_topics",
    "delete_unknown_topics",
    "metadata_for_a_mutation_of_64_mib",
}


class Calls(Measure):
    """Counts the work of each step."""

    def __init__(self) -> None:
        super().__init__(shrink=SHRINK)
        self.of_steps: list[tuple[int, str]] = []

    def take(self, what: str, step: Callable[[], object]) -> None:
        _, calls = with_calls(step)
        self.of_steps.append((calls, what))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", sorted(ATTACKS.keys() - _LONG))
def test_no_step_is_long(name: str) -> None:
    calls = Calls()

    made = ATTACKS[name](calls)

    assert not made.is_closed, "it is within what the gateway takes"
    assert max(calls.of_steps)[0] < CALLS_MAX
    assert not made.house.loop.soon
