"""How long it takes until a hundred pods that are rolled at once have written, under a quota on new producer ids.

    ./run bench pods [--pods 100] [--rate 60] [--window 60]

Each pod is a producer (librdkafka, idempotent, all settings as they are by default) that has ten records to deliver; all begin
in the same moment, as one user whose quota is ``--rate`` new ids in ``--window`` seconds: fewer than there are pods. Beside
it the same without a quota. It exits 1 where a record was not delivered, is not in the log, or is there twice.
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from confluent_kafka import Producer  # noqa: E402
from tests.endurance.topic_log import all_of, read_log  # noqa: E402

from kvota.app.gateway_process import GatewayProcess, gateway_toml  # noqa: E402
from kvota.localkafka import LocalKafka  # noqa: E402
from relay import commit  # noqa: E402
from verdict import judged  # noqa: E402

RESULT = HERE / "results" / "pods.json"
RECORDS, PARTITIONS = 10, 3


class Pod:
    """One producer, from its start until all is delivered."""

    def __init__(self, number: int, servers: str, topic: str, begin_s: float) -> None:
        self.values = [f"{number}-{record}" for record in range(RECORDS)]
        self.delivered: set[str] = set()
        self.failed: list[str] = []
        self.took_s = 0.0
        self._servers, self._topic, self._begin_s = servers, topic, begin_s
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._servers, "enable.idempotence": True, "log_level": 0}
        )
        for number, value in enumerate(self.values):
            producer.produce(
                self._topic, value, partition=number % PARTITIONS, on_delivery=self._told
            )
        producer.flush()
        self.took_s = time.monotonic() - self._begin_s

    def _told(self, error: object, message: object) -> None:
        if error is None:
            self.delivered.add(message.value().decode())  # type: ignore[attr-defined]
        else:
            self.failed.append(str(error))


def roll(kafka: LocalKafka, folder: Path, pods: int, quotas: str, window_s: int) -> dict:
    """All at once; what became of them."""
    topic = folder.name
    kafka.create_topic(topic, partitions=PARTITIONS)
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        node_ids="0-1",
        enforce={"PRODUCER_ID": True},
        record="record",
        kafka={"producer.id.quota.window.size.seconds": window_s},
    )
    with GatewayProcess(folder, config=config, quotas=quotas) as gateway:
        begin_s = time.monotonic()
        started = [Pod(n, gateway.bootstrap_servers, topic, begin_s) for n in range(pods)]
        for pod in started:
            pod.thread.start()
        for pod in started:
            pod.thread.join()
    times = Counter(all_of(read_log(kafka.bootstrap_servers, topic, PARTITIONS)))
    delivered = {value for pod in started for value in pod.delivered}
    took = sorted(pod.took_s for pod in started)
    return {
        "delivered": len(delivered),
        "failed": sum(len(pod.failed) for pod in started),
        "missing": len(delivered - times.keys()),
        "twice": sum(number > 1 for number in times.values()),
        "half of the pods have written, s": round(statistics.median(took), 1),
        "all have, s": round(took[-1], 1),
    }


def main() -> int:
    options = argparse.ArgumentParser(description="pods that are rolled at once")
    options.add_argument("--pods", type=int, default=100)
    options.add_argument("--rate", type=int, default=60)
    options.add_argument("--window", type=int, default=60)
    args = options.parse_args()
    quota = f"[[quota]]\nuser_default = true\nproducer_ids_rate = {args.rate}\n"
    with tempfile.TemporaryDirectory(prefix="kvota-bench-") as folder, LocalKafka() as kafka:
        found = {
            name: roll(kafka, Path(folder) / name, args.pods, quotas, args.window)
            for name, quotas in (("without", ""), ("with", quota))
        }
    missed = []
    for name, of_run in found.items():
        print(f"{name:<10}" + ", ".join(f"{what} {number}" for what, number in of_run.items()))
        if of_run["delivered"] != args.pods * RECORDS or of_run["missing"] or of_run["twice"]:
            missed.append(f"{name}: not every record was delivered and is there once")
    kept = {
        "command": f"./run bench pods --pods {args.pods} --rate {args.rate} --window {args.window}",
        "commit": commit(),
        **found,
    }
    return judged(RESULT, kept, missed)


if __name__ == "__main__":
    sys.exit(main())
