"""The disks under all brokers' log directories, asked of each broker (KIP-827, Kafka 3.3 and newer)."""

import asyncio
from collections.abc import Sequence
from typing import Any

from kvota.client.broker_error import BrokerError
from kvota.client.cluster import Cluster
from kvota.model.errors import KvotaError, UsageError
from kvota.volumes import Observation, Status, Volume

DESCRIBE_LOG_DIRS = 35
# The first version that tells how large a volume is and how much of it is free.
_VERSION_WITH_SIZES = 4


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
        reason = f"the list of brokers: {_words(error, timeout_s)}"
        return Observation(status=Status.SAFETY_TIMEOUT, reason=reason)
    except KvotaError as error:
        return Observation(status=Status.DESCRIBE_CLUSTER_ERROR, reason=str(error))
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
        if connection.versions.get(DESCRIBE_LOG_DIRS, (0, 0))[1] < _VERSION_WITH_SIZES:
            msg = (
                f"broker {broker_id} is older than Kafka 3.3 and does not tell how full its volumes are "
                "(KIP-827): the cluster source needs 3.3 or newer"
            )
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
    code = int(answer.error_code)
    if code:
        reason = str(BrokerError(f"broker {broker_id}: describe_log_dirs", code))
        return Observation(status=Status.DESCRIBE_LOG_DIR_ERROR, reason=reason)
    volumes = [_volume(broker_id, result) for result in answer.results]
    known = [volume for volume in volumes if volume is not None]
    if not known:
        # A user without the right to describe the cluster gets an empty list of old brokers.
        reason = (
            f"broker {broker_id}: it tells the size of none of its {len(volumes)} log directories"
        )
        return Observation(status=Status.DESCRIBE_LOG_DIR_ERROR, reason=reason)
    return known, len(volumes) - len(known)


def _volume(broker_id: int, result: Any) -> Volume | None:
    total, usable = int(result.total_bytes), int(result.usable_bytes)
    if int(result.error_code) or total < 0 or usable < 0:
        return None
    return Volume(
        broker_id=broker_id,
        log_dir=str(result.log_dir),
        total_bytes=total,
        available_bytes=usable,
    )


def _words(error: BaseException, timeout_s: float) -> str:
    return f"no answer in {timeout_s:g} s" if isinstance(error, TimeoutError) else str(error)
