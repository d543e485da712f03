"""A broker dies in the middle of topic mutations: each result is true, looked up in the cluster afterwards."""

import asyncio
from uuid import UUID

import pytest

from kvota.admin import AdminClient, KvotaError, NewTopic, OutcomeUnknownError, Patience, Results
from kvota.client import CONTROLLER
from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED

PATIENCE = Patience(request_timeout_ms=5_000, default_api_timeout_ms=60_000)
WORKERS, OLD, IN_ONE = 4, 150, 5
Said = dict[str, KvotaError | None]


@pytest.mark.timeout(300)
async def test_what_is_said_of_each_topic_is_so_when_the_controller_dies() -> None:
    with LocalKafka(nodes=3, host="127.0.0.2", java_options=SHORT_LIVED) as kafka:
        async with AdminClient(kafka.bootstrap_servers, patience=PATIENCE) as admin:
            ids = await _old_topics(admin)
            # Whom it asks is killed while requests are under way.
            asked = await admin._asker.cluster.connection_to(CONTROLLER)
            node_id = next(node.node_id for node in kafka.nodes if node.address == asked.address)
            created: Said = {}
            deleted: Said = {}
            is_over = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                for worker in range(WORKERS):
                    group.create_task(_create(admin, worker, created, is_over))
                group.create_task(_delete(admin, ids, deleted, is_over))
                await asyncio.sleep(1)
                await asyncio.to_thread(kafka.kill, node_id)
                await asyncio.sleep(4)
                is_over.set()

            await asyncio.sleep(1)  # the brokers follow their controller
            there = set(await admin.list_topics())

    _compare(created, there, done=True)
    _compare(deleted, there, done=False)


async def _old_topics(admin: AdminClient) -> dict[UUID, str]:
    old = [f"old-{number}" for number in range(OLD)]
    (await admin.create_topics([NewTopic(name, 1, 1) for name in old])).all()
    while len(listed := await admin.list_topics()) < OLD:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    return {topic.topic_id: name for name, topic in listed.items() if topic.topic_id}


async def _create(admin: AdminClient, worker: int, said: Said, is_over: asyncio.Event) -> None:
    number = 0
    while not is_over.is_set():
        names = [f"new-{worker}-{number}-{index}" for index in range(IN_ONE)]
        results = await admin.create_topics([NewTopic(name, 1, 1) for name in names])
        said |= {name: results.exception(name) for name in names}
        number += 1


async def _delete(
    admin: AdminClient, ids: dict[UUID, str], said: Said, is_over: asyncio.Event
) -> None:
    for topic_id, name in ids.items():
        if is_over.is_set():
            return
        results: Results[str | UUID, None] = await admin.delete_topics([topic_id])
        said[name] = results.exception(topic_id)


def _compare(said: Said, there: set[str], *, done: bool) -> None:
    for name, error in said.items():
        if not isinstance(error, OutcomeUnknownError):
            assert (name in there) is (done if error is None else not done), f"{name}: {error}"
    succeeded = sum(error is None for error in said.values())
    assert succeeded > len(said) / 2, "most of it goes well all the same"
