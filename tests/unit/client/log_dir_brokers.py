"""Brokers on sockets that tell of log directories whatever a test says: sizes, errors, nothing, or too old."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from kvota.client.cluster import Cluster
from kvota.testing.frames import API_VERSIONS, METADATA, answer, metadata_answer, parts
from kvota.wire.log_dirs import DESCRIBE_LOG_DIRS


class Dir(NamedTuple):
    """What is told of one log directory."""

    log_dir: str = "/d"
    total_bytes: int = 50
    usable_bytes: int = 10
    error_code: int = 0


@dataclass
class LogDirBrokers:
    """A cluster by node id; nothing else is answered than what a look at volumes asks.

    Attributes:
        dirs: of each broker.
        named: brokers that Metadata names, where they are others than there are.
        hung: brokers that take what is asked of their log directories, and answer nothing.
        silent: brokers that take all that is asked, and answer nothing: their machine has lost its network.
        error_code: of DescribeLogDirs.
        version: the highest of DescribeLogDirs that is offered.
        metadata: "answers", "hangs", "leaves" or "garbage".
        metadata_hangs_at: brokers at which it hangs, whatever it does at others.
        topics: so many are named of each directory, without partitions.
        unasked_topics: so many Metadata tells of, though it is asked about none.
        connections: so many were made.
    """

    dirs: dict[int, Sequence[Dir]] = field(default_factory=dict)
    named: tuple[int, ...] | None = None
    hung: set[int] = field(default_factory=set)
    error_code: int = 0
    version: int = 4
    metadata: str = "answers"
    metadata_hangs_at: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)
    topics: int = 0
    unasked_topics: int = 0
    connections: int = 0
    addresses: dict[int, tuple[str, int]] = field(default_factory=dict)
    asked_versions: list[int] = field(default_factory=list)

    async def serve(
        self, node_id: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One connection, until it ends."""
        self.connections += 1
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            frame = await reader.readexactly(size)
            key, version = frame[1], frame[3]
            correlation = int.from_bytes(frame[4:8], "big")
            if node_id in self.silent:
                continue
            if key == API_VERSIONS:
                offered = {
                    API_VERSIONS: (0, 3),
                    METADATA: (0, 12),
                    DESCRIBE_LOG_DIRS: (1, self.version),
                }
                keys = parts(API_VERSIONS, version, "response", "ApiVersion", *(
                    {"api_key": key, "min_version": low, "max_version": high}
                    for key, (low, high) in offered.items()
                ))  # fmt: skip
                writer.write(
                    answer(
                        key,
                        version,
                        correlation=correlation,
                        api_keys=keys,
                        error_code=ErrorCode(0),
                    )
                )
            elif key == METADATA:
                if self.metadata == "leaves":
                    return
                if self.metadata == "hangs" or node_id in self.metadata_hangs_at:
                    continue
                named = self.addresses if self.named is None else self.named
                brokers = [(one, *self.addresses.get(one, ("127.0.0.1", 1))) for one in named]
                topics = [(f"t{number}", 0, 3) for number in range(self.unasked_topics)]
                told = metadata_answer(
                    version, correlation=correlation, brokers=brokers, topics=topics
                )
                writer.write(told[:12] + b"\xff" * 40 if self.metadata == "garbage" else told)
            elif node_id not in self.hung:
                self.asked_versions.append(version)
                writer.write(self._described(node_id, version, correlation))

    def _described(self, node_id: int, version: int, correlation: int) -> bytes:
        has_sizes = version >= 4
        names = [{"name": f"t{number}", "partitions": ()} for number in range(self.topics)]
        topics = parts(DESCRIBE_LOG_DIRS, version, "response", "DescribeLogDirsTopic", *names)
        rows = [
            {"error_code": ErrorCode(one.error_code), "log_dir": one.log_dir, "topics": topics}
            | ({"total_bytes": one.total_bytes, "usable_bytes": one.usable_bytes} if has_sizes else {})
            for one in self.dirs[node_id]
        ]  # fmt: skip
        of = (DESCRIBE_LOG_DIRS, version)
        results = parts(*of, "response", "DescribeLogDirsResult", *rows)
        more: dict[str, Any] = {"error_code": ErrorCode(self.error_code)} if version >= 3 else {}
        return answer(*of, correlation=correlation, results=results, **more)


@asynccontextmanager
async def served(brokers: LogDirBrokers) -> AsyncIterator[Cluster]:
    """Start them, and a client of theirs."""
    servers = []
    for node_id in brokers.dirs:

        async def one(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node_id: int = node_id
        ) -> None:
            with suppress(OSError, EOFError):
                await brokers.serve(node_id, reader, writer)
            writer.close()

        servers.append(await asyncio.start_server(one, "127.0.0.1", 0))
        brokers.addresses[node_id] = servers[-1].sockets[0].getsockname()
    cluster = Cluster(list(brokers.addresses.values()))
    try:
        yield cluster
    finally:
        await cluster.close()
        for server in servers:
            server.close()
