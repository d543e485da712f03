"""A broker's settings tell clients no address, whichever client asks in whichever version."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as KafkaPythonResource
from kafka.admin import ConfigResourceType
from tests.integration.address_scan import addresses_in
from tests.integration.raw_client import RawClient
from tests.integration.tapped_gateway import TappedGateway, tapped_gateway

from kvota.localkafka import LocalKafka
from kvota.testing.frames import DESCRIBE_CONFIGS, parts, request

BROKER = 4
# What LocalKafka sets, of what holds addresses.
SET = {"listeners", "advertised.listeners", "controller.quorum.voters"}


@pytest.fixture(scope="module")
def gateway(kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TappedGateway]:
    with tapped_gateway(tmp_path_factory.mktemp("broker-configs"), kafka) as tapped:
        yield tapped
        assert [line for line in tapped.log.splitlines() if " ERROR " in line] == []


def described(client: RawClient, node_id: int, version: int) -> dict[str, Any]:
    """All settings of a broker, with their synonyms."""
    wanted = {"resource_type": BROKER, "resource_name": str(node_id), "configuration_keys": None}
    resources = parts(DESCRIBE_CONFIGS, version, "request", "DescribeConfigsResource", wanted)
    options = {"include_synonyms": True} if version >= 1 else {}
    options |= {"include_documentation": False} if version >= 3 else {}
    with client:
        answer = client.ask(request(DESCRIBE_CONFIGS, version, resources=resources, **options))
    (result,) = answer.results
    assert result.error_code == 0, result.error_message
    return {config.name: config for config in result.configs}


def leaking(configs: dict[str, Any], kafka: LocalKafka) -> set[str]:
    """The settings in whose text a broker's address stands."""
    return {name for name, config in configs.items() if addresses_in(f"{config}".encode(), kafka)}


@pytest.mark.parametrize("version", range(1, 5))
def test_all_settings_of_a_broker_in_every_version(
    gateway: TappedGateway, kafka: LocalKafka, version: int
) -> None:
    node = kafka.nodes[0]

    straight = described(RawClient(node.address), node.node_id, version)
    told = described(RawClient(gateway.node(node.node_id)), node.node_id, version)

    assert leaking(straight, kafka) == SET
    assert leaking(told, kafka) == set()
    assert {name for name in straight if told[name] != straight[name]} == SET
    assert {(told[name].value, told[name].is_sensitive) for name in SET} == {(None, True)}
    gateway.assert_no_address_leaked()


def test_kafka_configs_describes_a_broker(gateway: TappedGateway, kafka: LocalKafka) -> None:
    done = kafka.run_tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", gateway.bootstrap_servers, "--describe", "--all"),
        *("--entity-type", "brokers", "--entity-name", str(kafka.nodes[0].node_id)),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "advertised.listeners=null sensitive=true" in done.stdout
    assert "num.partitions=" in done.stdout
    assert addresses_in(done.stdout.encode(), kafka) == []
    gateway.assert_no_address_leaked()


def test_librdkafkas_admin_client_describes_a_broker(
    gateway: TappedGateway, kafka: LocalKafka
) -> None:
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap_servers})
    resource = ConfigResource(ConfigResource.Type.BROKER, str(kafka.nodes[0].node_id))

    configs = admin.describe_configs([resource])[resource].result(60)

    assert {name: configs[name].value for name in SET} == dict.fromkeys(SET)
    assert configs["num.partitions"].value is not None
    gateway.assert_no_address_leaked()


def test_kafka_pythons_admin_client_describes_a_broker(
    gateway: TappedGateway, kafka: LocalKafka
) -> None:
    admin = KafkaAdminClient(bootstrap_servers=gateway.bootstrap_servers)
    resource = KafkaPythonResource(ConfigResourceType.BROKER, str(kafka.nodes[0].node_id))

    told = f"{admin.describe_configs([resource], config_filter='all')}"
    admin.close()

    assert "advertised.listeners" in told
    assert addresses_in(told.encode(), kafka) == []
    gateway.assert_no_address_leaked()


@pytest.mark.parametrize(("key", "version"), [(33, 0), (33, 1), (33, 2), (44, 0), (44, 1)])
def test_a_refused_setting_names_no_listener_of_the_broker(
    gateway: TappedGateway, kafka: LocalKafka, key: int, version: int
) -> None:
    node = kafka.nodes[0]
    setting = {"name": "listener.security.protocol.map", "value": "CLIENT:SSL"}
    setting |= {"config_operation": 0} if key == 44 else {}  # type: ignore[dict-item]
    configs = parts(key, version, "request", "AlterableConfig", setting)
    wanted = {"resource_type": BROKER, "resource_name": str(node.node_id), "configs": configs}
    resources = parts(key, version, "request", "AlterConfigsResource", wanted)
    asked = request(key, version, resources=resources, validate_only=True)

    with RawClient(node.address) as direct, RawClient(gateway.node(node.node_id)) as client:
        (straight,), (told,) = direct.ask(asked).responses, client.ask(asked).responses

    assert addresses_in(straight.error_message.encode(), kafka) != []
    assert addresses_in(told.error_message.encode(), kafka) == []
    assert told.error_message.endswith("No security protocol defined for listener PLAINTEXT")
    gateway.assert_no_address_leaked()
