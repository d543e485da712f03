"""Whom the admin client asks, and when: brokers that hang, and brokers that have said that they do not listen."""

import asyncio
import contextlib
from dataclasses import replace

import pytest
from tests.unit.admin.brokers import Brokers, Turn, two_brokers

from kvota.admin import AdminClient, ApiTimeoutError, NewTopic, Patience
from kvota.client import Cluster

# A whole call has less than the 10 s after which a connection that hangs is given up.
PATIENT = Patience(
    request_timeout_ms=5_000,
    default_api_timeout_ms=8_000,
    retry_backoff_ms=5,
    retry_backoff_max_ms=20,
)


def admin_of(brokers: Brokers, *, request_timeout_ms: int = 5_000) -> AdminClient:
    patience = replace(PATIENT, request_timeout_ms=request_timeout_ms)
    # The cluster is patient in any case: only what is asked of a broker that hangs is soon given up.
    return AdminClient.of(Cluster(brokers.bootstrap_servers), patience=patience)


async def test_a_broker_that_hangs_holds_nobody_up_where_another_one_is_well() -> None:
    async with two_brokers() as brokers, admin_of(brokers, request_timeout_ms=200) as admin:
        await admin.describe_cluster()
        brokers.hung = {1}

        assert len((await admin.describe_cluster()).nodes) == 2


async def test_the_new_controller_is_found_where_the_old_one_hangs() -> None:
    # The new controller is asked once only, and has as long to answer as the old one that does not.
    async with two_brokers() as brokers, admin_of(brokers, request_timeout_ms=2_000) as admin:
        await admin.create_topics([NewTopic("a", 1, 1)])
        brokers.hung, brokers.controller_id = {1}, 2

        results = await admin.create_topics([NewTopic("b", 1, 1)])

        assert list(results.all()) == ["b"]
        assert [node_id for node_id, _, _ in brokers.asked] == [1, 2]


async def test_whoever_asks_any_broker_asks_one_that_listens() -> None:
    async with two_brokers(Turn(throttle_ms=20_000)) as brokers, admin_of(brokers) as admin:
        await admin.create_topics([NewTopic("a", 1, 1)])

        assert len((await admin.describe_cluster()).nodes) == 2


async def test_a_wait_that_was_told_is_not_shortened_by_another_answer() -> None:
    turns = [Turn(throttle_ms=20_000), Turn(throttle_ms=1)]
    async with two_brokers(*turns) as brokers, admin_of(brokers) as admin:
        await admin.start()
        await asyncio.gather(*(admin.create_topics([NewTopic(name, 1, 1)]) for name in "ab"))

        late = await admin.create_topics([NewTopic("c", 1, 1)], timeout_ms=100)

        with pytest.raises(ApiTimeoutError, match=r"does not listen for (1\d\.|20\.0)"):
            late.all()
        assert len(brokers.asked) == 2


async def test_why_the_try_before_failed_is_told_where_the_deadline_cuts_one_off() -> None:
    came: list[asyncio.Task[None] | None] = []

    async def leaves_twice_and_then_hangs(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        came.append(asyncio.current_task())
        with contextlib.suppress(OSError):
            # The second one that comes only looks for other brokers.
            await (reader.read(1) if len(came) <= 2 else reader.read())
        writer.close()

    async with await asyncio.start_server(leaves_twice_and_then_hangs, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        admin = AdminClient([f"{host}:{port}"], patience=PATIENT)
        results = await admin.create_topics([NewTopic("a", 1, 1)], timeout_ms=1_500)
        await admin.close()
        await asyncio.wait({task for task in came if task is not None})

    with pytest.raises(ApiTimeoutError, match=r"did not listen in time; before that: .* is lost"):
        results.all()
