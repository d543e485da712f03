"""How many functions a Produce and its answer call on their way through a connection: each costs everybody.

Counted by the interpreter's own profiler, C functions included, so no machine is too busy for it;
``./run bench round_trip`` has the times of just these.
"""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.counted_calls import with_calls
from tests.unit.steps.hostile import stand
from tests.unit.steps.stand import Measure

from kvota.testing.frames import fetch, fetch_answer, produce, produce_answer
from kvota.testing.stage import Cluster, Stage, quotas

BENCH: dict[str, Any] = runpy.run_path(
    str(Path(__file__).parents[3] / "bench" / "round_trip.py"), run_name="round_trip"
)
# Of both directions, of a connection without its driver.
MACHINE_CALLS_MAX = 12
# The same with the driver that reads and writes the sockets.
DRIVER_CALLS_MAX = 26
# Calls and returns for a Produce that comes in two reads, and for a Fetch, each with its answer. A quota that
# nobody has, or a dataclass where a tuple does, is seen here.
PRODUCE_IN_PARTS_CALLS_MAX = 160
FETCH_CALLS_MAX = 165


@pytest.mark.parametrize("own", [False, True])
def test_a_request_calls_no_more_whoever_has_written_the_quota_callback(own: bool) -> None:
    callback = BENCH["own_callback"]() if own else None
    way = BENCH["way_of"](BENCH["machine"](callback), is_asked=own)

    names = BENCH["calls"](*way)

    assert len(names) <= MACHINE_CALLS_MAX, names
    # A callback is asked about a client, never about a request.
    assert not {"quota_metric_tags", "quota_limit"} & set(names)


def test_the_driver_adds_no_more_calls() -> None:
    request, answer = BENCH["conversation"]()
    calls = Calls()
    made = stand(calls)
    for _ in range(2):  # the first one is looked up and dialled
        calls.names.clear()
        assert made.client(request) == request
        assert made.broker(answer) == answer

    assert len(calls.names) <= DRIVER_CALLS_MAX, calls.names


def test_a_large_produce_pays_for_no_quota_that_is_off() -> None:
    machine = Stage(Cluster(quotas(PRODUCE=1e11))).machine
    request, answer = produce(13, records=b"r" * 65_000), produce_answer(13)

    def both_ways() -> bytes | bytearray | None:
        machine.from_client(request[:32_768], 1_000_000)
        machine.from_client(request[32_768:], 1_000_100)
        return machine.from_upstream(answer, 1_000_200)

    both_ways()  # the first one is looked up

    assert with_calls(both_ways) <= (answer, PRODUCE_IN_PARTS_CALLS_MAX)


def test_a_fetch_calls_no_more() -> None:
    machine = Stage(Cluster(quotas(FETCH=1e11))).machine
    request, answer = fetch(18), fetch_answer(18, records=b"f" * 60_000)

    def both_ways() -> bytes | bytearray | None:
        machine.from_client(request, 1_000_000)
        return machine.from_upstream(answer, 1_000_200)

    both_ways()  # the first ones are looked up, and say what to expect
    both_ways()

    assert with_calls(both_ways) <= (answer, FETCH_CALLS_MAX)


class Calls(Measure):
    """Notes what each step calls."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def take(self, what: str, step: Any) -> None:
        names: list[str] = []

        def note(frame: Any, event: str, function: Any) -> None:
            if event == "call":
                names.append(frame.f_code.co_name)
            elif event == "c_call":
                names.append(function.__name__)

        sys.setprofile(note)
        try:
            step()
        finally:
            sys.setprofile(None)
        self.names += names[1:-1]  # without the stand's own step, and setprofile
