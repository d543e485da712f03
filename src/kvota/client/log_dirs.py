"""The disks under all brokers' log directories, asked of each broker (KIP-827, Kafka 3.3 and newer)."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from kvota.client.broker_error import BrokerError
from kvota.client.cluster import Cluster
from kvota.model.errors import KvotaError, UsageError
from kvota.model.plain_text import on_one_line, shortened
from kvota.volumes import Observation, Status, Volume

DESCRIBE_LOG_DIRS = 35
# The first version that tells how large a volume is and how much of it is free.
_VERSION_WITH_SIZES = 4
_TOO_OLD = "is older than Kafka 3.3 and does not tell how full its volumes are (KIP-827)"
# Of one broker; nobody has as many. And no path is longer on any file system.
LOG_DIRS_MAX = 1_000
LOG_DIR_CHARS_MAX = 4_096


async def observe_cluster(cluster: Cluster, *, timeout_s: float) -> Observation:
    """Look at the volumes of every broker that is alive.

    The answers belong together: where one broker that the cluster names does not answer, nothing is
    known of the fullest disk, and the look has failed. A log directory without a size (offline) is
    counted in ``dropped``; a broker that has no other one fails the look, too.

    Args:
        cluster: whom to ask; its user needs Describe on the cluster.
        timeout_s: for each broker's answer, and for the list of brokers.
    """
    try:
        async with asyncio.timeout(timeout_s):
            broker_ids = sorted((await cluster.metadata([])).brokers)
    except TimeoutError as error:
        await cluster.close_silent()
        reason = f"the list of brokers: {_words(error, timeout_s)}"
        return Observation(status=Status.SAFETY_TIMEOUT, reason=reason)
    except KvotaError as error:
        return Observation(status=Status.DESCRIBE_CLUSTER_ERROR, reason=str(error))
    answers = await asyncio.gather(
        *(_of_broker(cluster, broker_id, timeout_s) for broker_id in broker_ids)
    )
    failed = [answer for answer in answers if isinstance(answer, Observation)]
    if failed:
        await cluster.close_silent()
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
        if connection.versions.get(DESCRIBE_LOG_DIRS, (0, 0))[1] < _VERSION_WITH_SIZES:
            msg = f"broker {broker_id} {_TOO_OLD}: the cluster source needs 3.3 or newer"
            raise UsageError(msg)


async def _of_broker(
    cluster: Cluster, broker_id: int, timeout_s: float
) -> tuple[Sequence[Volume], int] | Observation:
    """The volumes of one broker and how many had no size, or why they are not known."""
    try:
        async with asyncio.timeout(timeout_s):
            # No topics: what they take of each directory is not asked.
            answer = await cluster.ask(DESCRIBE_LOG_DIRS, {"topics": []}, to=broker_id)
    except TimeoutError as error:
        reason = f"broker {broker_id}: {_words(error, timeout_s)}"
        return Observation(status=Status.SAFETY_TIMEOUT, reason=reason)
    except KvotaError as error:
        reason = f"broker {broker_id}: {_words(error, timeout_s)}"
        return Observation(status=Status.DESCRIBE_LOG_DIR_ERROR, reason=reason)
    told = _told_by(broker_id, answer)
    if isinstance(told, str):
        return Observation(status=Status.DESCRIBE_LOG_DIR_ERROR, reason=told)
    return told


def _told_by(broker_id: int, answer: Any) -> tuple[Sequence[Volume], int] | str:
    """The volumes in an answer and how many had no size, or why they are not known."""
    results = answer.results
    if not hasattr(answer, "error_code") or not all(
        hasattr(result, "usable_bytes") for result in results
    ):  # it has become older since the start
        return f"broker {broker_id} {_TOO_OLD}"
    code = int(answer.error_code)
    if code:
        return str(BrokerError(f"broker {broker_id}: describe_log_dirs", code))
    if len(results) > LOG_DIRS_MAX:
        return f"broker {broker_id}: it names {len(results)} log directories; at most {LOG_DIRS_MAX} are taken"
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


def _volume(broker_id: int, result: Any) -> Volume | None:
    """None: it tells no size. What it says is written to logs and metrics, so it is made fit for one line."""
    total, usable = int(result.total_bytes), int(result.usable_bytes)
    if int(result.error_code) or total < 0 or usable < 0:
        return None
    return Volume(
        broker_id=broker_id,
        log_dir=shortened(on_one_line(str(result.log_dir)), LOG_DIR_CHARS_MAX),
        total_bytes=total,
        available_bytes=usable,
    )


def _words(error: BaseException, timeout_s: float) -> str:
    return f"no answer in {timeout_s:g} s" if isinstance(error, TimeoutError) else str(error)
