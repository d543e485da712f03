"""One connection to brokers that answer as they should, late, wrongly, or not at all."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
from tests.unit.admin.brokers import two_brokers

from kvota.client import ANY, BrokerConnection, ClientLimits, Cluster, Security
from kvota.client.messages import decode, encode, known_versions
from kvota.model.errors import ProtocolError, UnreachableError, UsageError
from kvota.testing.scripted_broker import ScriptedBroker
from kvota.wire.apis import API_VERSIONS, APIS, CREATE_TOPICS, DESCRIBE_CLUSTER, METADATA

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Address = tuple[str, int]
NO_TOPICS = {"topics": [], "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}  # fmt: skip
LIMITS = ClientLimits(connect_s=10, request_s=10, answer_bytes_max=10_000)


@contextlib.asynccontextmanager
async def broker(serve: Serve) -> AsyncIterator[Address]:
    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()
    finally:
        server.close()


async def frame_from(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


async def obliging(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    scripted = ScriptedBroker()
    while data := await reader.read(65_536):
        writer.write(scripted.answers(data))


def obliging_until(key: int, then: Serve) -> Serve:
    """Answers what comes before a request of this API."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scripted = ScriptedBroker()
        while (frame := await frame_from(reader))[5] != key:
            writer.write(scripted.answers(frame))
        await then(reader, writer)

    return serve


def saying(answer: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await reader.read()

    return serve


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def leaving(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_many_tasks_ask_at_once_and_each_gets_its_own_answer() -> None:
    async with broker(obliging) as address:
        connection = await BrokerConnection.open(address, limits=ClientLimits(in_flight_max=5))

        answers = await asyncio.gather(
            *(
                connection.ask(METADATA, {**NO_TOPICS, "topics": [{"topic_id": None, "name": f"t{n}"}]})
                for n in range(50)
            )
        )  # fmt: skip

        assert [str(answer.topics[0].name) for answer in answers] == [f"t{n}" for n in range(50)]
        await connection.close()


async def test_the_highest_version_of_both_is_spoken() -> None:
    async with broker(obliging) as address:
        connection = await BrokerConnection.open(address)

        assert connection.version_of(METADATA) == min(13, known_versions(METADATA)[1])
        with pytest.raises(UsageError, match="does not offer it: create_topics is spoken here"):
            connection.version_of(CREATE_TOPICS)
        await connection.close()


async def test_a_task_that_gives_up_leaves_the_connection_usable() -> None:
    async with broker(obliging) as address:
        connection = await BrokerConnection.open(address)
        task = asyncio.get_running_loop().create_task(connection.ask(METADATA, NO_TOPICS))
        await asyncio.sleep(0)

        task.cancel()

        assert (await connection.ask(METADATA, NO_TOPICS)).brokers
        await connection.close()


@pytest.mark.parametrize(
    ("serve", "error", "said"),
    [
        (silent, UnreachableError, "has not let us in within 0.5 s"),
        (leaving, UnreachableError, "is lost: "),
        (saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), ProtocolError, "announces an answer of 1213486160"),
        (saying((2**31 - 1).to_bytes(4, "big")), ProtocolError, "announces an answer of 2147483647"),
        (saying(b"\0\0\0\0"), ProtocolError, "announces an answer of 0 bytes"),
        (saying(b"\0\0\0\x08\0\0\0\x63\0\0\0\0"), ProtocolError, "answers what nobody has asked"),
        (saying(b"\0\0\0\x08\0\0\0\x01\0\0\xff\xff"), ProtocolError, "api_versions v. *: the answer cannot be read"),
        (saying(b"\0\0\0\x40\0\0\0\x01\0\0"), UnreachableError, "has not let us in within"),
    ],
    ids=["silent", "leaves", "http", "huge", "empty", "unasked", "garbage", "half"],
)  # fmt: skip
async def test_what_is_no_broker_is_named_and_not_waited_for(
    serve: Serve, error: type[Exception], said: str
) -> None:
    async with broker(serve) as address:
        is_silent = said.startswith("has not let us in")
        limits = replace(LIMITS, connect_s=0.5) if is_silent else LIMITS
        with pytest.raises(error, match=said):
            await BrokerConnection.open(address, limits=limits)


async def test_nobody_listens() -> None:
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.2:9 cannot be reached: .*refused"):
        await BrokerConnection.open(("127.0.0.2", 9), limits=LIMITS)


async def test_an_answer_that_does_not_come_ends_the_connection_and_what_waits_behind_it() -> None:
    async with broker(obliging_until(METADATA, silent)) as address:
        connection = await BrokerConnection.open(address)
        behind = asyncio.get_running_loop().create_task(connection.ask(METADATA, NO_TOPICS))

        with pytest.raises(UnreachableError, match=r"has not answered metadata in 0\.05 s$"):
            await connection.ask(METADATA, NO_TOPICS, timeout_s=0.05)

        said = r"has not answered metadata in 0\.05 s, so the connection was closed"
        async with asyncio.timeout(10):
            with pytest.raises(UnreachableError, match=said):
                await behind
            with pytest.raises(UnreachableError, match=said):
                await connection.ask(METADATA, NO_TOPICS)
        assert connection.is_closed
        await connection.close()


async def test_a_broker_that_takes_nothing_is_left_all_the_same() -> None:
    left, gone = asyncio.Event(), asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ScriptedBroker().answers(await frame_from(reader)))
        await left.wait()
        writer.close()
        gone.set()

    async with broker(deaf) as address:
        connection = await BrokerConnection.open(address)

        with pytest.raises(UnreachableError, match=r"has not answered metadata in 0\.05 s"):
            await connection.ask(METADATA, bytes(32 * 2**20), version=12, timeout_s=0.05)

        async with asyncio.timeout(10):
            await connection.close()
        left.set()
        await gone.wait()


async def test_who_waits_for_room_in_vain_leaves_the_connection_open() -> None:
    async with broker(obliging_until(METADATA, silent)) as address:
        connection = await BrokerConnection.open(address, limits=ClientLimits(in_flight_max=1))
        first = asyncio.get_running_loop().create_task(connection.ask(METADATA, NO_TOPICS))
        await asyncio.sleep(0)

        with pytest.raises(UnreachableError, match=r"has not answered metadata in 0\.05 s"):
            await connection.ask(METADATA, NO_TOPICS, timeout_s=0.05)

        assert not connection.is_closed
        first.cancel()
        await connection.close()


async def test_who_waits_when_the_broker_leaves_is_told() -> None:
    async with broker(obliging_until(METADATA, leaving)) as address:
        connection = await BrokerConnection.open(address, limits=LIMITS)

        results = await asyncio.gather(
            *(connection.ask(METADATA, NO_TOPICS) for _ in range(3)), return_exceptions=True
        )

        assert [type(result) for result in results] == [UnreachableError] * 3
        assert connection.is_closed
        with pytest.raises(UnreachableError):
            await connection.ask(METADATA, NO_TOPICS)
        await connection.close()


async def test_a_broker_of_an_unknown_version_of_api_versions_is_asked_in_v0() -> None:
    asked = []

    async def old(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            frame = await frame_from(reader)
            asked.append(frame[7])
            head = frame[8:12]
            body = b"\0\0\0\0\0\1\0\x03\0\0\0\x0c" if frame[7] == 0 else b"\0\x23\0\0\0\0"
            writer.write((len(head) + len(body)).to_bytes(4, "big") + head + body)

    async with broker(old) as address:
        connection = await BrokerConnection.open(address, limits=LIMITS)

        assert connection.versions == {METADATA: (0, 12)}
        assert asked[0] > 0
        assert asked[-1] == 0
        await connection.close()


async def test_the_next_server_is_asked_where_one_is_away() -> None:
    async with (
        broker(obliging) as (host, port),
        Cluster(["127.0.0.2:9", f"{host}:{port}"], limits=LIMITS) as cluster,
    ):
        assert cluster.broker_ids


async def test_a_broker_that_hangs_is_asked_last() -> None:
    async with (
        two_brokers() as brokers,
        Cluster(brokers.bootstrap_servers, limits=LIMITS) as cluster,
    ):
        brokers.hung = {1}
        with pytest.raises(UnreachableError, match=r"has not answered metadata in 0\.05 s"):
            await cluster.metadata([], timeout_s=0.05)

        async with asyncio.timeout(5):  # less than it takes to be let in by one that hangs
            assert (await cluster.metadata([])).brokers.keys() == {1, 2}
        brokers.hung = {2}
        with pytest.raises(UnreachableError, match=r"has not answered metadata in 0\.05 s"):
            await cluster.metadata([], timeout_s=0.05)


async def test_a_broker_to_be_avoided_is_asked_where_there_is_no_other() -> None:
    async with (
        two_brokers() as brokers,
        Cluster(brokers.bootstrap_servers, limits=LIMITS) as cluster,
    ):
        first, second = brokers.cluster.brokers.values()

        assert (await cluster.connection_to(ANY)).address == first
        assert (await cluster.connection_to(ANY, avoiding={first})).address == second
        both = await cluster.connection_to(ANY, avoiding={first, second})
        assert both.address == first
        assert not both.is_closed


async def test_all_that_could_not_be_reached_are_named() -> None:
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.2:9 .*; 127\.0\.0\.3:9 "):
        async with Cluster(["127.0.0.2:9", "127.0.0.3:9"], limits=LIMITS):
            pass


@pytest.mark.parametrize(
    "server", ["kafka", "kafka:", ":9092", "kafka:0", "kafka:65536", "kafka:x"]
)
def test_a_server_that_is_none_is_refused(server: str) -> None:
    with pytest.raises(UsageError, match="is not host:port"):
        Cluster([server])


def test_no_server_is_refused() -> None:
    with pytest.raises(UsageError, match="no server to begin with"):
        Cluster([])


def test_a_password_is_in_no_text() -> None:
    assert "secret" not in repr(Security.scram("alice", "secret"))


@pytest.mark.parametrize(
    ("mechanism", "username"), [("GSSAPI", "alice"), ("PLAIN", ""), ("SCRAM-SHA-256", "")]
)
def test_a_login_that_cannot_work_is_refused(mechanism: str, username: str) -> None:
    with pytest.raises(UsageError):
        Security(mechanism=mechanism, username=username)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"topic": []}, "metadata v12 has no topic"),
        ({**NO_TOPICS, "topics": [{"nam": "a"}]}, r"metadata v12\.topics has no nam"),
        ({**NO_TOPICS, "topics": [{"topic_id": None}]}, r"metadata v12\.topics needs name"),
        ({"topics": 5, "include_topic_authorized_operations": False}, "metadata v12: "),
    ],
)
def test_a_request_that_cannot_be_said_is_wrong_use(content: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        encode(METADATA, 12, content, correlation=1, client_id="c")


@pytest.mark.parametrize("size", range(0, 60, 7))
def test_an_answer_cut_short_is_an_error_of_the_peer(size: int) -> None:
    frame = bytes(4) + b"\0" + bytes(200)

    with pytest.raises(ProtocolError):
        decode(DESCRIBE_CLUSTER, 1, frame[:5] + b"\xff" * size)


def test_what_the_gateway_offers_can_mostly_be_spoken() -> None:
    unknown = [api.name for key, api in APIS.items() if known_versions(key)[1] < 0]

    assert unknown == []
    assert known_versions(API_VERSIONS)[1] >= 3
