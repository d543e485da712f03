"""Does a user below its limit notice how an overloaded one beside it is held back?

    ./run bench hold --latency [--rounds 6] [--seconds 12] [--settle 4] [--only 50x900000]

One client id far below its quota sends a small Produce 100 times a second and notes how long each answer
takes: first alone (``--settle`` seconds), then beside a crowd that always has more to send. The ways take turns, one
at a time, so that each has the machine to itself: a plain broker with its own quota, and that
broker behind a gateway for each algorithm. Judged are pairs: ``token_bucket`` against each other way of
the same round. The first seconds of a crowd (``--settle``) are not judged.
"""

import argparse
import json
import statistics
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from hold_table import (
    BROKER,
    BUCKET,
    CASES,
    PROBE,
    SAMPLED,
    WAYS,
    Case,
    client_id_of,
    set_broker_quotas,
    start_all,
    start_clients,
    with_admin,
)

RESULT = Path(__file__).parent / "results" / "hold_latency.json"
PACE_S = 0.01
# Against sampled_rate, the median of the pairs.
X_SAMPLED_MAX = 1.10


@dataclass(frozen=True)
class Latency:
    """Of one way in one round, in ms."""

    p50_alone: float
    p99_alone: float
    p50: float
    p99: float


def measure(port: int, way: str, case: Case, topic: str, args: argparse.Namespace) -> Latency:
    """One way's turn: the probe alone, then the crowd comes."""
    beside_s = args.settle + args.seconds
    probe = PROBE | {
        "client_id": client_id_of(way, case, "probe"),
        "topic": topic,
        "pace_s": PACE_S,
    }
    crowd = {
        "client_id": client_id_of(way, case, "crowd"),
        "topic": topic,
        "connections": case.connections,
        "value_bytes": case.value_bytes,
    }
    probing = start_clients(port, 1.0 + args.settle + beside_s, [probe])
    time.sleep(1.0 + args.settle)
    begin = time.time()
    crowding = start_clients(port, beside_s, [crowd])
    answers = json.loads(probing.communicate()[0])[probe["client_id"]]["answers"]
    crowding.communicate()
    alone = sorted(ms for at, _, _, ms, _ in answers if at <= begin)
    beside = sorted(ms for at, _, _, ms, _ in answers if at > begin + args.settle)
    return Latency(*quantiles(alone), *quantiles(beside))


def quantiles(latencies: list[float]) -> tuple[float, float]:
    return latencies[len(latencies) // 2], latencies[int(len(latencies) * 0.99)]


def ratios(rounds: list[dict[str, Latency]], against: str, name: str) -> list[float]:
    """Of each round: token_bucket's figure against that of another way."""
    return [getattr(found[BUCKET], name) / getattr(found[against], name) for found in rounds]


def report(case: Case, rounds: list[dict[str, Latency]]) -> list[str]:
    """Print medians and pairs; return the bars that are missed."""
    print(f"\n{case.name}, medians of {len(rounds)} rounds")
    print(f"{'':<14}{'p50 alone':>11}{'p50':>9}{'p99 alone':>11}{'p99':>9}   ms")
    for way in WAYS:
        columns = [
            statistics.median(getattr(found[way], name) for found in rounds)
            for name in ("p50_alone", "p50", "p99_alone", "p99")
        ]
        print(
            f"{way:<14}{columns[0]:>11.1f}{columns[1]:>9.1f}{columns[2]:>11.1f}{columns[3]:>9.1f}"
        )
    missed = []
    for against in (SAMPLED, BROKER):
        for name in ("p50", "p99"):
            pairs = ratios(rounds, against, name)
            middle = statistics.median(pairs)
            print(
                f"{BUCKET} / {against}, {name}: {middle:.2f} x, median of {len(pairs)} pairs "
                f"({min(pairs):.2f} to {max(pairs):.2f})"
            )
            if against == SAMPLED and middle > X_SAMPLED_MAX:
                missed.append(f"{case.name}, {name}: {middle:.2f} x is above {X_SAMPLED_MAX}")
    return missed


def main(arguments: list[str]) -> int:
    options = argparse.ArgumentParser(description="latency of a user below its limit")
    options.add_argument("--rounds", type=int, default=6)
    options.add_argument("--seconds", type=float, default=12.0, help="judged, of each turn")
    options.add_argument("--settle", type=float, default=4.0, help="before them, not judged")
    options.add_argument("--only", default="10x900000", help="a case of the table by its name")
    args = options.parse_args(arguments)
    case = next((case for case in CASES if case.name == args.only), None)
    if case is None:
        options.error(f"--only: known are {', '.join(case.name for case in CASES)}")
    rounds: list[dict[str, Latency]] = []
    with ExitStack() as stack:
        kafka, ports = start_all(stack)
        for port in ports.values():  # so that the gateways know whose port it is
            with_admin(port)
        client_ids = [client_id_of(BROKER, case, role) for role in ("crowd", "probe")]
        set_broker_quotas(ports[BROKER], client_ids)
        kafka.create_topic(case.name)
        for number in range(args.rounds):
            found = {}
            for way in WAYS[number % 3 :] + WAYS[: number % 3]:
                found[way] = measure(ports[way], way, case, case.name, args)
                print(f"round {number + 1} {way:<14}{found[way]}", flush=True)
            rounds.append(found)
    missed = report(case, rounds)
    kept = {
        "command": f"./run bench hold --latency {' '.join(arguments)}".rstrip(),
        "case": case.name,
        "rounds": [{way: asdict(latency) for way, latency in found.items()} for found in rounds],
        "missed": missed,
    }
    RESULT.write_text(json.dumps(kept, indent=1) + "\n")
    print("\n".join(missed) or "all bars hold")
    return 1 if missed else 0
