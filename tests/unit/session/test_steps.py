"""One segment with many client ids: a step looks up so many, then others come first."""

import pytest

from kvota.session.commands import Do
from kvota.session.exchanges.own_node import LOOK_UP_US
from kvota.session.pausing import Reason
from kvota.session.step_work import STEP_WORK_US
from kvota.testing.frames import fetch, produce, split
from kvota.testing.stage import Cluster, Stage, quotas

LOOK_UPS_PER_STEP = STEP_WORK_US // LOOK_UP_US
NAMES = 3 * LOOK_UPS_PER_STEP + 5


def frames(kind: str, count: int = NAMES) -> list[bytes]:
    make = produce if kind == "produce" else fetch
    return [make(correlation=number, client=f"client-{number}") for number in range(count)]


@pytest.mark.parametrize("kind", ["produce", "fetch"])
def test_a_step_looks_up_so_many_clients(kind: str) -> None:
    # In shadow mode, where many Fetches of a connection may be under way.
    cluster = Cluster(quotas(PRODUCE=1_000_000, FETCH=1_000_000), enforced=frozenset())
    machine = Stage(cluster).machine
    sent = frames(kind)

    up = machine.from_client(b"".join(sent), 1)
    gone_up = [split(bytes(up or b""))]
    while machine.pausing.reasons:
        assert machine.pausing.reasons == Reason.STEP
        assert machine.pauses_reading
        assert machine.commands == [(Do.YIELD, Reason.STEP)]
        machine.commands.clear()
        gone_up.append(split(bytes(machine.resume(Reason.STEP, 1) or b"")))

    *full, last = (len(step) for step in gone_up)
    # A Fetch is looked at for some µs more.
    most = LOOK_UPS_PER_STEP if kind == "produce" else LOOK_UPS_PER_STEP * 9 // 10
    assert full == [most] * 3
    assert last == NAMES - 3 * most
    assert [frame[8:12] for step in gone_up for frame in step] == [frame[8:12] for frame in sent]


def test_a_client_that_keeps_its_name_is_not_held_up() -> None:
    machine = Stage(Cluster(limits={"in_flight_max": 1_000})).machine
    sent = b"".join(produce(correlation=number) for number in range(1_000))

    assert machine.from_client(sent, 1) == sent
    assert not machine.pausing.reasons
