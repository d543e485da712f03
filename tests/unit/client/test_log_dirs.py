"""Looks at the volumes of brokers: Strimzi's cases by the names they have there, old brokers and hostile ones."""

import asyncio

import pytest
from tests.unit.client.log_dir_brokers import Dir, LogDirBrokers, served

from kvota.client.log_dirs import check_versions, observe_cluster
from kvota.model.errors import UsageError
from kvota.volumes import Observation, Status, Volume
from kvota.wire.log_dirs import LOG_DIRS_MAX
from kvota.wire.steps import STEP_PARTS

TIMEOUT_S = 0.5
DESCRIBED = Status.DESCRIBE_LOG_DIR_ERROR


async def looked(brokers: LogDirBrokers, timeout_s: float = 20.0) -> Observation:
    async with served(brokers) as cluster:
        return await observe_cluster(cluster, timeout_s=timeout_s)


def volume(broker_id: int, log_dir: str, total: int, available: int) -> Volume:
    return Volume(
        broker_id=broker_id, log_dir=log_dir, total_bytes=total, available_bytes=available
    )


# Strimzi's VolumeSourceTest; its mocks of Java's Admin are what brokers do here.
@pytest.mark.parametrize(
    ("name", "brokers", "status"),
    [
        ("shouldProduceFailedObservationIfDescribeClusterFails", LogDirBrokers({1: [Dir()]}, metadata="leaves"), Status.DESCRIBE_CLUSTER_ERROR),
        ("shouldProduceFailedObservationIfDescribeClusterThrows", LogDirBrokers({1: [Dir()]}, metadata="garbage"), Status.DESCRIBE_CLUSTER_ERROR),
        ("shouldProduceFailedObservationOnDescribeClusterTimeout", LogDirBrokers({1: [Dir()]}, metadata="hangs"), Status.SAFETY_TIMEOUT),
        ("shouldProduceFailedObservationWhenDescribeClusterCompletesExceptionally", LogDirBrokers({1: [Dir()]}, metadata="leaves"), Status.DESCRIBE_CLUSTER_ERROR),
        ("shouldProduceFailedObservationWhenDescribeLogDirsFutureCompletesExceptionally", LogDirBrokers({1: [Dir()]}, error_code=31), DESCRIBED),
        # Theirs is a success with no volume, which sets all producers free.
        ("shouldProduceEmptyIfDescribeLogDirsReturnsEmptyMaps", LogDirBrokers({1: []}), DESCRIBED),
        # A broker that was named is gone when it is asked; another one hangs.
        ("of the proposal: inconsistent state", LogDirBrokers({1: [Dir()]}, named=(1, 2)), DESCRIBED),
        ("of the proposal: a broker that hangs", LogDirBrokers({1: [Dir()], 2: [Dir()]}, hung={2}), Status.SAFETY_TIMEOUT),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
async def test_a_look_that_fails(name: str, brokers: LogDirBrokers, status: Status) -> None:
    is_silent = status is Status.SAFETY_TIMEOUT
    found = await (looked(brokers, TIMEOUT_S) if is_silent else looked(brokers))

    assert (found.status, found.volumes) == (status, ()), name
    assert found.reason


@pytest.mark.parametrize(
    ("name", "dirs", "volumes", "dropped"),
    [
        ("shouldProduceCollectionOfVolumes", {1: [Dir("/dir1", 50, 10)]}, [volume(1, "/dir1", 50, 10)], 0),
        ("shouldProduceMultipleVolumesForASingleBrokerIfItHasMultipleLogDirs", {1: [Dir("/dir1", 50, 10), Dir("/dir2", 30, 5)]}, [volume(1, "/dir1", 50, 10), volume(1, "/dir2", 30, 5)], 0),
        ("shouldProduceMultipleVolumesForMultipleBrokers", {1: [Dir("/dir1", 50, 10)], 2: [Dir("/dir1", 30, 5)]}, [volume(1, "/dir1", 50, 10), volume(2, "/dir1", 30, 5)], 0),
        ("shouldFilterVolumesWithoutAvailableBytes", {1: [Dir("/dir1", -1, -1), Dir("/dir3", 60, 15)], 2: [Dir("/dir1", 30, 5)]}, [volume(1, "/dir3", 60, 15), volume(2, "/dir1", 30, 5)], 1),
        ("shouldCountEachValidLogDirInDescribeLogDirsResponse", {1: [Dir("/dir1", 50, -1), Dir("/dir2", 60, 15)]}, [volume(1, "/dir2", 60, 15)], 1),
        ("of a disk that has failed", {1: [Dir("/dir1", 50, 10, 56), Dir("/dir2", 60, 15)]}, [volume(1, "/dir2", 60, 15)], 1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
async def test_a_look_that_succeeds(
    name: str, dirs: dict[int, list[Dir]], volumes: list[Volume], dropped: int
) -> None:
    found = await looked(LogDirBrokers(dict(dirs)))

    assert found == Observation(
        status=Status.SUCCESS,
        volumes=tuple(volumes),
        broker_ids=sorted(dirs),
        dropped=dropped,
    ), name


async def test_a_broker_that_tells_no_size_at_all_fails_the_look() -> None:
    # Strimzi's list would be empty, and its factor 1.0.
    found = await looked(LogDirBrokers({1: [Dir()], 2: [Dir(total_bytes=-1, usable_bytes=-1)]}))

    assert found.status is DESCRIBED
    assert found.reason == "broker 2: it tells the size of none of its 1 log directories"


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_brokers_before_3_3_are_refused_at_the_start_and_fail_a_look_later(
    version: int,
) -> None:
    """VolumeSourceBuilderTest.shouldFailIfKip827NotAvailable; DescribeLogDirs has sizes from version 4 on."""
    brokers = LogDirBrokers({7: [Dir()]}, version=version)
    async with served(brokers) as cluster:
        with pytest.raises(UsageError, match=r"broker 7 is older than Kafka 3\.3 .* needs 3\.3"):
            await check_versions(cluster)
        found = await observe_cluster(cluster, timeout_s=20)

    assert brokers.asked_versions == []  # what it would tell is not what is wanted
    assert found.status is DESCRIBED
    assert found.reason.startswith("broker 7 is older than Kafka 3.3")


async def test_newer_brokers_are_not_refused() -> None:
    async with served(LogDirBrokers({1: [Dir()]})) as cluster:
        await check_versions(cluster)


async def test_of_a_log_directory_that_is_named_twice_the_fuller_one_counts() -> None:
    found = await looked(LogDirBrokers({1: [Dir("/d", 50, 3), Dir("/d", 50, 40)]}))

    assert found.volumes == (volume(1, "/d", 50, 3),)


async def test_more_log_directories_than_anybody_has_fail_the_look() -> None:
    dirs = [Dir(f"/{number}") for number in range(LOG_DIRS_MAX + 1)]

    found = await looked(LogDirBrokers({1: dirs}))

    assert (found.status, found.volumes) == (DESCRIBED, ())
    assert "at most 1000 are taken" in found.reason


async def test_a_name_is_said_on_one_line_and_not_at_full_length() -> None:
    found = await looked(LogDirBrokers({1: [Dir("/d\n2026 ERROR all is lost" + "x" * 10_000)]}))

    (one,) = found.volumes
    assert "\n" not in one.log_dir
    assert len(one.log_dir) == 4_096


@pytest.mark.parametrize(
    ("total", "available", "used", "ratio"),
    [(10, 50, 0, 1.0), (0, 100, 0, 0.0), (2**63 - 1, 2**63 - 1, 0, 1.0), (100, 25, 75, 0.25)],
)
async def test_more_available_than_there_is_makes_no_negative_number(
    total: int, available: int, used: int, ratio: float
) -> None:
    (one,) = (await looked(LogDirBrokers({1: [Dir("/d", total, available)]}))).volumes

    assert (one.used_bytes, one.available_ratio) == (used, ratio)


@pytest.mark.parametrize("silent_from_the_start", [False, True])
async def test_a_broker_that_fell_silent_fails_no_look_once_the_cluster_names_it_no_more(
    silent_from_the_start: bool,
) -> None:
    """Nobody closes the connection to a machine that is gone: the list of brokers is asked elsewhere."""
    brokers = LogDirBrokers({1: [Dir()], 2: [Dir()]})
    async with served(brokers) as cluster:
        if not silent_from_the_start:
            assert (await observe_cluster(cluster, timeout_s=20)).succeeded
        brokers.silent, brokers.named = {1}, (2,)
        first = await observe_cluster(cluster, timeout_s=TIMEOUT_S)
        then = await observe_cluster(cluster, timeout_s=5)  # less than it takes to give one up

    assert then.succeeded, (first.reason, then.reason)


async def test_a_broker_that_hangs_is_asked_for_the_others_once_only() -> None:
    """It keeps its connection open and answers nothing, as a process that was stopped does."""
    brokers = LogDirBrokers({1: [Dir()], 2: [Dir()]}, metadata_hangs_at={1})
    async with served(brokers) as cluster:
        first = await observe_cluster(cluster, timeout_s=TIMEOUT_S)
        brokers.named = (2,)  # so long it hangs that the others have given it up
        then = await observe_cluster(cluster, timeout_s=20)

    assert (first.status, then.status) == (Status.SAFETY_TIMEOUT, Status.SUCCESS)


async def test_a_broker_that_lets_nobody_in_does_not_stand_in_front_of_the_others() -> None:
    brokers = LogDirBrokers({1: [Dir()], 2: [Dir()]}, silent={1}, named=(2,))
    async with served(brokers) as cluster:
        first = await observe_cluster(cluster, timeout_s=TIMEOUT_S)
        then = await observe_cluster(cluster, timeout_s=5)  # less than it takes to give one up

    assert (first.status, then.status) == (Status.SAFETY_TIMEOUT, Status.SUCCESS)


async def test_a_broker_that_answers_too_late_is_not_waited_for_by_the_next_look() -> None:
    brokers = LogDirBrokers({1: [Dir()]}, hung={1})
    async with served(brokers) as cluster:
        first = await observe_cluster(cluster, timeout_s=TIMEOUT_S)
        brokers.hung.clear()  # on the old connection it would answer the first request first
        then = await observe_cluster(cluster, timeout_s=20)

    assert (first.status, then.status) == (Status.SAFETY_TIMEOUT, Status.SUCCESS)
    assert brokers.connections == 2


async def test_an_answer_as_large_as_any_is_read_while_others_have_their_turn() -> None:
    """A broker names the topics of each directory, asked or not; a hostile one as many as there is room for."""
    brokers = LogDirBrokers({1: [Dir()]}, topics=40_000)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with served(brokers) as cluster:
        beside = asyncio.create_task(others())
        found = await observe_cluster(cluster, timeout_s=60)
        beside.cancel()

    assert found.volumes == (volume(1, "/d", 50, 10),)
    assert turns > 40_000 / STEP_PARTS


async def test_topics_that_nobody_has_asked_about_are_not_read() -> None:
    brokers = LogDirBrokers({1: [Dir()]}, unasked_topics=1_000)
    async with served(brokers) as cluster:
        found = await cluster.metadata([])
        looked_at = await observe_cluster(cluster, timeout_s=20)

    assert (list(found.brokers), found.topics) == ([1], {})
    assert looked_at.status == Status.SUCCESS
