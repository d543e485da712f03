"""Share groups over their quota and beside it: what members get through the gateway, and of a broker with the same quota.

    ./run bench share_groups [--seconds 20]

On a real broker, recording on; both quotas are the same, of two client ids: the broker's own holds who is connected to it, the
gateway's who comes through it, at the same time. Over it: 20 members of one group that take no notice of throttle times and
ask for 1 byte, so that each answer is a whole batch; compared are the bytes that came with the limit, and how many records
were delivered for a second time. Waiting: 60 members of as many groups wait for a record that comes now and then, far below the
quota; compared is how late each is.

Bars, of what comes through the gateway: no more bytes than the limit in that time and one window, and what was under way; at least half of that; no larger share of
records delivered again than behind the broker's own quota. Of those that wait: as many deliveries as from the broker, and a p99 of at most
3 times its. No member fails. All is kept in ``results/share_groups.json``.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from confluent_kafka import Producer

from kvota.admin import AdminClient, ClientQuotaAlteration, QuotaEntity
from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka
from relay import commit
from share_members import Member, make_groups
from verdict import judged

RESULT = Path(__file__).parent / "results" / "share_groups.json"

LIMIT = 500_000
WINDOW_S = 10
DIRECT, THROUGH = "direct", "through"
OVER, WAITING = 20, 60
PARTITIONS, VALUE_BYTES, BATCH_BYTES = 4, 1_000, 16_384
RECORDS = 15
X_LATE_MAX, SHARE_MIN = 3.0, 0.5
Found = dict[str, dict[str, float]]  # by way
KAFKA = {"group.share.record.lock.duration.ms": "15000"}


class Seen:
    """What the members of one way have got."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.came = self.records = self.again = 0
        self.late_ms: list[float] = []
        self.failures: list[str] = []

    def add(self, size: int, records: int, again: int, late_ms: list[float]) -> None:
        with self._lock:
            self.came, self.records = self.came + size, self.records + records
            self.again += again
            self.late_ms += late_ms

    def fail(self, error: Exception) -> None:
        with self._lock:
            self.failures.append(repr(error))


def read(make: Callable[[], Member], seen: Seen, end_s: float, sent_s: dict[int, float]) -> None:
    try:
        member = make()
        while time.monotonic() < end_s:
            size, came = member.fetch()
            now_s = time.monotonic()
            offsets = [one for _, first, last, _ in came for one in range(first, last + 1)]
            again = sum(last - first + 1 for _, first, last, count in came if count > 1)
            late_ms = [1000 * (now_s - sent_s[one]) for one in offsets if one in sent_s]
            seen.add(size, len(offsets), again, late_ms)
        member.socket.close()
    except (OSError, ValueError) as error:
        seen.fail(error)


class Field:
    """A broker, a gateway, and both ways in."""

    def __init__(self, kafka: LocalKafka, gateway: GatewayProcess) -> None:
        self.kafka = kafka
        self.addresses = {DIRECT: kafka.bootstrap_servers, THROUGH: gateway.bootstrap_servers}

    def produce(self, topic: str, records: int) -> None:
        producer = Producer(
            {"bootstrap.servers": self.addresses[DIRECT], "batch.size": BATCH_BYTES, "linger.ms": 5}
        )
        for number in range(records):
            producer.produce(topic, bytes(VALUE_BYTES), partition=number % PARTITIONS)
            producer.poll(0)
        assert producer.flush(60) == 0

    def run(
        self, topic: str, groups: dict[str, list[str]], sent_s: dict[int, float], *,
        members: int, partitions: int, seconds: float, **options: int,
    ) -> dict[str, Seen]:  # fmt: skip
        """Members of all groups of both ways, for so long."""
        everybody = [one for of_way in groups.values() for one in of_way]
        topic_id = asyncio.run(make_groups(self.addresses[DIRECT], everybody, topic))
        seen = {way: Seen() for way in groups}
        end_s = time.monotonic() + seconds

        def member(way: str, group: str) -> Member:
            return Member(self.addresses[way], way, group, topic_id, partitions, **options)

        threads = [
            threading.Thread(
                target=read,
                args=(lambda way=way, group=group: member(way, group), seen[way], end_s, sent_s),
            )
            for way, of_way in groups.items()
            for group in of_way
            for _ in range(members)
        ]
        for one in threads:
            one.start()
        if not sent_s and members == 1:
            self._trickle(topic, sent_s, end_s)
        for one in threads:
            one.join()
        return seen

    def _trickle(self, topic: str, sent_s: dict[int, float], end_s: float) -> None:
        producer = Producer({"bootstrap.servers": self.addresses[DIRECT], "linger.ms": 0})
        time.sleep(4)
        pause_s = (end_s - time.monotonic() - 2) / RECORDS
        for number in range(RECORDS):
            sent_s[number] = time.monotonic()
            producer.produce(topic, bytes(200), partition=0)
            assert producer.flush(10) == 0
            time.sleep(pause_s)


def groups_of(name: str, count: int) -> dict[str, list[str]]:
    run = uuid.uuid4().hex[:6]
    return {way: [f"{name}-{way}-{run}-{n}" for n in range(count)] for way in (DIRECT, THROUGH)}


def over(field: Field, seconds: float) -> tuple[Found, list[str]]:
    topic = "over"
    field.kafka.create_topic(topic, partitions=PARTITIONS)
    field.produce(topic, int(LIMIT * (seconds + 3 * WINDOW_S) / VALUE_BYTES))
    seen = field.run(
        topic, groups_of(topic, 1), {}, members=OVER, partitions=PARTITIONS, seconds=seconds, max_bytes=1
    )  # fmt: skip
    most = LIMIT * (seconds + WINDOW_S + 1)
    found = {
        way: {
            "share_of_limit_and_window": one.came / most,
            "records": one.records,
            "share_again": one.again / max(one.records, 1),
        }
        for way, one in seen.items()
    }
    for way, one in found.items():
        print(
            f"{way:8} {OVER} members, 1 byte each: {one['share_of_limit_and_window']:5.2f} of limit and window, "
            f"{one['records']:6} records, {one['share_again']:6.1%} of them again"
        )
    through, direct = found[THROUGH], found[DIRECT]
    under_way = OVER * (BATCH_BYTES + VALUE_BYTES) / most
    missed = failures(seen)
    if through["share_of_limit_and_window"] > 1 + under_way:
        missed.append("members get more than the limit and a window")
    if through["share_of_limit_and_window"] < SHARE_MIN:
        missed.append(f"members get less than {SHARE_MIN:g} of the limit and a window")
    if through["share_again"] > direct["share_again"]:
        missed.append("a larger share of the records comes again than from the broker")
    return found, missed


def waiting(field: Field, seconds: float) -> tuple[Found, list[str]]:
    topic = "waiting"
    field.kafka.create_topic(topic)
    seen = field.run(topic, groups_of(topic, WAITING), {}, members=1, partitions=1, seconds=seconds)
    found = {}
    for way, one in seen.items():
        p50, p99 = np.percentile(one.late_ms, [50, 99]) if one.late_ms else (1e9, 1e9)
        found[way] = {"deliveries": len(one.late_ms), "p50_ms": float(p50), "p99_ms": float(p99)}
        print(
            f"{way:8} {WAITING} members wait: a record is {p50:4.0f} ms late, p99 {p99:4.0f} ms "
            f"({len(one.late_ms)} of {WAITING * RECORDS} deliveries)"
        )
    through, direct = found[THROUGH], found[DIRECT]
    missed = failures(seen)
    if through["deliveries"] < direct["deliveries"]:
        missed.append("fewer records are delivered than from the broker")
    if through["p99_ms"] > X_LATE_MAX * direct["p99_ms"]:
        missed.append(f"late: {through['p99_ms'] / direct['p99_ms']:.1f} x is above {X_LATE_MAX:g}")
    return found, missed


def failures(seen: dict[str, Seen]) -> list[str]:
    return [f"{way}: {failure}" for way, one in seen.items() for failure in one.failures[:1]]


def main() -> int:
    options = argparse.ArgumentParser(description="share groups beside a broker's own quota")
    options.add_argument("--seconds", type=float, default=20.0)
    args = options.parse_args()
    load_before = os.getloadavg()[0]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvota-bench-")))
        kafka = stack.enter_context(LocalKafka(nodes=1, host="127.0.0.2", properties=KAFKA))
        asyncio.run(limit_direct(kafka.bootstrap_servers))
        config = gateway_toml(
            upstream=kafka.bootstrap_servers,
            first_port=free_port_range(3),
            node_ids="0-1",
            enforce={"FETCH": True},
            record="record",
        )
        quotas = f'[[quota]]\nclient_id = "{THROUGH}"\nconsumer_byte_rate = {LIMIT}\n'
        gateway = stack.enter_context(GatewayProcess(folder, config=config, quotas=quotas))
        field = Field(kafka, gateway)
        late, missed = waiting(field, args.seconds)
        got, missed_over = over(field, args.seconds)
    missed += missed_over
    kept = {
        "command": f"./run bench share_groups --seconds {args.seconds:g}",
        "commit": commit(),
        "load_before": load_before,
        "limit": LIMIT,
        "waiting": late,
        "over": got,
        "missed": missed,
    }
    return judged(RESULT, kept, missed)


async def limit_direct(servers: str) -> None:
    async with AdminClient(servers) as admin:
        entity = QuotaEntity(client_id=DIRECT)
        await admin.alter_client_quotas(
            [ClientQuotaAlteration(entity, {"consumer_byte_rate": float(LIMIT)})]
        )


if __name__ == "__main__":
    sys.exit(main())
