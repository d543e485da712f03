"""Does a byte-rate quota hold, and as a broker's own does?

    ./run bench hold [--seconds 100] [--batch-bytes 1000000] [--large-fetches]
    ./run bench hold --table [options]    users with many connections: see hold_table.py
    ./run bench hold --latency [options]  a user below its limit beside one of them: see hold_latency.py

Clients at full speed under 1,000,000 bytes/s with Kafka's default window of 11 x 1 s: librdkafka (which
ignores throttling) and Java producing, librdkafka consuming; each once through the gateway and once
straight to the broker with the broker's own quota, all at the same time. A tap in front of the broker
sees both: what was answered, when. The figure: the mean of all sliding 11 s rates after the first 11 s,
as a share of the quota. ``--large-fetches``: fetches of up to 10 MB under 100,000 bytes/s for 5 minutes, of
what the others read (gated-large) and of batches of 10 MB (gated-huge), which a broker's quota would never let through.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Producer

import hold_latency
import hold_table
from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.localkafka.cluster.ports import free_ports
from verdict import judged

HERE = Path(__file__).parent
QUOTA = 1_000_000
LARGE_QUOTA = 100_000
LARGE_SECONDS = 300.0
HUGE_RECORD = bytes(10_000_000)
HUGE_BYTES_MAX = 10_500_000
# The bars: not above the quota by more, and as a plain broker's within.
X_QUOTA_MAX = 1.03
BROKER_TOLERANCE = 0.03
WINDOW_S = 11.0
STEP_S = 0.1

CONSUMER = """
import sys, time, json
from confluent_kafka import Consumer
settings, topic, seconds = json.loads(sys.argv[1]), sys.argv[2], float(sys.argv[3])
consumer = Consumer(settings)
from confluent_kafka import TopicPartition
consumer.assign([TopicPartition(topic, 0, 0)])
end = time.time() + seconds
while time.time() < end:
    consumer.consume(1000, 0.5)
consumer.close()
"""
PRODUCER = """
import sys, time, json
from confluent_kafka import Producer
settings, topic, seconds = json.loads(sys.argv[1]), sys.argv[2], float(sys.argv[3])
producer = Producer(settings)
payload = bytes(10_000)
end = time.time() + seconds
while time.time() < end:
    try:
        producer.produce(topic, payload)
        producer.poll(0)
    except BufferError:
        producer.poll(0.05)
producer.purge()
producer.flush(5)
"""


def sliding_mean(events: list[tuple[float, int]], start: float, end: float) -> float:
    """Mean over time of the rate in the last 11 s, from 11 s after the start to the end."""
    total, rates = 0.0, []
    entering = leaving = 0
    at = start + WINDOW_S
    while at <= end:
        while entering < len(events) and events[entering][0] <= at:
            total += events[entering][1]
            entering += 1
        while leaving < entering and events[leaving][0] <= at - WINDOW_S:
            total -= events[leaving][1]
            leaving += 1
        rates.append(total / WINDOW_S)
        at += STEP_S
    return sum(rates) / len(rates)


def read_events(path: Path) -> dict[tuple[str, str], list[tuple[float, int]]]:
    flows: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for line in path.read_text().splitlines():
        at, client, kind, amount = line.split(" ")
        flows.setdefault((client, kind), []).append((float(at), int(amount)))
    return flows


def clients(args: argparse.Namespace, kafka: LocalKafka, direct: str, gated: str) -> list:
    started = []
    for way, bootstrap in (("direct", direct), ("gated", gated)):
        base = {"bootstrap.servers": bootstrap}
        producer = base | {
            "client.id": f"{way}-librdkafka",
            "queue.buffering.max.kbytes": 8_192,
            "message.timeout.ms": 600_000,
        }
        consumer = base | {
            "client.id": f"{way}-librdkafka",
            "group.id": way,
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 4_096,
        }
        seconds = str(args.seconds)
        started.append([sys.executable, "-c", PRODUCER, json.dumps(producer), "produce", seconds])
        started.append([sys.executable, "-c", CONSUMER, json.dumps(consumer), "fetch", seconds])
        started.append(
            kafka.java_command_line(
                "org.apache.kafka.tools.ProducerPerformance",
                *("--topic", "produce", "--record-size", "10000", "--throughput", "-1"),
                *("--num-records", str(int(args.seconds * 1.5 * QUOTA / 10_000))),
                "--producer-props",
                f"bootstrap.servers={bootstrap}",
                f"client.id={way}-java",
                "delivery.timeout.ms=600000",
                "buffer.memory=8388608",
            )
        )
    if args.large_fetches:
        for client, topic in (("gated-large", "fetch"), ("gated-huge", "huge")):
            large = {
                "bootstrap.servers": gated,
                "client.id": client,
                "group.id": client,
                "enable.auto.commit": False,
                "fetch.max.bytes": HUGE_BYTES_MAX,
                "message.max.bytes": HUGE_BYTES_MAX,
                "max.partition.fetch.bytes": HUGE_BYTES_MAX,
            }
            started.append(
                [sys.executable, "-c", CONSUMER, json.dumps(large), topic, str(LARGE_SECONDS)]
            )
    return started


def broker_quotas(kafka: LocalKafka) -> None:
    for client in ("direct-librdkafka", "direct-java"):
        done = kafka.run_tool(
            "kafka.admin.ConfigCommand",
            *("--bootstrap-server", kafka.bootstrap_servers, "--alter", "--entity-type", "clients"),
            *("--entity-name", client),
            *("--add-config", f"producer_byte_rate={QUOTA},consumer_byte_rate={QUOTA}"),
        )
        assert done.returncode == 0, done.stderr


def gateway_quotas() -> str:
    entries = [
        ("gated-librdkafka", QUOTA),
        ("gated-java", QUOTA),
        ("gated-large", LARGE_QUOTA),
        ("gated-huge", LARGE_QUOTA),
    ]
    return "".join(
        f'[[quota]]\nclient_id = "{client}"\nproducer_byte_rate = {quota}\n'
        f"consumer_byte_rate = {quota}\n"
        for client, quota in entries
    )


def preload(bootstrap: str, batch_bytes: int) -> None:
    """Enough in topic ``fetch`` for both consumers to be held back by their quota all along."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "preload",
            "linger.ms": 50,
            "batch.size": batch_bytes,
        }
    )
    for _ in range(35_000):
        while True:
            try:
                producer.produce("fetch", bytes(10_000))
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(120)


def preload_huge(kafka: LocalKafka, bootstrap: str) -> None:
    """One batch for each fetch, and some to spare."""
    kafka.create_topic("huge", configs={"max.message.bytes": str(HUGE_BYTES_MAX)})
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": HUGE_BYTES_MAX})
    for _ in range(8):
        producer.produce("huge", HUGE_RECORD)
        assert producer.flush(60) == 0


def main() -> int:
    if "--table" in sys.argv[1:]:
        return hold_table.main([argument for argument in sys.argv[1:] if argument != "--table"])
    if "--latency" in sys.argv[1:]:
        return hold_latency.main([argument for argument in sys.argv[1:] if argument != "--latency"])
    options = argparse.ArgumentParser(description="does a quota hold")
    options.add_argument("--seconds", type=float, default=100.0)
    options.add_argument(
        "--batch-bytes",
        type=int,
        default=1_000_000,
        help="of what is consumed; librdkafka makes batches of up to 1,000,000, Java of 16,384",
    )
    options.add_argument("--large-fetches", action="store_true")
    args = options.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvota-hold-")))
        (tap_port,) = free_ports("127.0.0.1", 1)
        kafka = stack.enter_context(
            LocalKafka(
                nodes=1,
                host="127.0.0.2",
                properties={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{tap_port}"},
            )
        )
        flows = run(args, stack, folder, kafka, tap_port)
    return report(flows, args)


def run(args, stack, folder, kafka, tap_port):
    host, port = kafka.bootstrap_servers.split(":")
    events = folder / "events.txt"
    tap = subprocess.Popen(
        [sys.executable, HERE / "tap.py", "127.0.0.1", str(tap_port), host, port, str(events)],
        stdout=subprocess.PIPE,
    )
    stack.callback(tap.wait)
    stack.callback(tap.kill)
    tap.stdout.readline()
    direct = f"127.0.0.1:{tap_port}"
    for topic in ("produce", "fetch"):
        kafka.create_topic(topic)
    preload(direct, args.batch_bytes)
    if args.large_fetches:
        preload_huge(kafka, direct)
    broker_quotas(kafka)
    first = free_port_range(3)
    gateway = GatewayProcess(
        folder / "gateway",
        config=gateway_toml(
            upstream=direct,
            first_port=first,
            node_ids="0-1",
            enforce={"PRODUCE": True, "FETCH": True},
            record="record",
        ),
        quotas=gateway_quotas(),
    )
    stack.enter_context(gateway)
    processes = [
        subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in clients(args, kafka, direct, gateway.bootstrap_servers)
    ]
    longest = max(LARGE_SECONDS, args.seconds) if args.large_fetches else args.seconds
    time.sleep(longest + 2)
    for process in processes:
        process.kill()
        process.wait()
    return read_events(events)


def measured(flows, args: argparse.Namespace) -> dict[str, dict[str, float | None]]:
    """Of each flow: its mean as a share of the quota, and of the broker's own flow of the same kind."""
    found: dict[str, dict[str, float | None]] = {}
    for client, kind in sorted(flows):
        way, _, library = client.partition("-")
        if way not in {"direct", "gated"}:
            continue
        large = library in {"large", "huge"}
        seconds = LARGE_SECONDS if large else args.seconds
        mean = mean_of(flows[client, kind], seconds)
        other = flows.get((f"direct-{library}", kind)) if way == "gated" else None
        found[f"{client} {kind}"] = {
            "mean_bytes_per_s": mean,
            "x_quota": mean / (LARGE_QUOTA if large else QUOTA),
            "x_broker": mean / mean_of(other, seconds) if other else None,
        }
    return found


def mean_of(events: list[tuple[float, int]], seconds: float) -> float:
    begin = events[0][0]
    return sliding_mean(events, begin, min(begin + seconds, events[-1][0]))


def report(flows, args: argparse.Namespace) -> int:
    """Prints and keeps the figures; 1 if a bar is missed."""
    found = measured(flows, args)
    missed = []
    print(f"{'flow':<28}{'mean of sliding 11 s':>22}{'x quota':>9}{'x broker':>10}")
    for flow, figures in found.items():
        x_broker = figures["x_broker"]
        against = f"{x_broker:>10.3f}" if x_broker is not None else f"{'-':>10}"
        mean = figures["mean_bytes_per_s"] / 1e6
        print(f"{flow:<28}{mean:>17.3f} MB/s{figures['x_quota']:>9.3f}{against}")
        if flow.startswith("gated") and figures["x_quota"] > X_QUOTA_MAX:
            missed.append(f"{flow}: {figures['x_quota']:.3f} x quota is above {X_QUOTA_MAX}")
        if x_broker is not None and abs(x_broker - 1) > BROKER_TOLERANCE:
            missed.append(f"{flow}: {x_broker:.3f} x the broker's is not within {BROKER_TOLERANCE}")
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    command = f"./run bench hold {' '.join(sys.argv[1:])}".rstrip()
    kept = {"command": command, "seconds": args.seconds, "flows": found, "missed": missed}
    name = "hold_large.json" if args.large_fetches else "hold.json"
    return judged(folder / name, kept, missed)


if __name__ == "__main__":
    sys.exit(main())
