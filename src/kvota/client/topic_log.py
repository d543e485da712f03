"""The partitions of one topic: what is appended to them, and what is read from them."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta

from kvota.client.broker_error import BrokerError
from kvota.client.cluster import CONTROLLER, Cluster
from kvota.client.connection import BrokerConnection
from kvota.client.messages import Answer, Fields
from kvota.client.producer_state import ProducerState, new_producer
from kvota.client.record_batches import Decoded, decode_batches
from kvota.model.errors import UnreachableError, UsageError
from kvota.wire.apis import CREATE_TOPICS, FETCH, LIST_OFFSETS, PRODUCE
from kvota.wire.error_code import ErrorCode

# Versions that every broker from 0.11 to 4.x takes.
_VERSIONS = {PRODUCE: 3, FETCH: 4, LIST_OFFSETS: 1}
# From this one on, of Kafka 2.4, a topic may be made with as many partitions as brokers give one.
_DEFAULT_PARTITIONS_FROM = 4
_EARLIEST, _LATEST = -2, -1
_FETCH_BYTES_MAX = 8 * 2**20
_ACKS_WAIT = timedelta(seconds=5)
_CREATION_WAIT = timedelta(seconds=10)
# What is not answered in this time beyond that has been lost.
_ANSWER_S = 10.0
# A topic that is made has so many replicas, where there are as many brokers.
_REPLICAS_MAX = 3


class TopicLog:
    """One topic by its name.

    After an ``UnreachableError`` or a ``BrokerError`` call ``find`` again: its leaders may be others.

    Args:
        name: of the topic.
        cluster: where it is; nothing else asks over this client.

    Attributes:
        partitions: the numbers of its partitions, as ``find`` has seen them last.
    """

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self.partitions: Sequence[int] = ()
        self._cluster = cluster
        self._leaders: Mapping[int, int | None] = {}

    async def close(self) -> None:
        """Close all connections."""
        await self._cluster.close()

    async def find(self) -> bool:
        """Look for it, and for its leaders; False: there is no such topic.

        Raises:
            UnreachableError: no broker answers.
            BrokerError: the brokers refuse to tell.
        """
        self._leaders = {}
        metadata = await self._cluster.metadata([self.name], timeout_s=_ANSWER_S)
        topic = metadata.topics.get(self.name)
        if topic is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        if topic.error_code:
            raise self._error(topic.error_code)
        self._leaders = {one.index: one.leader for one in topic.partitions}
        self.partitions = sorted(self._leaders)
        return True

    async def make(self, *, settings: Mapping[str, str]) -> bool:
        """Create it with as many partitions as brokers give a topic; False: somebody else has been quicker.

        Raises:
            UnreachableError: no broker answers.
            BrokerError: the brokers refuse.
        """
        brokers = (await self._cluster.metadata([], timeout_s=_ANSWER_S)).brokers
        connection = await self._cluster.connection_to(CONTROLLER)
        version = connection.version_of(CREATE_TOPICS, version_max=_DEFAULT_PARTITIONS_FROM)
        topic = {
            "name": self.name,
            "num_partitions": -1 if version == _DEFAULT_PARTITIONS_FROM else 1,
            "replication_factor": min(_REPLICAS_MAX, len(brokers)),
            "assignments": (),
            "configs": [{"name": name, "value": value} for name, value in settings.items()],
        }
        content = {"topics": [topic], "timeout": _CREATION_WAIT, "validate_only": False}
        answer = await connection.ask(CREATE_TOPICS, content, version=version, timeout_s=_ANSWER_S)
        (made,) = answer.topics
        code = int(made.error_code)
        if code not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
            raise self._error(code, made.error_message, what=f"topic {self.name} cannot be created")
        return code == ErrorCode.NONE

    async def append(self, partition: int, batch: bytes) -> int:
        """Append a batch; returns its offset when all in-sync replicas have it.

        Raises:
            UnreachableError: it cannot be reached, or the answer was lost: it may be there or not.
            BrokerError: it is refused.
        """
        data = [{"index": partition, "records": batch}]
        content = {
            "transactional_id": None,
            "acks": -1,
            "timeout": _ACKS_WAIT,
            "topic_data": [{"name": self.name, "partition_data": data}],
        }
        answer = await self._ask(await self._leader(partition), PRODUCE, content)
        ((written,),) = (response.partition_responses for response in answer.responses)
        if int(written.error_code):
            raise self._error(written.error_code, partition=partition)
        return int(written.base_offset)

    async def new_producer(self, partition: int) -> ProducerState:
        """Return who may append; ``NO_PRODUCER`` where this user may not have an id.

        Raises:
            UnreachableError: the leader cannot be reached.
            BrokerError: there is no id to be had now.
        """
        return await new_producer(await self._leader(partition), timeout_s=_ANSWER_S)

    async def read(self, partition: int, offset: int, *, wait_s: float = 0.5) -> Decoded:
        """Read on from an offset, 8 MB at most; waits so long for what comes.

        Raises:
            UnreachableError: its leader cannot be reached.
            BrokerError: it is refused; e.g. the offset is not there any more.
        """
        part = {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": _FETCH_BYTES_MAX,
        }
        content = {
            "replica_id": -1,
            "max_wait": timedelta(seconds=wait_s),
            "min_bytes": 1,
            "max_bytes": _FETCH_BYTES_MAX,
            "isolation_level": 0,
            "topics": [{"topic": self.name, "partitions": [part]}],
        }
        leader = await self._leader(partition)
        while True:
            answer = await self._ask(leader, FETCH, content)
            if answer.responses:
                break
            # So brokers answer who is over a quota, and they do not listen for as long.
            await asyncio.sleep(answer.throttle_time.total_seconds())
        ((got,),) = (response.partitions for response in answer.responses)
        if int(got.error_code):
            raise self._error(got.error_code, partition=partition)
        return decode_batches(got.records, offset)

    async def bounds(self, partition: int) -> tuple[int, int]:
        """The first offset there is, and the one behind the last.

        Raises:
            UnreachableError: its leader cannot be reached.
            BrokerError: it is refused.
        """
        return await self._offset(partition, _EARLIEST), await self._offset(partition, _LATEST)

    # ------------------------------------------------------------------ asking

    async def _offset(self, partition: int, timestamp: int) -> int:
        part = {"partition_index": partition, "timestamp": timestamp}
        content = {"replica_id": -1, "topics": [{"name": self.name, "partitions": [part]}]}
        answer = await self._ask(await self._leader(partition), LIST_OFFSETS, content)
        ((got,),) = (response.partitions for response in answer.topics)
        if int(got.error_code):
            raise self._error(got.error_code, partition=partition)
        return int(got.offset)

    async def _leader(self, partition: int) -> BrokerConnection:
        if partition not in self._leaders and not await self.find():
            raise self._error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        leader = self._leaders.get(partition)
        if leader is None:
            msg = f"topic {self.name}, partition {partition} has no leader at the moment"
            raise UnreachableError(msg)
        try:
            return await self._cluster.connection_to(leader)
        except UsageError as error:  # it was its leader, and is in the cluster no more
            raise UnreachableError(str(error)) from error

    async def _ask(self, connection: BrokerConnection, key: int, content: Fields) -> Answer:
        return await connection.ask(key, content, version=_VERSIONS[key], timeout_s=_ANSWER_S)

    def _error(
        self,
        code: int,
        message: str | None = None,
        *,
        what: str = "",
        partition: int | None = None,
    ) -> BrokerError:
        place = f"topic {self.name}" + ("" if partition is None else f", partition {partition}")
        return BrokerError(what or place, int(code), message)
