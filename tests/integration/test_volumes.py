"""A real broker on a small disk: producers are slowed down and stopped before it is full, and go on afterwards."""

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, Producer

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.client import Cluster
from kvota.files.log_dirs import observe_local
from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED

MIB = 2**20
DISK_BYTES = 400 * MIB
# Less than what is produced between two looks lies between them: near the hard limit the factor is so small that
# one wait for it may last minutes, as lawful as it is useless to a test. How the factor falls is in the unit tests.
SOFT_BYTES, HARD_BYTES = 152 * MIB, 150 * MIB
PRODUCE_BYTES_PER_S = 40 * 10**6
PATIENCE_S = 120
DELETE_RECORDS = 21
P = "client.quota.callback.static"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own size, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


class FullSpeed:
    """librdkafka sends all it can until it is told to stop, or until the block ends."""

    def __init__(self, servers: str, topic: str) -> None:
        self.delivered = 0
        self.failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "queue.buffering.max.kbytes": 16_384,
                "batch.size": 200_000,
                "linger.ms": 5,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()

    def stop(self) -> None:
        """Send no more; return when all that was sent has ended."""
        self._stopping.set()
        self._thread.join(150)

    def _run(self) -> None:
        record = b"v" * 20_000
        while not self._stopping.is_set():
            try:
                self._producer.produce(self._topic, record, on_delivery=self._ended)
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(0.05)
        self._producer.flush(130)

    def _ended(self, error: object, _message: object) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failed.append(str(error))


def available(disk: Path) -> int:
    return observe_local([str(disk)]).volumes[0].available_bytes


def stored(servers: str, topic: str) -> int:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "count",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    count, quiet = 0, 0
    while quiet < 3:
        messages = consumer.consume(1000, timeout=2)
        count += sum(message.error() is None for message in messages)
        quiet = 0 if messages else quiet + 1
    consumer.close()
    return count


@pytest.mark.timeout(300)
async def test_producers_at_full_speed_never_fill_the_disk_and_go_on_when_there_is_room(
    small_disk: Path, tmp_path: Path
) -> None:
    properties = {
        "log.segment.bytes": str(16 * MIB),
        "log.segment.delete.delay.ms": "100",
        "log.retention.check.interval.ms": "1000",
    }
    with LocalKafka(
        folder=small_disk / "kafka", properties=properties, java_options=SHORT_LIVED
    ) as kafka:
        for topic in ("first", "second"):
            kafka.create_topic(topic)
        port = free_port_range(4)
        settings: dict[str, int | str] = {
            "client.quota.callback.class": "kvota.callbacks.StaticQuotaCallback",
            f"{P}.produce": PRODUCE_BYTES_PER_S,
            f"{P}.storage.check-interval": 1,
            f"{P}.storage.perVolumeLimit.availableBytesBelow.soft": SOFT_BYTES,
            f"{P}.storage.perVolumeLimit.availableBytesBelow.hard": HARD_BYTES,
            f"{P}.kafka.admin.bootstrap.servers": kafka.bootstrap_servers,
        }
        config = gateway_toml(
            upstream=kafka.bootstrap_servers,
            first_port=port,
            node_ids="1-2",
            enforce={"PRODUCE": True},
            kafka=settings,
        )
        with (
            GatewayProcess(tmp_path / "gw", config=config, quotas="", first_port=port) as gateway,
            FullSpeed(gateway.bootstrap_servers, "first") as producer,
        ):
            await until(lambda: "-> 0.00: broker 1" in gateway.log, lambda: gateway.log)
            await asyncio.sleep(3)  # nothing more may be produced
            assert available(small_disk) > 0
            delivered = producer.delivered
            await asyncio.sleep(3)
            assert producer.delivered == delivered, "produced on a disk at its hard limit"

            async with Cluster(kafka.bootstrap_servers.split(",")) as cluster:
                await empty(cluster, "first")
            await until(lambda: producer.delivered > delivered, lambda: gateway.log)
            producer.stop()

            assert producer.failed == []
            with FullSpeed(gateway.bootstrap_servers, "second") as second:
                await asyncio.sleep(1)
                second.stop()
            assert second.failed == []
            assert stored(gateway.bootstrap_servers, "second") == second.delivered


async def until(is_so: Callable[[], bool], said: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, f"it never became so; the gateway said:\n{said()[-4000:]}"
        await asyncio.sleep(0.1)


async def empty(cluster: Cluster, topic: str) -> None:
    """Delete the records of a topic's one partition, up to its end."""
    answer = await cluster.ask(
        DELETE_RECORDS,
        {
            "topics": [
                {"name": topic, "partitions": [{"partition_index": 0, "offset": -1}]},
            ],
            "timeout": timedelta(seconds=20),
        },
    )
    assert [int(each.partitions[0].error_code) for each in answer.topics] == [0]
