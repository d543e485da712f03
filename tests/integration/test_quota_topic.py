"""Quotas in a compacted topic: gateways share them, and none of what happens to the topic is silent."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from tests.endurance.followers import Followers, run_followers
from tests.integration.bandwidth_frames import produce_frame, produce_result
from tests.integration.brokers_in_step import await_served
from tests.integration.conftest import HOST
from tests.integration.raw_client import RawClient
from tests.integration.test_client_quotas import address, as_user, asked, gateway
from tests.unit.quota_api.written import alteration, altered, described, description

from kvota.app.gateway_process import GatewayProcess
from kvota.client import BrokerConnection
from kvota.localkafka import Acl, LocalKafka
from kvota.localkafka.cluster.acls import Operation
from kvota.localkafka.processes.command_line import SHORT_LIVED
from kvota.model.address import Address
from kvota.model.client_quotas import ClientQuotas
from kvota.model.quota_entity import QuotaEntity
from kvota.store.quota_document import QuotaDocument
from kvota.store.quota_topic import CLIENT_ID
from kvota.testing.frames import METADATA, request
from kvota.wire.apis import (
    ALTER_CLIENT_QUOTAS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
)

EVERYTHING = description(strict=False)
WAIT_S = 90.0
# More than docs/quotas-by-kafkas-tools.md says of a topic that is deleted: the machine may have other work.
MADE_AGAIN_S = 90.0
Quotas = dict[str, dict[str, float]]


_LOGIN = "client.quota.callback.kafka.admin"


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"quotas-{request.node.name.translate({ord('['): '-', ord(']'): None})}"[:200]


def sharing(
    folder: Path,
    kafka: LocalKafka | str,
    topic: str,
    *,
    more: str = "",
    enforce: tuple[str, ...] = (),
) -> GatewayProcess:
    """A gateway whose quotas are in this topic."""
    upstream = kafka if isinstance(kafka, str) else kafka.bootstrap_servers
    process = gateway(folder, upstream, source="topic", more=more, enforce=enforce)
    path = folder / "gateway.toml"
    path.write_text(path.read_text().replace("[quotas]", f'[quotas]\ntopic = "{topic}"'))
    return process


def until(is_so: Callable[[], bool], process: GatewayProcess) -> None:
    end = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end, process.log[-3000:]
        time.sleep(0.02)


def said(process: GatewayProcess, words: str) -> None:
    until(lambda: words in process.log, process)


def quotas(process: GatewayProcess) -> Quotas:
    """By the name of who has them."""
    with RawClient(address(process)) as client:
        found = described(asked(client, EVERYTHING))
    return {str(entity[0][1]): values for entity, values in found.items()}


def alter(process: GatewayProcess, user: str, value: float | None) -> tuple[int, str | None]:
    with RawClient(address(process)) as client:
        frame = alteration(({"user": user}, {"producer_byte_rate": value}))
        ((_, code, words),) = altered(asked(client, frame))
    return code, words


@pytest.fixture
def admin(kafka3: LocalKafka) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=kafka3.bootstrap_servers)
    yield client
    client.close()


def test_two_gateways_soon_see_each_others_quotas_also_after_a_brokers_death(
    kafka3: LocalKafka, tmp_path: Path
) -> None:
    # ``./run bench endurance`` holds them to the second that is promised.
    found = run_followers(
        kafka3, tmp_path, Followers(alterations=10, settings=1, deaths=1, within_ms=30_000)
    )

    assert found.missed == [], found.figures


def test_the_topic_is_made_with_the_right_settings(
    kafka3: LocalKafka, tmp_path: Path, topic: str, admin: KafkaAdminClient
) -> None:
    with sharing(tmp_path, kafka3, topic) as process:
        said(process, "has been read: quotas of")

    kafka3.await_topic(topic, 1)  # whichever node is asked
    (found,) = admin.describe_topics([topic])
    (partition,) = found["partitions"]
    assert len(partition["replica_nodes"]) == 3
    expected = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "max.message.bytes": str(8 * 2**20),
        "min.insync.replicas": "2",
    }
    assert settings_of(kafka3.nodes[0].address, topic).items() >= expected.items()


def settings_of(node: Address, topic: str) -> dict[str, str | None]:
    async def described() -> dict[str, str | None]:
        resource = {"resource_type": 2, "resource_name": topic, "configuration_keys": None}
        content = {"resources": [resource], "include_synonyms": False}
        connection = await BrokerConnection.open(node)
        answer = await connection.ask(DESCRIBE_CONFIGS, content, version=1)
        await connection.close()
        return {str(config.name): config.value for config in answer.results[0].configs}

    return asyncio.run(described())


def test_a_start_without_the_cluster_holds_clients_to_what_was_there_last(
    tmp_path: Path, topic: str
) -> None:
    with LocalKafka(host=HOST, java_options=SHORT_LIVED) as kafka:
        kafka.create_topic("written")
        # It cannot be read when the cluster is back, so what clients are held to is the snapshot's.
        admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
        forgets = {"cleanup.policy": "delete"}
        admin.create_topics([NewTopic(topic, 1, 1, topic_configs=forgets)])
        admin.close()
        kafka.kill(1)
        process = sharing(tmp_path, kafka, topic, enforce=("PRODUCE",))
        (tmp_path / "quotas.json").write_bytes(SLOW_QUOTAS)
        with process:
            said(process, "it cannot be read")
            assert "until it has been read those of 1 entities are in force, from" in process.log
            assert "The quotas in force stay, and alterations are refused meanwhile" in process.log
            kafka.start_node(1)
            await_served(kafka, "written")
            said(process, "cleanup.policy=delete")

            assert_held(process, ("written", 1))


SLOW = {"client-id": "slow"}
# How a quota of SLOW is written in the topic.
SLOW_ROW = b'{"client-id":"slow","quota":"producer_byte_rate"}'
SLOW_QUOTAS = QuotaDocument(
    ClientQuotas({QuotaEntity(client_id="slow"): {"producer_byte_rate": 1_000.0}})
).content()
Written = tuple[str, int]


@pytest.fixture
def written(kafka3: LocalKafka, topic: str, admin: KafkaAdminClient) -> Written:
    """A topic for traffic, and the node that leads it."""
    name = f"written-{topic.translate({ord(','): '-'})}"
    kafka3.create_topic(name)
    await_served(kafka3, name)
    (found,) = admin.describe_topics([name])
    return name, found["partitions"][0]["leader_id"]


def assert_held(process: GatewayProcess, written: Written) -> None:
    """Produce requests go through to the broker; those of SLOW are held to its quota, others are not."""
    assert throttled_ms(process, written, "slow") > 10_000
    assert throttled_ms(process, written, "other") == 0


def throttled_ms(process: GatewayProcess, written: Written, client_id: str) -> int:
    """Of a Produce request of 50 KB, as it stands in the answer."""
    topic, node = written
    frame = produce_frame(topic, value_bytes=50_000, client_id=client_id)
    host, port = address(process)
    with RawClient((host, port)) as client:
        client.ask(request(METADATA, 12, topics=()))  # by which a client knows where to go
    with RawClient((host, port + 1 + node)) as client:
        code, throttle_ms = produce_result(asked(client, frame)[4:], topic)
    assert code == 0
    return throttle_ms


def test_who_comes_back_has_what_was_altered_meanwhile(
    kafka3: LocalKafka, tmp_path: Path, topic: str
) -> None:
    with sharing(tmp_path / "a", kafka3, topic) as first:
        said(first, "has been read: quotas of")
        with sharing(tmp_path / "b", kafka3, topic) as second:
            said(second, "has been read: quotas of")
            assert alter(second, "alice", 5.0) == (0, None)
        assert alter(first, "alice", None) == (0, None)
        assert alter(first, "bob", 6.0) == (0, None)
        with second:
            until(lambda: quotas(second) == {"bob": {"producer_byte_rate": 6.0}}, second)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_forgets_is_refused(
    kafka3: LocalKafka,
    tmp_path: Path,
    topic: str,
    admin: KafkaAdminClient,
    written: Written,
    policy: str,
) -> None:
    topic = topic.replace(",", "-")
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"cleanup.policy": policy})])
    (tmp_path / "quotas.json").write_bytes(SLOW_QUOTAS)
    with sharing(tmp_path, kafka3, topic, enforce=("PRODUCE",)) as process:
        said(process, f"cleanup.policy={policy}, and quotas in it would be forgotten one day")
        code, words = alter(process, "alice", 5.0)
        assert_held(process, written)

    assert code == -1
    assert "cleanup.policy=compact" in str(words)


def test_what_a_broker_finds_too_large_is_stored_in_no_part_and_later_whole(
    kafka3: LocalKafka, tmp_path: Path, topic: str, admin: KafkaAdminClient
) -> None:
    small = {"cleanup.policy": "compact", "max.message.bytes": "20000"}
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs=small)])
    many = [({"user": f"user-{number}"}, {"producer_byte_rate": 5.0}) for number in range(1_000)]
    with sharing(tmp_path, kafka3, topic) as process:
        said(process, "has been read: quotas of")
        with RawClient(address(process)) as client, RawClient(address(process)) as other:
            client.send(alteration(*many))
            assert altered(asked(other, alteration(({"user": "alice"}, {"producer_byte_rate": 6.0}))))[0][1] == 0  # fmt: skip
            refused = altered(client.frame())
            assert {code for _, code, _ in refused} == {44}
            assert "(max.message.bytes=20000), so none was stored" in str(refused[0][2])
            assert quotas(process) == {"alice": {"producer_byte_rate": 6.0}}

            set_batch_bytes_max(kafka3, topic, 10**6)
            assert {code for _, code, _ in altered(asked(client, alteration(*many)))} == {0}
            assert len(quotas(process)) == 1_001

            # What it took is less now than when it was looked at.
            set_batch_bytes_max(kafka3, topic, 20_000)
            gone = [(entity, {"producer_byte_rate": None}) for entity, _ in many]
            refused = altered(asked(client, alteration(*gone)))
            assert {code for _, code, _ in refused} == {44}
            assert "(max.message.bytes is less now), so none was stored" in str(refused[0][2])
            assert len(quotas(process)) == 1_001


def set_batch_bytes_max(kafka: LocalKafka, topic: str, most: int) -> None:
    """When it is in force at the brokers, too, which follow the controller."""
    config = {"name": "max.message.bytes", "config_operation": 0, "value": str(most)}
    resource = {"resource_type": 2, "resource_name": topic, "configs": [config]}
    content = {"resources": [resource], "validate_only": False}

    async def alter() -> None:
        connection = await BrokerConnection.open(kafka.nodes[0].address)
        answer = await connection.ask(INCREMENTAL_ALTER_CONFIGS, content)
        assert [int(each.error_code) for each in answer.responses] == [0]
        await connection.close()

    asyncio.run(alter())
    end = time.monotonic() + WAIT_S
    for node in kafka.nodes:
        while settings_of(node.address, topic)["max.message.bytes"] != str(most):
            assert time.monotonic() < end
            time.sleep(0.02)


def test_rows_that_are_none_are_said_and_left_out(
    kafka3: LocalKafka, tmp_path: Path, topic: str, written: Written
) -> None:
    key = b'{"user":"alice","quota":"producer_byte_rate"}'
    with sharing(tmp_path, kafka3, topic, enforce=("PRODUCE",)) as process:
        said(process, "has been read: quotas of")
        assert alter(process, "alice", 5.0) == (0, None)
        limit_slow(process)
        producer = KafkaProducer(
            bootstrap_servers=kafka3.bootstrap_servers, compression_type="gzip"
        )
        for row in (
            (b"garbage", b"\xff\x00"),
            (key, b'{"version":2,"value":9.0}'),
            (key, b'{"version":1,"value":-1.0}'),
            (SLOW_ROW, b'{"version":2,"value":1e9}'),
        ):
            producer.send(topic, key=row[0], value=row[1])
        producer.flush()
        producer.close()
        # Transactions leave marks, which are no rows.
        transactional = Producer(
            {"bootstrap.servers": kafka3.bootstrap_servers, "transactional.id": topic}
        )
        transactional.init_transactions()
        transactional.begin_transaction()
        transactional.produce(topic, b'{"version":1,"value":7.0}', key.replace(b"alice", b"carol"))
        transactional.commit_transaction()
        assert alter(process, "bob", 6.0) == (0, None)
        found = quotas(process)
        assert_held(process, written)
    with process:
        until(lambda: process.log.count("has been read: quotas of") == 2, process)
        again = quotas(process)
        assert_held(process, written)

    rates = {"alice": 5.0, "carol": 7.0, "bob": 6.0, "slow": 1_000.0}
    assert found == again == {name: {"producer_byte_rate": rate} for name, rate in rates.items()}
    for words in (
        "its key is no JSON object",
        "a newer one has written it",
        "must be greater than 0",
    ):
        assert words in process.log


def limit_slow(process: GatewayProcess) -> None:
    with RawClient(address(process)) as client:
        frame = alteration((SLOW, {"producer_byte_rate": 1_000.0}))
        ((_, code, words),) = altered(asked(client, frame))
    assert (code, words) == (0, None)


def test_a_topic_that_is_deleted_is_made_again_with_what_is_in_force(
    kafka3: LocalKafka, tmp_path: Path, topic: str, admin: KafkaAdminClient, written: Written
) -> None:
    with (
        sharing(tmp_path / "a", kafka3, topic, enforce=("PRODUCE",)) as first,
        sharing(tmp_path / "b", kafka3, topic, enforce=("PRODUCE",)) as second,
    ):
        both = (first, second)
        for process in both:
            said(process, "has been read: quotas of")
        assert alter(first, "alice", 5.0) == (0, None)
        limit_slow(first)
        until(lambda: len(quotas(second)) == 2, second)
        before = quotas(first)

        admin.delete_topics([topic])
        end = time.monotonic() + MADE_AGAIN_S
        while min(process.log.count("has been read: quotas of") for process in both) < 2:
            for process in both:  # while it is gone, too
                assert_held(process, written)
                assert quotas(process) == before
            assert time.monotonic() < end, first.log[-3000:] + second.log[-3000:]
        filled = [process.log.count("that are in force are put into it") for process in both]
        # By whoever made it, and by the other one, too, where that has taken long.
        assert set(filled) in ({0, 1}, {1})
        assert alter(first, "bob", 6.0) == (0, None)
        after = {**before, "bob": {"producer_byte_rate": 6.0}}
        until(lambda: quotas(second) == after, second)
        assert quotas(first) == after
        for process in both:
            assert_held(process, written)


def test_a_quota_of_the_brokers_that_holds_the_gateway_back_is_said(
    kafka3: LocalKafka, tmp_path: Path, topic: str
) -> None:
    mine = {"client-id": CLIENT_ID}
    with sharing(tmp_path, kafka3, topic) as process:
        said(process, "has been read: quotas of")
        assert alter(process, "alice", 5.0) == (0, None)
        with RawClient(kafka3.nodes[0].address) as direct:
            try:
                asked(direct, alteration((mine, {"consumer_byte_rate": 1.0})))
                until(lambda: alter(process, "bob", 6.0)[0] != 0, process)
                said(process, f"(consumer_byte_rate) holds client id {CLIENT_ID} back")
            finally:
                asked(direct, alteration((mine, {"consumer_byte_rate": None})))


def login(name: str, secret: str) -> str:
    """The gateway's own."""
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f"username='{name}' password='{secret}';"
    )
    return (
        f'\n[kafka]\n"{_LOGIN}.security.protocol" = "SASL_PLAINTEXT"\n'
        f'"{_LOGIN}.sasl.mechanism" = "SCRAM-SHA-256"\n"{_LOGIN}.sasl.jaas.config" = "{jaas}"\n'
    )


EVERY_QUOTA = {"components": [], "strict": False}
OF_ALICE = {
    "entries": [
        {
            "entity": [{"entity_type": "user", "entity_name": "alice"}],
            "ops": [{"key": "producer_byte_rate", "value": 5e6, "remove": False}],
        }
    ],
    "validate_only": False,
}


async def test_it_logs_in_with_a_user_of_its_own(
    acl_kafka: LocalKafka, tmp_path: Path, topic: str
) -> None:
    more = login("operator", "operator-secret")
    with sharing(tmp_path, acl_kafka.sasl_bootstrap_servers, topic, more=more) as process:
        await asyncio.to_thread(said, process, "has been read: quotas of")
        done = await as_user(process, "operator", ALTER_CLIENT_QUOTAS, OF_ALICE)
        found = await as_user(process, "operator", DESCRIBE_CLIENT_QUOTAS, EVERY_QUOTA)
        log = process.log

    assert [int(each.error_code) for each in done.entries] == [0]
    assert [value.value for each in found.entries for value in each.values] == [5e6]
    assert "operator-secret" not in log


@pytest.mark.parametrize(
    ("name", "secret", "words"),
    [
        ("operator", "wrong", "Authentication failed during authentication due to invalid credentials"),
        ("", "", "it has closed before it has answered anything: maybe it wants a login, and none is set"),
    ],
    ids=["wrong", "none"],
)  # fmt: skip
def test_a_login_that_is_refused_is_said(
    acl_kafka: LocalKafka, tmp_path: Path, topic: str, name: str, secret: str, words: str
) -> None:
    more = login(name, secret) if name else ""
    with sharing(tmp_path, acl_kafka.sasl_bootstrap_servers, topic, more=more) as process:
        said(process, "it cannot be read")
        (line,) = (line for line in process.log.splitlines() if "it cannot be read" in line)

    assert words in line
    assert (f'login of "{name}" by SCRAM-SHA-256: sasl_authentication_failed (58)' in line) == bool(
        name
    )
    assert "The quotas in force stay, and alterations are refused meanwhile" in line
    assert "has been read: quotas of" not in process.log


async def test_each_right_that_the_gateways_own_user_lacks_is_named(
    acl_kafka: LocalKafka, tmp_path: Path, topic: str
) -> None:
    """The gateway goes on by itself as bob gets one right after the other."""
    rights: list[Operation] = ["describe", "create", "describe_configs", "read", "write"]
    with sharing(
        tmp_path, acl_kafka.sasl_bootstrap_servers, topic, more=login("bob", "bob-secret")
    ) as process:
        for right in rights:
            words = (
                f"topic_authorization_failed (29): the gateway's own user lacks {right.upper()} on it; it needs "
                "READ, WRITE, DESCRIBE and DESCRIBE_CONFIGS, and CREATE until the topic is there."
            )
            if right == "write":
                await asyncio.to_thread(said, process, "has been read: quotas of")
            else:
                await asyncio.to_thread(said, process, words)
                assert "has been read: quotas of" not in process.log
            refused = await as_user(process, "operator", ALTER_CLIENT_QUOTAS, OF_ALICE)
            (answer,) = refused.entries
            assert (int(answer.error_code), words in answer.error_message) == (-1, True), answer
            if right in {"create", "read"}:  # where it gets furthest
                await asyncio.sleep(1.2)  # and tries again
            assert process.log.count(words) == 1
            acl_kafka.add_acls(Acl(user="bob", operation=right, resource="topic", name=topic))
        found = await as_user(process, "operator", DESCRIBE_CLIENT_QUOTAS, EVERY_QUOTA)
        done = await as_user(process, "operator", ALTER_CLIENT_QUOTAS, OF_ALICE)

    assert found.entries == ()
    assert [int(each.error_code) for each in done.entries] == [0]
    assert process.log.count("; it is made") == 1
