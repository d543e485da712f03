"""How soon is a small disk full, with full disks throttling by each algorithm and without kvota; and how soon do clients go on?

    ./run bench volumes [--seconds 40] [--connections 50] [--held 10 30] [--rounds 3] [--only-each] [--keep]

Three brokers, the data of each on a file system of 512 MiB (needs the right to mount one). 50 connections that ignore
throttle times send 200 KB each, one after the other, to a topic with three replicas: through a gateway with a limit of 20 MB/s by ``sampled_rate``, by
``token_bucket``, and straight to the broker. Soft limit 300 MiB, hard limit 100 MiB, a look every second.

Then Java, librdkafka and aiokafka produce at full speed, somebody else's file takes a disk below the hard limit, and all records
are deleted: how long after the first free byte each of the three has a record acknowledged, in check intervals.

Last, 50 producers of the three kinds are stopped for 10 s and for 30 s (a gateway closes connections after 25 s), and it is told how long after the first
free byte half of each kind were served again, and all (``resumed_each``; beside it, what a quota of the brokers' own does). ``--only-each``: only that.

It exits 1 where a disk was full behind a gateway, or a client went on later than two check intervals after there was room, and the wait
that it was told last (three intervals at most).
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # disks and clients are the tests'

from confluent_kafka import Producer  # noqa: E402
from tests.endurance.client_process import ClientProcess, java_client  # noqa: E402
from tests.integration.full_speed import AiokafkaAtFullSpeed, LibrdkafkaAtFullSpeed  # noqa: E402
from tests.integration.small_disks import available, small_disks, taken_by_others  # noqa: E402
from tests.integration.test_volumes import QUICK, P, empty, ends  # noqa: E402

from hold_clients import Crowd  # noqa: E402
from kvota.app.gateway_process import (  # noqa: E402
    GatewayProcess,
    free_port_range,
    gateway_toml,
)
from kvota.localkafka import LocalKafka  # noqa: E402
from kvota.model.bucket_settings import BucketSettings  # noqa: E402
from kvota.model.quota_type import QuotaType  # noqa: E402
from relay import commit  # noqa: E402
from resumed_each import KINDS, resumed_each, stopped_by_brokers  # noqa: E402

MIB = 2**20
NODES, PARTITIONS = 3, 3
DISK_BYTES, SOFT_BYTES, HARD_BYTES = 512 * MIB, 300 * MIB, 100 * MIB
LIMIT = 20_000_000
INTERVAL_S = 1.0
VALUE_BYTES = 200_000
# Less than that is what Kafka's own topics write.
QUIET_BYTES = 256 * 1024
WAYS = ("sampled_rate", "token_bucket", "without kvota")


@contextmanager
def cluster() -> Iterator[tuple[LocalKafka, list[Path]]]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        disks = stack.enter_context(small_disks(folder, NODES, DISK_BYTES))
        properties = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}
        kafka = LocalKafka(nodes=NODES, folder=folder, properties=properties)
        yield stack.enter_context(kafka), disks


def gateway(kafka: LocalKafka, folder: Path, algorithm: str) -> GatewayProcess:
    port = free_port_range(NODES + 2)
    settings: dict[str, int | str] = {
        "client.quota.callback.class": "kvota.callbacks.StaticQuotaCallback",
        f"{P}.produce": LIMIT,
        f"{P}.storage.check-interval": int(INTERVAL_S),
        f"{P}.storage.perVolumeLimit.availableBytesBelow.soft": SOFT_BYTES,
        f"{P}.storage.perVolumeLimit.availableBytesBelow.hard": HARD_BYTES,
        f"{P}.kafka.admin.bootstrap.servers": kafka.bootstrap_servers,
    }
    bucket = {QuotaType.PRODUCE: BucketSettings()} if algorithm == "token_bucket" else None
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        first_port=port,
        node_ids=f"1-{NODES}",
        enforce={"PRODUCE": True},
        buckets=bucket,
        kafka=settings,
    )
    return GatewayProcess(folder, config=config, quotas="")


def node_port(one: GatewayProcess, node_id: int) -> int:
    return int(one.bootstrap_servers.rpartition(":")[2]) + 1 + node_id


async def crowd(
    disks: list[Path], kafka: LocalKafka, port: int, args: argparse.Namespace
) -> dict[str, Any]:
    """The least room on any disk while the crowd sends, look after look."""
    seen: list[tuple[float, int]] = []
    start = time.monotonic()
    ended: str | None = None

    async def look() -> None:
        while all(node.running for node in kafka.nodes):
            seen.append((time.monotonic() - start, min(map(available, disks))))
            await asyncio.sleep(0.05)
        raise ConnectionError("a broker has died")

    clients = Crowd(port, "crowd", "crowd", args.connections, VALUE_BYTES)
    try:
        async with asyncio.timeout(args.seconds), asyncio.TaskGroup() as tasks:
            tasks.create_task(look())
            tasks.create_task(clients.run())
    except* TimeoutError:
        pass
    except* (ConnectionError, RuntimeError) as group:
        ended = str(innermost(group))
        await asyncio.sleep(5)  # brokers that end take a while
    dead = [node.node_id for node in kafka.nodes if not node.running]
    least = min(room for _, room in seen)
    until_s = next(at for at, room in seen if room <= least + QUIET_BYTES)

    def reached(bound: int) -> float | None:
        return next((round(at, 1) for at, room in seen if room <= bound), None)

    return {
        "soft_s": reached(SOFT_BYTES),
        "hard_s": reached(HARD_BYTES),
        "full_s": reached(QUIET_BYTES),
        "written_last_s": round(until_s, 1),
        "least_available_bytes": least,
        "written_in_10_s_bytes": sum(a[2] for a in clients.answers if a[0] - clients.answers[0][0] < 10),
        "dead_brokers": dead,
        "ended": ended,
    }  # fmt: skip


def innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def fill(way: str, args: argparse.Namespace) -> dict[str, Any]:
    with cluster() as (kafka, disks), tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        kafka.create_topic("crowd", 1, NODES, configs=QUICK)
        leader = leader_of(kafka.bootstrap_servers)
        if way == "without kvota":
            port = kafka.node(leader).port
        else:
            one = stack.enter_context(gateway(kafka, Path(folder), way))
            port = node_port(
                one, leader_of(one.bootstrap_servers)
            )  # it learns its brokers from it, too
        host = kafka.host
        assert host == "127.0.0.1", "the crowd connects there"
        return asyncio.run(crowd(disks, kafka, port, args))


def leader_of(servers: str) -> int:
    topics = Producer({"bootstrap.servers": servers}).list_topics("crowd", 20).topics
    return int(topics["crowd"].partitions[0].leader)


def resumed() -> dict[str, float]:
    """For each client: how long after there was room again a record is acknowledged, in seconds."""
    topics = ("librdkafka", "aiokafka", "java")
    with cluster() as (kafka, disks), tempfile.TemporaryDirectory() as text, ExitStack() as stack:
        folder = Path(text)
        for topic in topics:
            kafka.create_topic(topic, PARTITIONS, NODES, configs=QUICK)
        one = stack.enter_context(gateway(kafka, folder / "gw", "sampled_rate"))
        command = java_client(
            "Producing", one.bootstrap_servers, "java", PARTITIONS, "java", 1, 2000
        )
        java = stack.enter_context(ClientProcess(folder, "java", command))
        java.wait_until_it_began()
        stack.enter_context(LibrdkafkaAtFullSpeed(one.bootstrap_servers, "librdkafka"))
        stack.enter_context(AiokafkaAtFullSpeed(one.bootstrap_servers, "aiokafka"))
        while min(map(available, disks)) > SOFT_BYTES - 40 * MIB:
            time.sleep(0.1)
        with taken_by_others(disks[1], leaving_bytes=HARD_BYTES // 2):
            while "-> 0.00: broker 2" not in one.log:
                time.sleep(0.05)
            time.sleep(5)
            stopped = {topic: ends(kafka, topic) for topic in topics}
            for topic in topics:
                empty(kafka, topic)
        while min(map(available, disks)) <= SOFT_BYTES:
            time.sleep(0.01)
        start, found = time.monotonic(), dict[str, float]()
        while len(found) < len(topics) and time.monotonic() - start < 60:
            for topic in topics:
                if topic not in found and ends(kafka, topic) > stopped[topic]:
                    found[topic] = round(time.monotonic() - start, 2)
            with suppress(KeyboardInterrupt):
                time.sleep(0.02)
        return found


def each_resumed(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """By way and seconds, for each kind: when half of its producers, and all, were served again."""
    found = {}
    with cluster() as (kafka, disks), tempfile.TemporaryDirectory() as text, ExitStack() as stack:
        folder = Path(text)
        one = stack.enter_context(gateway(kafka, folder / "gw", "sampled_rate"))

        def stopped_by_kvota() -> Callable[[], None]:
            stops = one.log.count("-> 0.00: broker 2")
            taking = ExitStack()
            taking.enter_context(taken_by_others(disks[1], leaving_bytes=HARD_BYTES // 2))
            while one.log.count("-> 0.00: broker 2") == stops:
                time.sleep(0.05)
            return taking.close

        direct = kafka.bootstrap_servers
        for held_s in args.held:
            for way, servers, stop in (
                ("kvota", one.bootstrap_servers, stopped_by_kvota),
                ("brokers", direct, lambda: stopped_by_brokers(direct)),
            ):
                name = f"{way}-{held_s:g}s"
                found[name] = resumed_each(
                    kafka,
                    folder / name,
                    servers,
                    stop,
                    count=args.producers,
                    held_s=held_s,
                    rounds=args.rounds,
                )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--producers", type=int, default=50, help="of which each is to go on")
    parser.add_argument("--held", type=float, nargs="+", default=[10.0, 30.0], metavar="SECONDS")
    parser.add_argument("--rounds", type=int, default=3, help="so often they are stopped")
    parser.add_argument("--only-each", action="store_true")
    parser.add_argument("--keep", action="store_true", help="write bench/results/volumes.json")
    args = parser.parse_args()
    each = each_resumed(args)
    late_each = [
        f"{kind} of {way}"
        for way, of_kind in each.items()
        for kind in KINDS
        if way.startswith("kvota") and (of_kind[kind]["p100_s"] or 1e9) > 5 * INTERVAL_S
    ]
    if args.only_each:
        keep(args, {"resumed_each": {"commit": commit()} | each})
        for what in late_each:
            print(f"it did not hold: {what}")
        return 1 if late_each else 0
    fills = {}
    for way in WAYS:
        fills[way] = fill(way, args)
        print(f"{way:14} {json.dumps(fills[way])}", flush=True)
    after = resumed()
    print(f"after there is room, s: {json.dumps(after)} (check interval {INTERVAL_S:g} s)")
    keep(
        args,
        {
            "commit": commit(),
            "connections": args.connections,
            "fills": fills,
            "resumed_s": after,
            "resumed_each": {"commit": commit()} | each,
        },
    )
    full = [
        way for way in WAYS[:2] if fills[way]["full_s"] is not None or fills[way]["dead_brokers"]
    ]
    late = [
        client
        for client in ("librdkafka", "aiokafka", "java")
        if after.get(client, 1e9) > 5 * INTERVAL_S
    ]
    for what in (*full, *late, *late_each):
        print(f"it did not hold: {what}")
    return 1 if full or late or late_each else 0


def keep(args: argparse.Namespace, found: dict[str, Any]) -> None:
    """Write what was measured; what was not stays."""
    if args.keep:
        path = HERE / "results" / "volumes.json"
        kept = json.loads(path.read_text()) | found
        path.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
