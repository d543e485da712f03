"""The disks under all brokers' log directories, asked of each broker (KIP-827, Kafka 3.3 and newer)."""

import asyncio
from collections.abc import Iterable, Sequence

from kvota.client.broker_error import BrokerError
from kvota.client.cluster import ANY, Cluster
from kvota.client.connection import BrokerConnection
from kvota.client.turns import in_turns
from kvota.model.errors import KvotaError, UsageError
from kvota.model.plain_text import on_one_line, shortened
from kvota.volumes import Observation, Status, Volume
from kvota.wire.log_dirs import (
    DESCRIBE_LOG_DIRS,
    VERSION_WITH_SIZES,
    DescribedLogDirs,
    LogDirSizes,
    read_log_dirs_in_steps,
)

_TOO_OLD = "is older than Kafka 3.3 and does not tell how full its volumes are (KIP-827)"
# No path is longer on any file system.
LOG_DIR_CHARS_MAX = 4_096


async def observe_cluster(cluster: Cluster, *, timeout_s: float) -> Observation:
    """Look at the volumes of every broker that is alive.

    The answers belong together: where one broker that the cluster names does not answer, nothing is
    known of the fullest disk, and the look has failed. A log directory without a size (offline) is
    counted in ``dropped``; a broker that has no other one fails the look, too.

    A broker that has not answered in time loses its connection: the next look asks another one for the list of
    brokers, and does not wait behind what this one has asked.

    Args:
        cluster: whom to ask; its user needs Describe on the cluster.
        timeout_s: to reach a broker, and for its answer.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await cluster.connection_to(ANY)
        broker_ids = sorted((await cluster.metadata([], timeout_s=timeout_s)).brokers)
    except (TimeoutError, KvotaError) as error:
        late = Status.SAFETY_TIMEOUT if _is_late(error) else Status.DESCRIBE_CLUSTER_ERROR
        reason = str(error) or f"the list of brokers: {_no_answer_in(timeout_s)}"
        return Observation(status=late, reason=reason)
    answers = await asyncio.gather(
        *(_of_broker(cluster, broker_id, timeout_s) for broker_id in broker_ids)
    )
    failed = [answer for answer in answers if isinstance(answer, Observation)]
    if failed:
        worst = failed[0]
        reason = "; ".join(one.reason for one in failed)
        return Observation(status=worst.status, broker_ids=broker_ids, reason=reason)
    found = [answer for answer in answers if not isinstance(answer, Observation)]
    return Observation(
        status=Status.SUCCESS,
        volumes=tuple(volume for volumes, _ in found for volume in volumes),
        broker_ids=broker_ids,
        dropped=sum(dropped for _, dropped in found),
    )


async def check_versions(cluster: Cluster) -> None:
    """Check that every broker tells the sizes of its volumes.

    Raises:
        UsageError: one is older than Kafka 3.3; names it.
        UnreachableError: one cannot be asked.
    """
    for broker_id in (await cluster.metadata([])).brokers:
        connection = await cluster.connection_to(broker_id)
        if not _tells_sizes(connection):
            msg = f"broker {broker_id} {_TOO_OLD}: the cluster source needs 3.3 or newer"
            raise UsageError(msg)


async def _of_broker(
    cluster: Cluster, broker_id: int, timeout_s: float
) -> tuple[Sequence[Volume], int] | Observation:
    """The volumes of one broker and how many had no size, or why they are not known."""
    try:
        async with asyncio.timeout(timeout_s):
            connection = await cluster.connection_to(broker_id)
        if not _tells_sizes(connection):  # it has become older since the start
            reason = f"broker {broker_id} {_TOO_OLD}"
            return Observation(status=Status.DESCRIBE_LOG_DIR_ERROR, reason=reason)
        # No topics: what they take of each directory is not asked.
        frame = await connection.ask_frame(
            DESCRIBE_LOG_DIRS, {"topics": []}, version=VERSION_WITH_SIZES, timeout_s=timeout_s
        )
        async with asyncio.timeout(timeout_s):
            described = await in_turns(read_log_dirs_in_steps(frame))
    except (TimeoutError, KvotaError) as error:
        late = Status.SAFETY_TIMEOUT if _is_late(error) else Status.DESCRIBE_LOG_DIR_ERROR
        reason = f"broker {broker_id}: {str(error) or _no_answer_in(timeout_s)}"
        return Observation(status=late, reason=reason)
    told = _told_by(broker_id, described)
    if isinstance(told, str):
        return Observation(status=Status.DESCRIBE_LOG_DIR_ERROR, reason=told)
    return told


def _tells_sizes(connection: BrokerConnection) -> bool:
    return connection.versions.get(DESCRIBE_LOG_DIRS, (0, 0))[1] >= VERSION_WITH_SIZES


def _told_by(broker_id: int, answer: DescribedLogDirs) -> tuple[Sequence[Volume], int] | str:
    """The volumes in an answer and how many had no size, or why they are not known."""
    if answer.error_code:
        return str(BrokerError(f"broker {broker_id}: describe_log_dirs", answer.error_code))
    results = answer.log_dirs
    volumes = [_volume(broker_id, result) for result in results]
    known = _each_once(volume for volume in volumes if volume is not None)
    if not known:
        # A user without the right to describe the cluster gets an empty list of old brokers.
        return (
            f"broker {broker_id}: it tells the size of none of its {len(volumes)} log directories"
        )
    return known, sum(volume is None for volume in volumes)


def _each_once(volumes: Iterable[Volume]) -> list[Volume]:
    """Of a log directory that is named twice the fuller one."""
    found: dict[str, Volume] = {}
    for volume in volumes:
        known = found.get(volume.log_dir)
        if known is None or volume.available_bytes < known.available_bytes:
            found[volume.log_dir] = volume
    return list(found.values())


def _volume(broker_id: int, told: LogDirSizes) -> Volume | None:
    """None: it tells no size. What it says is written to logs and metrics, so it is made fit for one line."""
    if told.error_code or told.total_bytes < 0 or told.usable_bytes < 0:
        return None
    return Volume(
        broker_id=broker_id,
        log_dir=shortened(on_one_line(told.log_dir), LOG_DIR_CHARS_MAX),
        total_bytes=told.total_bytes,
        available_bytes=told.usable_bytes,
    )


def _is_late(error: BaseException) -> bool:
    """True where nothing was wrong but the time; the client says that as an ``UnreachableError`` of its own."""
    return isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError)


def _no_answer_in(timeout_s: float) -> str:
    return f"no answer in {timeout_s:g} s"
