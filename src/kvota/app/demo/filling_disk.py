"""The demo of full disks: a disk fills, the produce rate follows the factor, and recovers when records are deleted.

No disk of this machine is filled: the limits stand so far below what is available now that the demo takes
some 250 MB.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvota.app.demo.beginning import prepare, terminated_as_interrupt
from kvota.app.demo.screen import Screen
from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.app.http_client import ask
from kvota.files.log_dirs import observe_local
from kvota.localkafka import LocalKafka
from kvota.model.bucket_settings import BucketSettings
from kvota.model.errors import UsageError
from kvota.model.quota_type import QuotaType
from kvota.model.units import format_byte_rate, format_bytes
from kvota.volumes.settings import (
    ADMIN_PREFIXES,
    CHECK_INTERVAL,
    HARD_BYTES,
    PRODUCE,
    SOFT_BYTES,
)

if TYPE_CHECKING:
    from confluent_kafka import Producer

STEPS = 3
TOPIC = "filling"
LIMIT_BYTES_PER_S = 20_000_000
# Of what is available when it begins: where the factor begins to fall, and where nothing passes.
TO_SOFT_BYTES, TO_HARD_BYTES = 60_000_000, 200_000_000
# Other programs may write, too.
_ROOM_BYTES = 1_000_000_000
_BUCKET = BucketSettings(burst_ms=1_000, debt_max_ms=2_000)
_RECORD = bytes(10_000)
_RECOVERS_S = 15
_BAR = 40


@dataclass(frozen=True, slots=True)
class Second:
    """What one second has shown."""

    at_s: float
    available_bytes: int
    factor: float
    bytes_per_s: float


def run_filling_disk(folder: Path, *, seconds: float) -> int:
    """Let a producer fill a disk for so long, delete its records, and go on until it has recovered.

    Returns:
        1 where the produce rate did not follow the factor, or did not recover.

    Raises:
        UsageError: there is too little room on the disk to show anything.
        KvotaError: Kafka or the gateway failed; nothing is left running.
    """
    prepare(folder)
    screen = Screen(STEPS)
    with terminated_as_interrupt(), ExitStack() as stack:
        with screen.step("Apache Kafka 4.3.1, one node") as said:
            properties = {
                "log.retention.check.interval.ms": "500",
                "log.initial.task.delay.ms": "500",
            }
            kafka = stack.enter_context(LocalKafka(properties=properties))
            quick = {"segment.bytes": str(4 << 20), "file.delete.delay.ms": "100"}
            kafka.create_topic(TOPIC, configs=quick)
            available = _available(kafka)
            if available < _ROOM_BYTES:
                msg = f"{kafka.folder} has {format_bytes(available)} left; the demo wants {format_bytes(_ROOM_BYTES)}"
                raise UsageError(msg)
            soft, hard = available - TO_SOFT_BYTES, available - TO_HARD_BYTES
            said.append(f"{format_bytes(available)} are available on its disk")
        with screen.step("Gateway: it looks at the disk every second") as said:
            gateway = stack.enter_context(_gateway(kafka, folder, soft, hard))
            said.append(
                f"produce limit {format_byte_rate(LIMIT_BYTES_PER_S)}; from {format_bytes(TO_SOFT_BYTES)} more "
                f"on less, at {format_bytes(TO_HARD_BYTES)} more nothing (in real life: near the disk's end)"
            )
        with screen.step(
            f"A producer at full speed for {seconds:.0f} s, then its records are deleted"
        ):
            filling, recovered = _watch(kafka, gateway, screen, hard, seconds)
    return verdict(screen, filling, recovered, folder)


def _gateway(kafka: LocalKafka, folder: Path, soft: int, hard: int) -> GatewayProcess:
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        node_ids="0-2",
        enforce={"PRODUCE": True},
        buckets={QuotaType.PRODUCE: _BUCKET},
        record="record",
        http_port=0,
        kafka={
            "client.quota.callback.class": "kvota.callbacks.StaticQuotaCallback",
            PRODUCE: LIMIT_BYTES_PER_S,
            CHECK_INTERVAL: 1,
            SOFT_BYTES[0]: soft,
            HARD_BYTES[0]: hard,
            f"{ADMIN_PREFIXES[0]}bootstrap.servers": kafka.bootstrap_servers,
        },
    )
    return GatewayProcess(folder / "gateway", config=config, quotas="")


def _watch(
    kafka: LocalKafka, gateway: GatewayProcess, screen: Screen, hard: int, seconds: float
) -> tuple[list[Second], list[Second]]:
    screen.show("\n  time  until the hard limit  factor  produced")
    filling: list[Second] = []
    recovered: list[Second] = []
    with _producing(gateway.bootstrap_servers) as delivered:
        start, before_s, before = time.monotonic(), time.monotonic(), 0
        while time.monotonic() - start < seconds + _RECOVERS_S:
            time.sleep(1.0)
            now_s, records = time.monotonic(), delivered()
            second = Second(
                at_s=now_s - start,
                available_bytes=_available(kafka) - hard,
                factor=_factor(gateway),
                bytes_per_s=(records - before) * len(_RECORD) / (now_s - before_s),
            )
            before_s, before = now_s, records
            screen.show(_line(second))
            if recovered or (filling and now_s - start > seconds):
                if not recovered:
                    _empty(kafka)
                    screen.show("        all records are deleted")
                recovered.append(second)
                if len(recovered) > 2 and second.factor == 1.0 and _is_fast(second):
                    break
            else:
                filling.append(second)
    return filling, recovered


def _line(second: Second) -> str:
    bar = "█" * round(_BAR * min(1.0, second.bytes_per_s / LIMIT_BYTES_PER_S))
    return (
        f"{second.at_s:5.0f} s {format_bytes(second.available_bytes):>21} {second.factor:7.2f}  "
        f"{format_byte_rate(second.bytes_per_s):<10} {bar}"
    )


def _is_fast(second: Second) -> bool:
    return second.bytes_per_s > LIMIT_BYTES_PER_S / 2


def verdict(screen: Screen, filling: list[Second], recovered: list[Second], folder: Path) -> int:
    """The rate followed the factor where the last seconds have no more than it lets pass, and a debt."""
    last = filling[-3:]
    let_pass = LIMIT_BYTES_PER_S * (max(second.factor for second in filling[-5:]) + 0.1)
    follows = max(second.bytes_per_s for second in last) <= let_pass and filling[-1].factor < 0.5
    never_full = min(second.available_bytes for second in filling) > 0
    recovers = bool(recovered) and recovered[-1].factor == 1.0 and _is_fast(recovered[-1])
    screen.show(
        "\n"
        f"{_mark(follows)} the produce rate followed the factor\n"
        f"{_mark(never_full)} the hard limit was not passed\n"
        f"{_mark(recovers)} after the deletion it is as fast as before\n\n"
        f"each look is recorded in {folder / 'gateway' / 'record' / '_volumes'}; docs/volumes.md"
    )
    return 0 if follows and never_full and recovers else 1


def _mark(held: bool) -> str:  # noqa: FBT001  (what it marks)
    return "✓ yes:" if held else "✗ NO: "


@contextmanager
def _producing(servers: str) -> "Iterator[_Delivered]":
    """Send all that is taken, on a thread that ends with the block."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": servers,
            "client.id": "filling",
            "enable.idempotence": True,
            "queue.buffering.max.kbytes": 4_096,
            "batch.size": 100_000,
            "linger.ms": 5,
            "log_level": 0,
        }
    )
    delivered, stopping = _Delivered(), threading.Event()
    thread = threading.Thread(target=_send, args=(producer, delivered, stopping), daemon=True)
    thread.start()
    try:
        yield delivered
    finally:
        stopping.set()
        thread.join(10)
        producer.purge()


class _Delivered:
    """Counts acknowledged records."""

    def __init__(self) -> None:
        self._records = 0

    def __call__(self) -> int:
        return self._records

    def ended(self, error: object, _message: object) -> None:
        self._records += error is None


def _send(producer: "Producer", delivered: _Delivered, stopping: threading.Event) -> None:
    while not stopping.is_set():
        try:
            producer.produce(TOPIC, _RECORD, on_delivery=delivered.ended)
            producer.poll(0)
        except BufferError:
            producer.poll(0.05)


def _available(kafka: LocalKafka) -> int:
    return observe_local([str(kafka.nodes[0].data_path)]).volumes[0].available_bytes


def _factor(gateway: GatewayProcess) -> float:
    """The factor in force, as the gateway tells it of the one counter that all producers share."""
    tenants = ask(gateway.http_url, "/v1/tenants")["tenants"]
    return min(
        (tenant["factor"] for tenant in tenants if tenant["quota_type"] == "PRODUCE"), default=1.0
    )


def _empty(kafka: LocalKafka) -> None:
    from confluent_kafka import OFFSET_END, TopicPartition
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for deleted in client.delete_records([TopicPartition(TOPIC, 0, OFFSET_END)]).values():
        deleted.result(20)
