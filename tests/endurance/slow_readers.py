"""Consumers that read large answers slowly: what they cost in memory, and what others notice of them."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from tests.adversary.good_client import GoodClient, GoodLoad, Waits
from tests.endurance.client_process import ClientProcess, python_client
from tests.endurance.findings import Findings
from tests.endurance.gated_kafka import gateway_before
from tests.endurance.memory import PeakMemory

from kvota.localkafka import LocalKafka
from kvota.model.quota_type import Algorithm

BATCH_BYTES = 900_000
BESIDE_ANSWERS = 51  # on a busy machine these need longer than the plan says
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class SlowReaders:
    """How many, of what, how slowly, and what may come of it.

    Attributes:
        answer_bytes: of each answer, about.
        bytes_per_s: of each reader.
        seconds: for which they read so.
        memory_mib_max: of the gateway at its peak.
    """

    readers: int
    answer_bytes: int
    bytes_per_s: int
    seconds: float
    memory_mib_max: float


def run_slow_readers(
    kafka: LocalKafka, folder: Path, algorithm: Algorithm, plan: SlowReaders
) -> Findings:
    """A client that is none of them produces before they come and beside them."""
    topic, beside = (f"slow-{name}-{algorithm}".replace("_", "-") for name in ("read", "beside"))
    kafka.create_topic(topic)
    kafka.create_topic(beside)
    _fill(kafka.bootstrap_servers, topic, plan.answer_bytes)
    broker = kafka.nodes[0]
    with ExitStack() as stack:
        gateway = stack.enter_context(gateway_before(kafka, folder / "gateway", algorithm))
        host, port = gateway.bootstrap_servers.split(":")
        at = (host, int(port) + 1 + broker.node_id)
        memory = stack.enter_context(PeakMemory(gateway.pid))
        before_mib = memory.rss_mib
        with GoodClient(at, beside, GoodLoad(), None) as good:
            time.sleep(plan.seconds)
            alone = good.waits()
        readers = ClientProcess(
            folder,
            "slow-readers",
            python_client(
                "slow_readers",
                *(*at, *broker.address, topic, "slow-readers", plan.readers),
                *(plan.answer_bytes, plan.bytes_per_s),
            ),
            end_s=400.0,
        )
        stack.enter_context(readers)
        with GoodClient(at, beside, GoodLoad(), None) as good:
            readers.wait_until_it_began()
            time.sleep(plan.seconds)
            waits = good.waits(answers_min=BESIDE_ANSWERS)
        readers.ask_to_end()
        said = {name: int(count) for name, count in map(str.split, readers.result()[1:])}
    found = Findings(
        {
            "readers": plan.readers,
            "bytes of an answer": said["bytes"],
            "whole": said["whole"],
            "differing": said["differing"],
            "cut": said["cut"],
            "MiB before": round(before_mib, 1),
            "MiB at the peak, RSS": round(memory.peak_rss_mib, 1),
            "MiB at the peak, PSS": round(memory.peak_pss_mib, 1),
            "others, before": _shown(alone),
            "others, beside them": _shown(waits),
        }
    )
    whole = said["whole"]
    found.expect(whole == plan.readers, f"{whole} of {plan.readers} answers are the broker's")
    peak_mib = memory.peak_rss_mib
    limit_mib = plan.memory_mib_max
    found.expect(peak_mib <= limit_mib, f"{peak_mib:.0f} MiB at the peak, not {limit_mib:.0f}")
    return found


def _shown(waits: Waits) -> dict[str, float]:
    return {
        "answers": waits.answers,
        "p50_ms": round(waits.p50_ms, 2),
        "p99_ms": round(waits.p99_ms, 1),
        "worst_ms": round(waits.worst_ms, 1),
    }


def _fill(bootstrap_servers: str, topic: str, size_bytes: int) -> None:
    """More than an answer takes."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(size_bytes // BATCH_BYTES + 2):
        producer.produce(topic, number.to_bytes(4, "big") * (BATCH_BYTES // 4))
        assert producer.flush(60) == 0
