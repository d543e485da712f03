"""What a determined client can do: each attack as a test with its bound, on a real Kafka.

An attack is one row of ``attacks/table.py``: a function that is given a ``Target`` (the broker under its
own quota, or a gateway in front of the same broker) and a time, sends what it likes with a
``WireClient``, and adds what it is given to a ``Got``. ``Field.run`` runs it with new counters, a well-behaved client
beside it in a process of its own, and an eye on the gateway's memory. The tests run short forms; ``./run bench
adversary`` runs the same functions for longer and prints the three ways side by side.

To add one:

1. write it in a module of ``attacks/``: ``async def run(target: Target, seconds: float, got: Got) -> None``,
   with ``for_seconds`` and ``connected``; it must come back in time even where nobody answers;
2. add an ``Attack`` to that module's ``ATTACKS`` (and a new module to ``attacks/table.py``);
3. write ``test_<point>.py``: ``await field.run(ATTACKS["name"], Way.SAMPLED_RATE, 8.0)`` for each way that
   is judged, and assert on what was given (``x_quota`` beside that of ``Way.BROKER``), on ``growth_mib``, on places. Of
   time only what is coarse, or beside what another waits at the broker itself meanwhile (``kept_waiting_ms``).

``field`` is one broker for all attacks, ``field_of_two`` two of them.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.adversary.field import Field

HERE = Path(__file__).parent
# The first test may fetch Kafka and start it on a busy machine.
TIMEOUT_S = 180


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    with Field(tmp_path_factory.mktemp("field")) as started:
        yield started


@pytest.fixture(scope="session")
def field_of_two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    with Field(tmp_path_factory.mktemp("field-of-two"), nodes=2) as started:
        yield started
