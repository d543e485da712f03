"""Does a quota hold for a user with many connections? Kafka's own, sampled_rate and token_bucket.

    ./run bench hold --table [--seconds 100] [--settle 22] [--only 50x900000] [--honour]

The table of docs/quotas-that-hold.md. For each number of connections and size of requests the same
clients run at the same time against a plain broker with its own quota, and against that broker behind
one gateway for each algorithm: connections of one client id that send one Produce after the other,
ignoring what they are told (``--honour``: they wait as told). Judged is what was answered
behind the first seconds (``--settle``), as a multiple of the quota. Beside them on the same way: another
client id that always has more to send, under the same quota, and one far below its quota, whose
latency is compared with that of the time before the others began.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from kafka import KafkaAdminClient
from kio.schema.alter_client_quotas.v1 import AlterClientQuotasRequest, AlterClientQuotasResponse
from kio.schema.alter_client_quotas.v1.request import EntityData, EntryData, OpData
from kio.static.primitive import f64

from hold_plot import draw
from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.localkafka.cluster.ask import ask

HERE = Path(__file__).parent
RESULT = HERE / "results" / "hold_table.json"
QUOTA = 2_000_000
BROKER, SAMPLED, BUCKET = "broker", "sampled_rate", "token_bucket"
WAYS = (BROKER, SAMPLED, BUCKET)
# What token_bucket must keep to.
X_QUOTA_MIN, X_QUOTA_MAX = 0.97, 1.01
# One that always has more to send, and one far below its quota: 50 KB/s of 2 MB/s.
BESIDE = {"connections": 1, "value_bytes": 100_000}
PROBE = {"connections": 1, "value_bytes": 1_000, "pace_s": 0.02}
ALONE_S = 20.0


@dataclass(frozen=True)
class Case:
    connections: int
    value_bytes: int

    @property
    def name(self) -> str:
        return f"{self.connections}x{self.value_bytes}"


CASES = (
    Case(1, 900_000),
    Case(10, 900_000),
    Case(50, 900_000),
    Case(50, 200_000),
    Case(200, 100_000),
)


@dataclass(frozen=True)
class Figures:
    """Of one case and one way.

    Attributes:
        x_quota: what the crowd had, per second, as a multiple of its quota.
        least_served: of its connections, against their mean; 0: one was never served.
        closed: how often one of its connections was closed.
        x_quota_beside: what the other client id had, as a multiple of its own quota.
        p99_alone_ms: latency of the client below its quota, before the crowd came.
        p99_ms: the same beside the crowd.
    """

    x_quota: float
    least_served: float
    closed: int
    x_quota_beside: float
    p99_alone_ms: float
    p99_ms: float


# ------------------------------------------------------------------ what is measured against


def start_gateway(stack: ExitStack, folder: Path, upstream: str, algorithm: str) -> int:
    """The bootstrap port of a gateway that counts by this algorithm."""
    first = free_port_range(3)
    config = gateway_toml(
        upstream=upstream,
        first_port=first,
        node_ids="0-1",
        enforce={"PRODUCE": True},
        record="record",
    ).replace("[quotas.PRODUCE]\n", f'[quotas.PRODUCE]\nalgorithm = "{algorithm}"\n')
    gateway = GatewayProcess(
        folder / algorithm,
        config=config,
        quotas=f"[[quota]]\nclient_id_default = true\nproducer_byte_rate = {QUOTA}\n",
    )
    stack.enter_context(gateway)
    return first


def start_all(stack: ExitStack) -> tuple[LocalKafka, dict[str, int]]:
    """A broker with its own quota, and the port of each way to it.

    The gateways' clients are not under the broker's quota: it is per client id, and theirs differ.
    """
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvota-hold-")))
    kafka = stack.enter_context(LocalKafka(nodes=1, host="127.0.0.1"))
    ports = {BROKER: int(kafka.bootstrap_servers.split(":")[1])}
    for algorithm in (SAMPLED, BUCKET):
        ports[algorithm] = start_gateway(stack, folder, kafka.bootstrap_servers, algorithm)
    return kafka, ports


def set_broker_quotas(port: int, client_ids: list[str]) -> None:
    """The broker's own; only direct clients have these client ids."""
    entries = tuple(
        EntryData(
            entity=(EntityData(entity_type="client-id", entity_name=client_id),),
            ops=(OpData(key="producer_byte_rate", value=f64(float(QUOTA)), remove=False),),
        )
        for client_id in client_ids
    )
    request = AlterClientQuotasRequest(entries=entries, validate_only=False)
    answer = ask(("127.0.0.1", port), request, AlterClientQuotasResponse)
    assert all(entry.error_code == 0 for entry in answer.entries), answer


def client_id_of(way: str, case: Case, role: str) -> str:
    return f"{way}-{case.name}-{role}"


# ------------------------------------------------------------------ one case


def start_clients(port: int, seconds: float, crowds: list[dict[str, object]]) -> subprocess.Popen:
    specification = {"seconds": seconds, "crowds": [crowd | {"port": port} for crowd in crowds]}
    return subprocess.Popen(
        [sys.executable, HERE / "hold_clients.py", json.dumps(specification)],
        stdout=subprocess.PIPE,
    )


def run_case(
    case: Case, ports: dict[str, int], topic: str, args: argparse.Namespace
) -> dict[str, Figures]:
    loaded_s = args.settle + args.seconds
    probes, crowds = {}, {}
    for way, port in ports.items():
        probe = PROBE | {"client_id": client_id_of(way, case, "probe"), "topic": topic}
        probes[way] = start_clients(port, ALONE_S + loaded_s, [probe])
    time.sleep(ALONE_S)
    begin = time.time()
    for way, port in ports.items():
        crowd = {
            "client_id": client_id_of(way, case, "crowd"),
            "topic": topic,
            "connections": case.connections,
            "value_bytes": case.value_bytes,
            "honours": args.honour,
        }
        beside = BESIDE | {"client_id": client_id_of(way, case, "beside"), "topic": topic}
        crowds[way] = start_clients(port, loaded_s + 1.0, [crowd, beside])
    seen = {
        way: json.loads(crowds[way].communicate()[0]) | json.loads(probes[way].communicate()[0])
        for way in ports
    }
    return {way: figures(case, way, seen[way], begin, args) for way in ports}


def figures(case: Case, way: str, seen: dict, begin: float, args: argparse.Namespace) -> Figures:
    first, last = begin + args.settle, begin + args.settle + args.seconds

    def of(role: str) -> dict:
        return seen[client_id_of(way, case, role)]

    def judged(role: str) -> list:
        return [answer for answer in of(role)["answers"] if first < answer[0] <= last]

    def x_quota(role: str) -> float:
        return sum(answer[2] for answer in judged(role)) / args.seconds / QUOTA

    served = dict.fromkeys(range(case.connections), 0)
    for _, connection, size, *_ in judged("crowd"):
        served[connection] += size
    mean = sum(served.values()) / case.connections
    alone = [answer for answer in of("probe")["answers"] if answer[0] <= begin]
    return Figures(
        x_quota=x_quota("crowd"),
        least_served=min(served.values()) / mean if mean else 0.0,
        closed=of("crowd")["closed"],
        x_quota_beside=x_quota("beside"),
        p99_alone_ms=p99_ms(alone),
        p99_ms=p99_ms(judged("probe")),
    )


def p99_ms(answers: list) -> float:
    latencies = sorted(answer[3] for answer in answers)
    return latencies[int(len(latencies) * 0.99)] if latencies else float("nan")


# ------------------------------------------------------------------ the table


def missed_bars(case: Case, found: Figures) -> list[str]:
    """Where token_bucket does not keep what docs/quotas-that-hold.md says of it."""
    missed = []
    for who, x_quota in (("crowd", found.x_quota), ("user beside it", found.x_quota_beside)):
        if not X_QUOTA_MIN <= x_quota <= X_QUOTA_MAX:
            missed.append(
                f"{case.name}, {who}: {x_quota:.3f} x the quota is not within "
                f"{X_QUOTA_MIN}..{X_QUOTA_MAX}"
            )
    return missed


def print_head() -> None:
    print(
        f"{'connections x bytes':<20}{'':<14}{'x quota':>8}{'least':>7}{'closed':>7}{'beside':>8}"
        f"{'p99 alone':>11}{'p99 then':>10}"
    )


def print_case(case: Case, found: dict[str, Figures]) -> None:
    for way, seen in found.items():
        name = f"{case.connections} x {case.value_bytes:,}" if way == BROKER else ""
        print(
            f"{name:<20}{way:<14}{seen.x_quota:>8.3f}{seen.least_served:>7.2f}{seen.closed:>7}"
            f"{seen.x_quota_beside:>8.3f}{seen.p99_alone_ms:>8.1f} ms{seen.p99_ms:>7.1f} ms",
            flush=True,
        )


def main(arguments: list[str]) -> int:
    options = argparse.ArgumentParser(description="does a quota hold for many connections")
    options.add_argument("--seconds", type=float, default=100.0, help="judged, of each case")
    options.add_argument("--settle", type=float, default=22.0, help="before them, not judged")
    options.add_argument("--only", help="a case by its name, e.g. 50x900000; several with commas")
    options.add_argument("--honour", action="store_true", help="clients wait as they are told")
    args = options.parse_args(arguments)
    names = args.only.split(",") if args.only else [case.name for case in CASES]
    cases = [case for case in CASES if case.name in names]
    if len(cases) != len(names):
        options.error(f"--only: known are {', '.join(case.name for case in CASES)}")
    found: dict[str, dict[str, Figures]] = {}
    with ExitStack() as stack:
        kafka, ports = start_all(stack)
        for port in ports.values():  # so that the gateways know whose port it is
            with_admin(port)
        roles = ("crowd", "beside", "probe")
        set_broker_quotas(
            ports[BROKER], [client_id_of(BROKER, case, role) for case in cases for role in roles]
        )
        print_head()
        for case in cases:
            kafka.create_topic(case.name)
            found[case.name] = run_case(case, ports, case.name, args)
            print_case(case, found[case.name])
            delete_topic(ports[BROKER], case.name)
    missed = [text for case in cases for text in missed_bars(case, found[case.name][BUCKET])]
    if not args.only:
        keep(found, missed, args)
    print("\n".join(missed) or "all bars hold")
    return 1 if missed else 0


def with_admin(port: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}")
    admin.list_topics()
    admin.close()


def delete_topic(port: int, name: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{port}")
    admin.delete_topics([name])
    admin.close()


def keep(found: dict[str, dict[str, Figures]], missed: list[str], args: argparse.Namespace) -> None:
    """The figures as JSON, and drawn for the page."""
    kept = {
        "command": f"./run bench hold --table{' --honour' if args.honour else ''}",
        "seconds": args.seconds,
        "settle": args.settle,
        "quota_bytes_per_s": QUOTA,
        "cases": {
            name: {way: asdict(figures) for way, figures in ways.items()}
            for name, ways in found.items()
        },
        "missed": missed,
    }
    RESULT.write_text(json.dumps(kept, indent=1) + "\n")
    draw(RESULT)
