"""Client libraries, each directly at three brokers with TLS, SCRAM and ACLs and through the gateway: they are told the same.

Some come a third time by another listener, where all nodes have one port and are found by their names (SNI). Two more clients are in
``./run bench client_matrix`` only: franz-go, which is compiled for most of a minute, and kafkajs, which takes over a minute each way.
"""

from collections.abc import Iterator

import pytest
from tests.integration.matrix.matrix import BY_NAME, THROUGH, Outcome, run_matrix, secured_place
from tests.integration.tapped_gateway import TappedGateway

# All of them run before the first test, each for up to a minute and more on a busy machine.
pytestmark = pytest.mark.timeout(600)

CLIENTS = ("Java 4.3.1", "Java 2.5.1", "librdkafka", "aiokafka", "kafka-python")
RECORDS = 300
READ_ALL = f"{RECORDS} records, sum {sum(range(RECORDS))}"
ALL_READ = {f"{group}: {READ_ALL}" for group in ("classic", "consumer", "share")}
GROUPS_OF = {"Java 4.3.1": 3, "librdkafka": 3}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TappedGateway]:
    with secured_place(tmp_path_factory.mktemp("matrix")) as made:
        yield made


@pytest.fixture(scope="module")
def outcomes(place: TappedGateway, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    return run_matrix(
        place, tmp_path_factory.mktemp("clients"), CLIENTS, records=RECORDS, at_once=3
    )


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_is_told_the_same_through_the_gateway(
    outcomes: dict[str, Outcome], name: str
) -> None:
    outcome = outcomes[name]
    assert outcome.is_same, "\n".join(outcome.differences())
    said = outcome.steps[THROUGH]
    assert len(ALL_READ & set(said)) == GROUPS_OF.get(name, 1)
    assert "transactions: 10 records, sum 45" in said
    # Two markers of transactions are behind the 20 records.
    assert any(line.startswith("transactions' end") and "22" in line for line in said)
    assert [line for line in said if line.startswith("denied") and line.endswith("none")] == []
    assert not said[-1].endswith("none"), said[-1]


def test_clients_find_each_node_by_its_name_at_one_port(
    place: TappedGateway, outcomes: dict[str, Outcome]
) -> None:
    assert {name for name, one in outcomes.items() if BY_NAME in one.steps} == {
        "librdkafka",
        "aiokafka",
    }
    assert place.tap.called >= place.named_nodes()


def test_no_client_gets_a_brokers_address(
    place: TappedGateway, outcomes: dict[str, Outcome]
) -> None:
    assert len(outcomes) == len(CLIENTS)
    place.assert_no_address_leaked()
    assert "Traceback" not in place.log
