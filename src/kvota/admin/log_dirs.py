"""What is in the log directories of brokers, and how full their volumes are (KIP-827)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvota.admin.operation import Operation, Outcome
from kvota.admin.topics import TopicPartition
from kvota.client import Answer, BrokerError
from kvota.wire.log_dirs import DESCRIBE_LOG_DIRS


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInfo:
    """A replica in a log directory.

    Attributes:
        size_bytes: what its segments take.
        offset_lag: how far behind the high watermark it is.
        is_future: it is being moved to this directory.
    """

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """One log directory.

    Attributes:
        error: why nothing is known of it, e.g. its disk has failed; else None.
        replica_infos: what is in it.
        total_bytes: of its volume; None: the broker does not tell (before 3.3).
        usable_bytes: of its volume that the broker may still write; None as above.
    """

    error: BrokerError | None
    replica_infos: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None
    usable_bytes: int | None


LogDirs = dict[str, LogDirDescription]


def description(broker_id: int) -> Operation[int, LogDirs]:
    """What is asked of one broker: all its directories."""

    def outcomes(answer: Answer) -> Iterable[Outcome[int, LogDirs]]:
        log_dirs = {str(result.log_dir): _log_dir(broker_id, result) for result in answer.results}
        yield Outcome(broker_id, int(getattr(answer, "error_code", 0)), None, log_dirs)

    return Operation(
        api_key=DESCRIBE_LOG_DIRS,
        what=lambda broker: f"the log directories of broker {broker} cannot be described",
        content=lambda _version, _keys, _left_ms: {"topics": None},
        outcomes=outcomes,
        to=broker_id,
    )


def _log_dir(broker_id: int, result: Answer) -> LogDirDescription:
    code = int(result.error_code)
    where = f"broker {broker_id}: {result.log_dir}"
    return LogDirDescription(
        error=BrokerError(where, code) if code else None,
        replica_infos={
            TopicPartition(str(topic.name), int(partition.partition_index)): ReplicaInfo(
                size_bytes=int(partition.partition_size),
                offset_lag=int(partition.offset_lag),
                is_future=bool(partition.is_future_key),
            )
            for topic in result.topics
            for partition in topic.partitions
        },
        total_bytes=_told(result, "total_bytes"),
        usable_bytes=_told(result, "usable_bytes"),
    )


def _told(result: Answer, name: str) -> int | None:
    value = int(getattr(result, name, -1))
    return value if value >= 0 else None
