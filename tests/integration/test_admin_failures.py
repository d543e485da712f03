"""The controller dies or hangs in the middle of mutations: each result is true, looked up in the cluster afterwards."""

import asyncio
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count

import pytest

from kvota.admin import (
    AdminClient,
    ClientQuotaAlteration,
    KvotaError,
    NewPartitions,
    NewTopic,
    OutcomeUnknownError,
    Patience,
    QuotaEntity,
    Results,
    Security,
    Tls,
)
from kvota.client import BrokerError, Cluster, UnreachableError
from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED
from kvota.wire.error_code import ErrorCode

# Who waits long enough for another broker, and who does not.
PATIENT = Patience(request_timeout_ms=3_000, default_api_timeout_ms=60_000)
HASTY = Patience(request_timeout_ms=700, default_api_timeout_ms=1_200)
IN_ONE = 5
NO_SUCH_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
VALUES = {"producer_byte_rate": 1e6}
DESCRIBE_QUORUM = 55
THE_QUORUM = {
    "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
}
Said = dict[str, KvotaError | None]


@pytest.fixture(scope="module")
def cluster3() -> Iterator[LocalKafka]:
    """Three nodes, of which some die."""
    # Where a controller dies no broker is heard for a while; fenced all at once they refuse what patient clients ask.
    session = {"broker.session.timeout.ms": "9000"}
    with LocalKafka(
        nodes=3, host="127.0.0.2", tls="none", properties=session, java_options=SHORT_LIVED
    ) as kafka:
        yield kafka


@dataclass
class Mutations:
    """What one client asks for, one batch after the other, and what it is told of each.

    Attributes:
        admin: asks.
        name: what it makes begins with it.
        created: by topic, as all below.
        grown: from one partition to two.
        deleted: by name, or by id.
        limited: users of these names have a quota.
    """

    admin: AdminClient
    name: str
    created: Said = field(default_factory=dict)
    grown: Said = field(default_factory=dict)
    deleted: Said = field(default_factory=dict)
    limited: Said = field(default_factory=dict)

    async def run(self, is_over: asyncio.Event) -> None:
        """Ask until it is over."""
        for number in count():
            if is_over.is_set():
                return
            topics = [f"{self.name}-{number}-{index}" for index in range(IN_ONE)]
            made = await self.admin.create_topics([NewTopic(topic, 1, 1) for topic in topics])
            note(self.created, topics, made)
            for_growth = [topic for topic in topics[:2] if topic in made.values]
            grown = await self.admin.create_partitions(
                {topic: NewPartitions(2) for topic in for_growth}
            )
            note(self.grown, for_growth, grown)
            if topics[2] in made.values:
                key = made.values[topics[2]].topic_id if number % 2 else topics[2]
                assert key is not None
                gone = await self.admin.delete_topics([key])
                self.deleted[topics[2]] = gone.exception(key)
            users = {topic: QuotaEntity(user=topic) for topic in topics}
            limited = await self.admin.alter_client_quotas(
                ClientQuotaAlteration(user, VALUES) for user in users.values()
            )
            self.limited |= {topic: limited.exception(user) for topic, user in users.items()}

    def compare(self, partitions: Mapping[str, int], limited: set[str]) -> None:
        """Each result is as it is in the cluster."""
        for topic, error in self.created.items():
            gone = self.deleted.get(topic, error)
            if is_known(error) and is_known(gone):
                is_there = is_so(error, ErrorCode.TOPIC_ALREADY_EXISTS)
                is_gone = topic in self.deleted and is_so(gone, *NO_SUCH_TOPIC)
                assert (topic in partitions) is (is_there and not is_gone), f"{error}, {gone}"
        for topic, error in self.grown.items():
            if is_known(error):
                count = 2 if is_so(error, ErrorCode.INVALID_PARTITIONS) else 1
                assert partitions[topic] == count, f"{topic}: {error}"
        for user, error in self.limited.items():
            if is_known(error):
                assert (user in limited) is (error is None), f"{user}: {error}"


def is_so(error: KvotaError | None, *if_it_was: ErrorCode) -> bool:
    """Whether a result says that what was asked for is so.

    A broker hands a mutation to the controller, and hands it to the next one where that dies before it answers
    (``NodeToControllerChannelManager``). A mutation that had been carried out then is answered as one that comes
    too late: nobody else uses these names.
    """
    return error is None or (isinstance(error, BrokerError) and error.code in if_it_was)


def note(said: Said, topics: Sequence[str], results: Results[str, object]) -> None:
    said |= {topic: results.exception(topic) for topic in topics}


def is_known(error: KvotaError | None) -> bool:
    return not isinstance(error, OutcomeUnknownError)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", ["hangs", "dies"])
async def test_what_is_said_of_each_is_so_when_the_controller(
    cluster3: LocalKafka, what: str
) -> None:
    kafka, happens = cluster3, {"hangs": hang, "dies": die}[what]
    tls = Security(tls=Tls(cafile=kafka.authority.certificate))
    plain, encrypted = (kafka.bootstrap_servers, Security()), (kafka.tls_bootstrap_servers, tls)
    ways = {
        f"{what}-patient": (*plain, PATIENT),
        f"{what}-hasty": (*plain, HASTY),
        f"{what}-patient-tls": (*encrypted, PATIENT),
        f"{what}-hasty-tls": (*encrypted, HASTY),
    }
    clients = [
        Mutations(AdminClient(servers, security=security, patience=patience), name)
        for name, (servers, security, patience) in ways.items()
    ]
    is_over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(client.run(is_over))
        await asyncio.sleep(1)
        await happens(kafka, await controller(kafka))
        await asyncio.sleep(1)
        is_over.set()
    for client in clients:
        await client.admin.close()

    partitions, limited = await what_is_there(kafka)
    for client in clients:
        client.compare(partitions, limited)
    for patient in clients[::2]:
        known = [error for error in patient.created.values() if is_known(error)]
        refused = [error for error in known if not is_so(error, ErrorCode.TOPIC_ALREADY_EXISTS)]
        assert not refused, "who waits long enough is refused nothing"


async def controller(kafka: LocalKafka) -> int:
    """The node that leads the quorum; Metadata names any."""
    async with Cluster(kafka.bootstrap_servers.split(",")) as cluster, asyncio.timeout(60):
        while True:
            # Who is asked may still hand it to the one that has died.
            with suppress(UnreachableError):
                answer = await cluster.ask(DESCRIBE_QUORUM, THE_QUORUM)
                led = [part for topic in answer.topics for part in topic.partitions]
                if not int(answer.error_code) and not int(led[0].error_code):
                    return int(led[0].leader_id)
            await asyncio.sleep(0.1)


async def hang(kafka: LocalKafka, node_id: int) -> None:
    """It stands still for longer than hasty clients wait, and goes on then."""
    kafka.node(node_id).signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(3)
    finally:
        kafka.node(node_id).signal(signal.SIGCONT)


async def die(kafka: LocalKafka, node_id: int) -> None:
    """It is killed, so another one is the controller, and comes back."""
    await asyncio.to_thread(kafka.kill, node_id)
    await asyncio.sleep(2)
    assert await controller(kafka) != node_id
    await asyncio.to_thread(kafka.start_node, node_id)


async def what_is_there(kafka: LocalKafka) -> tuple[dict[str, int], set[str]]:
    """How many partitions each topic has, and which users a quota, once all brokers follow their controller."""
    async with AdminClient(kafka.bootstrap_servers) as admin:
        # Brokers learn in the controller's order: whoever knows the last topic knows all before it.
        last = f"last-{kafka.node(1).pid}-{kafka.node(2).pid}-{kafka.node(3).pid}"
        (await admin.create_topics([NewTopic(last, 1, 1)])).all()
        for node in kafka.nodes:
            async with AdminClient([f"{node.host}:{node.port}"]) as one, asyncio.timeout(60):
                while last not in await one.list_topics():  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        described = (await admin.describe_topics(await admin.list_topics())).values
        quotas = await admin.describe_client_quotas()
        (await admin.delete_topics([last])).all()
    partitions = {str(name): len(topic.partitions) for name, topic in described.items()}
    return partitions, {str(user.user) for user in quotas}
