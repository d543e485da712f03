"""Brokers on sockets that answer, refuse, fall silent or leave, as they are told for each mutation."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from kio.schema.errors import ErrorCode

from kvota.testing.frames import (
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    METADATA,
    answer,
    parts,
)
from kvota.testing.script import Script
from kvota.testing.scripted_broker import ScriptedBroker
from kvota.testing.scripted_cluster import ScriptedCluster

MUTATIONS = {CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS}
VERSIONS = {METADATA: 12, CREATE_TOPICS: 7, DELETE_TOPICS: 6, CREATE_PARTITIONS: 3, 49: 1}


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What becomes of one mutation request; by itself it is carried out and answered.

    Attributes:
        codes: topics that are refused, each with an error code.
        everybody: the error code of all of them.
        throttle_ms: in the answer.
        is_carried_out: else nothing happens in the cluster, and there is no answer.
        then: what the client sees.
    """

    codes: dict[str, int] = field(default_factory=dict)
    everybody: int = 0
    throttle_ms: int = 0
    is_carried_out: bool = True
    then: str = "answers"  # or "leaves", "is silent"


class _Throttles(Script):
    def __init__(self) -> None:
        self.ms = 0

    def throttle_ms(self, key: int) -> int:
        return self.ms if key in MUTATIONS else 0


class Brokers:
    """Two brokers of one cluster; ``turns`` are taken by the mutations in their order, at whichever they come.

    Attributes:
        asked: node id, key and topics of each mutation.
        controller_id: as Metadata tells.
        refusing: the error code with which further connections are refused; 0: they are let in.
        hung: node ids of those that take connections and requests, and answer none, as a process that is stopped.
    """

    def __init__(self) -> None:
        self.cluster = ScriptedCluster(brokers={})
        self.turns: deque[Turn] = deque()
        self.asked: list[tuple[int, int, list[str]]] = []
        self.asked_at_s: list[float] = []
        self.controller_id = 1
        self.refusing = 0
        self.hung: set[int] = set()
        self.versions = dict(VERSIONS)
        self._servers: list[asyncio.Server] = []

    @property
    def bootstrap_servers(self) -> list[str]:
        return [f"{host}:{port}" for host, port in self.cluster.brokers.values()]

    async def start(self) -> None:
        for node_id in (1, 2):

            async def one(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node_id: int = node_id
            ) -> None:
                with suppress(OSError, EOFError):
                    await self._serve(node_id, reader, writer)
                writer.close()

            server = await asyncio.start_server(one, "127.0.0.1", 0)
            self._servers.append(server)
            host, port = server.sockets[0].getsockname()
            self.cluster.brokers[node_id] = (host, port)

    async def stop(self) -> None:
        for server in self._servers:
            server.close()

    async def _serve(
        self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        script = _Throttles()
        scripted = ScriptedBroker(self.cluster, script, node_id=node_id)
        while True:
            size = await reader.readexactly(4)
            frame = size + await reader.readexactly(int.from_bytes(size, "big"))
            if node_id in self.hung:
                continue
            key, version = frame[5], frame[7]
            correlation = int.from_bytes(frame[8:12], "big")
            if key == API_VERSIONS:
                writer.write(self._offer(version, correlation))
            elif key == METADATA:
                writer.write(self._described(version, correlation))
            elif not self._mutate(node_id, key, frame, script, scripted, writer):
                return

    def _mutate(
        self,
        node_id: int,
        key: int,
        frame: bytes,
        script: _Throttles,
        scripted: ScriptedBroker,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """False: the broker leaves."""
        turn = self.turns.popleft() if self.turns else Turn()
        self.asked_at_s.append(asyncio.get_running_loop().time())
        known = [*self.cluster.topics]
        script.ms = turn.throttle_ms
        self.cluster.refused = dict(turn.codes)
        if turn.everybody:
            self.cluster.refused = _Everybody(turn.everybody)
        if not turn.is_carried_out:
            self.asked.append((node_id, key, []))
            return turn.then != "leaves"
        (reply,) = scripted.receive(frame)
        self.asked.append((node_id, key, [str(outcome.name) for outcome in reply.outcomes]))
        assert turn.everybody == 0 or known == [*self.cluster.topics]
        if turn.then == "answers":
            writer.write(reply.answer)
        return turn.then != "leaves"

    def _offer(self, version: int, correlation: int) -> bytes:
        offered = (
            {"api_key": key, "min_version": 0, "max_version": newest}
            for key, newest in self.versions.items()
        )
        return answer(
            API_VERSIONS,
            version,
            correlation=correlation,
            throttle_ms=0 if version else None,
            error_code=ErrorCode(self.refusing),
            api_keys=parts(API_VERSIONS, version, "response", "ApiVersion", *offered),
        )

    def _described(self, version: int, correlation: int) -> bytes:
        nodes = (
            {"node_id": node_id, "host": host, "port": port, "rack": None}
            for node_id, (host, port) in self.cluster.brokers.items()
        )
        return answer(
            METADATA,
            version,
            correlation=correlation,
            controller_id=self.controller_id,
            brokers=parts(METADATA, version, "response", "MetadataResponseBroker", *nodes),
            topics=(),
        )


class _Everybody(dict[str, int]):
    """Every topic is refused with one code."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self._code = code

    def __contains__(self, _name: object) -> bool:
        return True

    def __getitem__(self, _name: str) -> int:
        return self._code


@asynccontextmanager
async def two_brokers(*turns: Turn) -> AsyncIterator[Brokers]:
    brokers = Brokers()
    brokers.turns.extend(turns)
    await brokers.start()
    try:
        yield brokers
    finally:
        await brokers.stop()
