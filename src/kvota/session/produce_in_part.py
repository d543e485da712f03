"""The broker's answer to a Produce of which perhaps only a part has gone on, because of its producer ids."""

from collections.abc import Sequence
from itertools import chain

from kvota.engine.refused_batches import Key
from kvota.session.producer_id_quota import Asker, ProducerIdQuota
from kvota.wire import produce_parts
from kvota.wire.error_code import ErrorCode
from kvota.wire.produce_parts import ProduceAnswer, RefusedPartition
from kvota.wire.producer_ids import Place
from kvota.wire.steps import STEP_PARTS, Steps
from kvota.wire.varint import Frame

# Clients send such a batch again as it is: what comes behind it has to wait for it.
_SENT_AGAIN = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)


class ProduceInPart:
    """What is to be done with the broker's answer to the part of a Produce that has gone on.

    Args:
        quota: of producer ids.
        asker: whose request it is.
        version: of the request.
        refused: what its refused partitions are answered.
        awaited: batches of the others that were refused before.
        throttle_ms: that the client is told at least.
    """

    __slots__ = (
        "_awaited",
        "_connection",
        "_quota",
        "_refused",
        "_user",
        "_version",
        "throttle_ms",
    )

    def __init__(
        self,
        quota: ProducerIdQuota,
        asker: Asker,
        *,
        version: int,
        refused: Sequence[RefusedPartition],
        awaited: Sequence[Key],
        throttle_ms: int,
    ) -> None:
        self._quota = quota
        self._user, self._connection = asker.user, asker.connection
        self._version = version
        self._refused = refused
        self._awaited = awaited
        self.throttle_ms = throttle_ms

    def merged(self, frame: Frame) -> Steps[Frame]:
        """The answer, with the partitions that were refused.

        Raises:
            ProtocolError: it is no such answer.
        """
        told = frame
        scanned = yield from produce_parts.scan_answer_in_steps(frame, self._version)
        if self._refused:
            told = yield from produce_parts.merge_in_steps(
                frame, scanned, self._version, self._refused
            )
        if self._awaited:
            yield from self._settle(scanned)
        return told

    def _settle(self, scanned: ProduceAnswer) -> Steps[None]:
        """What the broker has, or its client gives up, keeps nothing back any more."""
        over: set[Place] = set()
        for number, result in enumerate(chain.from_iterable(rows for _, rows, _ in scanned.topics)):
            if result.error_code not in _SENT_AGAIN:
                over.add(result.place)
            if number % STEP_PARTS == STEP_PARTS - 1:
                yield None
        awaited, self._awaited = self._awaited, ()
        batches = self._quota.refused_batches
        for number, key in enumerate(awaited, 1):
            _, topic, partition = key
            tell = batches.answered if (topic, partition) in over else batches.abandoned
            tell(self._user, key, self._connection)
            if number % STEP_PARTS == 0:
                yield None

    def abandoned(self) -> None:
        """Whether the broker has what was awaited nobody knows: it has to come again."""
        for key in self._awaited:
            self._quota.refused_batches.abandoned(self._user, key, self._connection)
