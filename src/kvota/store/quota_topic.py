"""The topic that holds configured quotas: made with the right settings, checked, appended to and read."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

from kvota.client import CONTROLLER, BrokerConnection, BrokerError, Cluster
from kvota.client.cluster import Destination
from kvota.client.messages import Answer, Fields
from kvota.client.producer_state import ProducerState, new_producer
from kvota.client.record_batches import Decoded, decode_batches
from kvota.model.errors import KvotaError, UnreachableError, UsageError
from kvota.store.quota_rows import EncodedRow
from kvota.wire.apis import CREATE_TOPICS, DESCRIBE_CONFIGS, FETCH, LIST_OFFSETS, PRODUCE
from kvota.wire.error_code import ErrorCode

# Versions that every broker from 0.11 to 4.x takes.
_VERSIONS = {PRODUCE: 3, FETCH: 4, LIST_OFFSETS: 1, CREATE_TOPICS: 2, DESCRIBE_CONFIGS: 1}
_EARLIEST, _LATEST = -2, -1
_TOPIC_RESOURCE = 2

# The largest alteration has 10,000 values: 1 MB with short names, and brokers take 1 MiB at once unless told otherwise.
BATCH_BYTES_MAX = 8 * 2**20
# Of a batch beside its rows; of a row beside its key and value, at most: lengths, offset, time.
_BATCH_BYTES, _ROW_BYTES = 61, 32
_FETCH_BYTES_MAX = 8 * 2**20
# Rows of more bytes are read and written beside the event loop.
_BYTES_AT_ONCE = 16_384
# An answer to a Fetch comes as soon as there is something, and after this otherwise.
_FETCH_WAIT = timedelta(milliseconds=500)
_NO_WAIT = timedelta(0)
_ACKS_WAIT = timedelta(seconds=5)
_CREATION_WAIT = timedelta(seconds=10)
# So often, and so long apart, it is looked whether it is known.
_LOOKS, _LOOK_S = 100, 0.1
_THROTTLE_S_MAX = 5.0
# So many empty answers in a row are believed.
_EMPTY_MAX = 4
# What is not answered in this time beyond that has been lost.
_ANSWER_S = 10.0

_POLICY = "cleanup.policy"
_BATCH_BYTES_KEY = "max.message.bytes"
_COMPACT = "compact"

_RIGHTS = "it needs READ, WRITE, DESCRIBE and DESCRIBE_CONFIGS, and CREATE until the topic is there"

# As the brokers' quotas see whoever reads and writes the topic.
CLIENT_ID = "kvota-quotas"


class TopicError(KvotaError):
    """The topic is not what quotas can be kept in; somebody has to mend it."""


class TooLargeError(TopicError):
    """The topic does not take so much at once."""


def size_bytes(rows: Iterable[EncodedRow]) -> int:
    """How large a batch of these rows is, at most."""
    return _BATCH_BYTES + sum(len(key) + len(value or b"") + _ROW_BYTES for key, value in rows)


class QuotaTopic:
    """One topic of one partition.

    Args:
        name: of the topic.
        make_cluster: makes a client of the cluster. Reading waits in the broker for what comes, so
            it has a client of its own.

    Attributes:
        topic_id: of the topic that was found last; None where brokers have none (before 2.8).
        batch_bytes_max: the largest batch that it takes, as ``check`` has found out.
    """

    def __init__(self, name: str, make_cluster: Callable[[], Cluster]) -> None:
        self.name = name
        self.topic_id: UUID | None = None
        self.batch_bytes_max = BATCH_BYTES_MAX
        self._reading = make_cluster()
        self._asking = make_cluster()
        self._leader: int | None = None

    async def close(self) -> None:
        """Close all connections."""
        await self._reading.close()
        await self._asking.close()

    # ------------------------------------------------------------------ the topic itself

    async def find(self) -> bool:
        """Look for it, and for its leader; False: there is no such topic.

        Raises:
            UnreachableError: no broker answers, or it has no leader now.
            BrokerError: the brokers refuse to tell.
            TopicError: it has several partitions.
        """
        self._leader = None
        found, known = await asyncio.gather(
            self._asking.metadata([self.name], timeout_s=_ANSWER_S),
            # A broker may have another address now.
            self._reading.metadata([], timeout_s=_ANSWER_S),
            # Both have ended then: one that hangs is left by both.
            return_exceptions=True,
        )
        if isinstance(found, BaseException):
            raise found
        if isinstance(known, BaseException):
            raise known
        topic = found.topics.get(self.name)
        if topic is None or topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        if topic.error_code:
            raise self._error(topic.error_code, lacks="DESCRIBE")
        if len(topic.partitions) != 1:
            msg = (
                f"topic {self.name} has {len(topic.partitions)} partitions, and quotas need one order: name a "
                "topic of 1 partition in quotas.topic"
            )
            raise TopicError(msg)
        self.topic_id, self._leader = topic.topic_id, topic.partitions[0].leader
        if self._leader is None:
            msg = f"topic {self.name} has no leader at the moment"
            raise UnreachableError(msg)
        return True

    async def find_or_make(self, *, batch_bytes: int = 0) -> bool:
        """See that it is there, and fit to keep quotas; returns whether it was made here.

        Args:
            batch_bytes: where it is made it takes batches of so many bytes, at least.

        Raises:
            TopicError: it is not.
            UnreachableError: no broker answers.
            BrokerError: the brokers refuse.
        """
        is_made = False
        if not await self.find():
            is_made = await self.make(batch_bytes=max(batch_bytes, BATCH_BYTES_MAX))
            for _ in range(_LOOKS):
                if await self._is_known():
                    break
                await asyncio.sleep(_LOOK_S)
            else:
                msg = f"topic {self.name} has been created, and no broker knows it yet"
                raise UnreachableError(msg)
        await self.check()
        return is_made

    async def _is_known(self) -> bool:
        """Whether the broker that is asked has heard of it, and of its leader."""
        with suppress(UnreachableError):
            return await self.find()
        return False

    async def is_new(self) -> bool:
        """Whether it has never had a row.

        Raises:
            UnreachableError: its leader cannot be reached.
            BrokerError: it is refused.
        """
        return await self._offset(_LATEST) == 0

    async def make(self, *, batch_bytes: int = BATCH_BYTES_MAX) -> bool:
        """Create it; False: somebody else has been quicker.

        Args:
            batch_bytes: the largest batch that it takes.

        Raises:
            UnreachableError: no broker answers.
            BrokerError: the brokers refuse.
        """
        replicas = min(3, len((await self._asking.metadata([])).brokers))
        settings = {
            _POLICY: _COMPACT,
            # What somebody else's producer has compressed is made plain by the broker.
            "compression.type": "uncompressed",
            "min.insync.replicas": "2" if replicas == 3 else "1",
            # An alteration is one batch, so that it is there whole or not at all.
            _BATCH_BYTES_KEY: str(batch_bytes),
        }
        topic = {
            "name": self.name,
            "num_partitions": 1,
            "replication_factor": replicas,
            "assignments": (),
            "configs": [{"name": name, "value": value} for name, value in settings.items()],
        }
        answer = await self._ask(
            self._asking,
            CREATE_TOPICS,
            {"topics": [topic], "timeout": _CREATION_WAIT, "validate_only": False},
        )
        (made,) = answer.topics
        if int(made.error_code) not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
            what = f"topic {self.name} cannot be created"
            raise self._error(made.error_code, made.error_message, what=what, lacks="CREATE")
        return int(made.error_code) == ErrorCode.NONE

    async def check(self) -> None:
        """See that nothing in it is ever forgotten but what newer rows replace, and how much it takes at once.

        Raises:
            TopicError: it is not compacted.
            UnreachableError: no broker answers.
            BrokerError: the brokers refuse to tell.
        """
        resource = {
            "resource_type": _TOPIC_RESOURCE,
            "resource_name": self.name,
            "configuration_keys": [_POLICY, _BATCH_BYTES_KEY],
        }
        answer = await self._ask(
            self._asking, DESCRIBE_CONFIGS, {"resources": [resource], "include_synonyms": False}
        )
        (result,) = answer.results
        if int(result.error_code):
            raise self._error(result.error_code, result.error_message, lacks="DESCRIBE_CONFIGS")
        configs = {str(config.name): config.value for config in result.configs}
        policy = configs.get(_POLICY)
        if policy != _COMPACT:
            msg = (
                f"topic {self.name} has {_POLICY}={policy}, and quotas in it would be forgotten one day: give "
                f"it {_POLICY}={_COMPACT}, or name another topic in quotas.topic"
            )
            raise TopicError(msg)
        self.batch_bytes_max = int(configs.get(_BATCH_BYTES_KEY) or BATCH_BYTES_MAX)

    # ------------------------------------------------------------------ its rows

    async def append(self, batch: bytes, count: int) -> int:
        """Append a batch of so many rows; returns the last one's offset, when all in-sync replicas have it.

        They are there together or not at all.

        Raises:
            TooLargeError: the topic does not take so many bytes at once.
            UnreachableError: it cannot be reached, or the answer was lost: they may be there or not.
            BrokerError: it is refused.
        """
        if len(batch) > self.batch_bytes_max:
            await self.check()  # somebody may have given it more
        if len(batch) > self.batch_bytes_max:
            raise self._too_large(count, len(batch), f"={self.batch_bytes_max}")
        topic = {"name": self.name, "partition_data": [{"index": 0, "records": batch}]}
        content = {
            "transactional_id": None,
            "acks": -1,
            "timeout": _ACKS_WAIT,
            "topic_data": [topic],
        }
        answer = await self._ask(self._asking, PRODUCE, content, to=await self._found())
        ((written,),) = (response.partition_responses for response in answer.responses)
        code = int(written.error_code)
        if code == ErrorCode.MESSAGE_TOO_LARGE:  # it took more when it was looked at
            raise self._too_large(count, len(batch), " is less now")
        if code:
            raise self._error(code, lacks="WRITE")
        return int(written.base_offset) + count - 1

    async def new_producer(self) -> ProducerState:
        """Return who may append; ``NO_PRODUCER`` where the gateway's own user may not have an id.

        Raises:
            UnreachableError: its leader cannot be reached.
            BrokerError: there is no id to be had now.
        """
        connection = await self._connection(self._asking, await self._found())
        return await new_producer(connection, timeout_s=_ANSWER_S)

    def _too_large(self, count: int, batch_bytes: int, limit: str) -> TooLargeError:
        return TooLargeError(
            f"{count} values are {batch_bytes} bytes, and the topic takes fewer at once ({_BATCH_BYTES_KEY}{limit}), "
            f"so none was stored: give it {_BATCH_BYTES_KEY}={max(batch_bytes, BATCH_BYTES_MAX)}, or alter fewer at once"
        )

    async def all_rows(self) -> AsyncIterator[Decoded]:
        """Yield what there is now, from the first offset on.

        Raises:
            UnreachableError: its leader cannot be reached.
            BrokerError: it is refused.
        """
        offset, end = await self.bounds()
        if offset == end:
            await self.read(end, wait=_NO_WAIT)  # whoever may not read is told so now
        empty = 0
        while offset < end:
            decoded = await self.read(offset)
            empty = empty + 1 if decoded.next_offset == offset else 0
            if 0 < empty < _EMPTY_MAX:  # e.g. its leader has just become it
                first, end = await self.bounds()
                offset = max(offset, first)
                continue
            # Behind what compaction has left nothing may follow.
            offset = end if empty else decoded.next_offset
            yield decoded._replace(next_offset=offset)

    async def read(self, offset: int, *, wait: timedelta = _FETCH_WAIT) -> Decoded:
        """Read on from an offset; waits half a second for what comes, unless told otherwise.

        Raises:
            UnreachableError: its leader cannot be reached.
            BrokerError: it is refused; e.g. the offset is not there any more.
            TopicError: the brokers' quotas do not let it be read.
        """
        partition = {
            "partition": 0,
            "fetch_offset": offset,
            "partition_max_bytes": _FETCH_BYTES_MAX,
        }
        content = {
            "replica_id": -1,
            "max_wait": wait,
            "min_bytes": 1,
            "max_bytes": _FETCH_BYTES_MAX,
            "isolation_level": 0,
            "topics": [{"topic": self.name, "partitions": [partition]}],
        }
        while True:
            answer = await self._ask(self._reading, FETCH, content, to=await self._found())
            if answer.responses:
                break
            # So brokers answer who is over a quota, and they do not listen for as long.
            throttle_s = answer.throttle_time.total_seconds()
            if throttle_s > _THROTTLE_S_MAX:
                msg = (
                    f"a quota of the brokers (consumer_byte_rate) holds client id {CLIENT_ID} back for "
                    f"{throttle_s:g} s, which is the gateway's own client: give it more, or none"
                )
                raise TopicError(msg)
            await asyncio.sleep(throttle_s)
        ((got,),) = (response.partitions for response in answer.responses)
        if int(got.error_code):
            raise self._error(got.error_code, lacks="READ")
        records = got.records or b""
        if len(records) > _BYTES_AT_ONCE:
            return await asyncio.to_thread(decode_batches, records, offset)
        return decode_batches(records, offset)

    async def bounds(self) -> tuple[int, int]:
        """The first offset there is, and the one behind the last.

        Raises:
            UnreachableError: its leader cannot be reached.
            BrokerError: it is refused.
        """
        return await self._offset(_EARLIEST), await self._offset(_LATEST)

    async def _offset(self, timestamp: int) -> int:
        partition = {"partition_index": 0, "timestamp": timestamp}
        topic = {"name": self.name, "partitions": [partition]}
        content = {"replica_id": -1, "topics": [topic]}
        answer = await self._ask(self._asking, LIST_OFFSETS, content, to=await self._found())
        ((got,),) = (response.partitions for response in answer.topics)
        if int(got.error_code):
            raise self._error(got.error_code, lacks="DESCRIBE")
        return int(got.offset)

    # ------------------------------------------------------------------ asking

    async def _found(self) -> int:
        """Node id of its leader."""
        if self._leader is None and not await self.find():
            raise self._error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert self._leader is not None, "it was found"
        return self._leader

    async def _ask(
        self, cluster: Cluster, key: int, content: Fields, *, to: Destination = CONTROLLER
    ) -> Answer:
        connection = await self._connection(cluster, to)
        return await connection.ask(key, content, version=_VERSIONS[key], timeout_s=_ANSWER_S)

    async def _connection(self, cluster: Cluster, to: Destination) -> BrokerConnection:
        try:
            return await cluster.connection_to(to)
        except UsageError as error:  # it was its leader, and is in the cluster no more
            raise UnreachableError(str(error)) from error

    def _error(
        self, code: int, message: str | None = None, *, what: str = "", lacks: str = ""
    ) -> BrokerError:
        """``lacks``: the right without which a broker refuses just this."""
        if int(code) == ErrorCode.TOPIC_AUTHORIZATION_FAILED and lacks:
            message = f"the gateway's own user lacks {lacks} on it; {_RIGHTS}"
        return BrokerError(what or f"topic {self.name}", int(code), message)
