"""What held under load, faults and patience goes on to hold: long runs in their short forms.

Each part is a function here that is given a broker, a folder and a plan, and returns ``Findings``: figures, and what did not hold.
The tests run short plans; ``./run bench endurance`` runs the same functions with longer ones.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.endurance.gated_kafka import HOST
from tests.endurance.rolling import SECRET, USER

from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED

HERE = Path(__file__).parent
# The first test may fetch Kafka and start it on a busy machine.
TIMEOUT_S = 480


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """A node to kill: it is back before a test ends. With a user, and TLS, for who wants them."""
    local = LocalKafka(host=HOST, users={USER: SECRET}, tls="none", java_options=SHORT_LIVED)
    local.start()
    yield local
    local.stop(keep_logs=request.session.testsfailed > 0)
