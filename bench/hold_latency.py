"""Does a user below its limit notice how an overloaded one beside it is held back?

    ./run bench hold --latency [--seconds 72] [--settle 10] [--alone 24] [--only 10x900000]

On each way (a plain broker with its own quota, and that broker behind a gateway for each algorithm) a crowd
of one client id always has more to send. Another client id, far below its quota, sends one small Produce after the
other: to each way once, in an order drawn anew, then again. So what else the machine does meets all ways alike,
and neighbours are pairs. ``token_bucket`` is compared with each other way in parts of 12 s; the same is done
before the crowds have come (``--alone``). The first seconds of the crowds (``--settle``) are not judged.
"""

import argparse
import asyncio
import os
import random
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

from frames import produce_frame
from hold_clients import Crowd
from hold_table import (
    BROKER,
    BUCKET,
    CASES,
    SAMPLED,
    WAYS,
    Case,
    client_id_of,
    set_broker_quotas,
    start_all,
    start_clients,
    with_admin,
)
from verdict import judged

RESULT = Path(__file__).parent / "results" / "hold_latency.json"
PACE_S = 0.01
PART_S = 12.0
VALUE_BYTES = 1_000
# Against sampled_rate, the median of the parts.
X_SAMPLED_MAX = 1.10

# By way, the latencies in ms of one part.
Part = dict[str, list[float]]


async def probe(ports: dict[str, int], case: Case, seconds: float) -> list[Part]:
    """One small Produce to each way after the other, for so long; in parts."""
    ids = {way: client_id_of(way, case, "probe") for way in WAYS}
    frames = {way: produce_frame(case.name, VALUE_BYTES, client_id=ids[way]) for way in WAYS}
    crowds = {way: Crowd(ports[way], ids[way], case.name, 1, VALUE_BYTES) for way in WAYS}
    streams = {way: await asyncio.open_connection("127.0.0.1", ports[way]) for way in WAYS}
    begin = time.time()
    while time.time() < begin + seconds:
        for way in random.sample(WAYS, len(WAYS)):
            await crowds[way].request(0, frames[way], *streams[way])
        await asyncio.sleep(PACE_S)
    for _, writer in streams.values():
        writer.close()
    parts: list[Part] = [{way: [] for way in WAYS} for _ in range(int(seconds / PART_S))]
    for way, crowd in crowds.items():
        for at, _, _, ms, _ in crowd.answers:
            number = int((at - begin) / PART_S)
            if number < len(parts):
                parts[number][way].append(ms)
    return parts


def quantile(latencies: list[float], share: float) -> float:
    return sorted(latencies)[int(len(latencies) * share)]


def all_of(parts: list[Part], way: str) -> list[float]:
    return [ms for part in parts for ms in part[way]]


def compared(parts: list[Part], against: str, share: float) -> dict[str, float]:
    """token_bucket against another way: of each part, and of all of them."""
    pairs = [quantile(part[BUCKET], share) / quantile(part[against], share) for part in parts]
    whole = quantile(all_of(parts, BUCKET), share) / quantile(all_of(parts, against), share)
    return {
        "median": statistics.median(pairs),
        "least": min(pairs),
        "most": max(pairs),
        "of all": whole,
    }


def report(parts: list[Part]) -> dict[str, object]:
    """Print and return what was found in one phase."""
    found: dict[str, object] = {"parts": len(parts), "requests": len(all_of(parts, BUCKET))}
    for way in WAYS:
        p50, p99 = (quantile(all_of(parts, way), share) for share in (0.5, 0.99))
        found[way] = {"p50_ms": p50, "p99_ms": p99}
        print(f"  {way:<14}p50 {p50:>6.2f} ms  p99 {p99:>6.1f} ms")
    for against in (SAMPLED, BROKER):
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            ratio = found[f"{name} x {against}"] = compared(parts, against, share)
            print(
                f"  {name} x {against:<13} {ratio['median']:.2f} ({ratio['least']:.2f} to "
                f"{ratio['most']:.2f} in parts of {PART_S:.0f} s), {ratio['of all']:.2f} of all"
            )
    return found


def main(arguments: list[str]) -> int:
    options = argparse.ArgumentParser(description="latency of a user below its limit")
    options.add_argument("--seconds", type=float, default=6 * PART_S, help="beside the crowds")
    options.add_argument("--settle", type=float, default=10.0, help="before them, not judged")
    options.add_argument("--alone", type=float, default=2 * PART_S, help="before the crowds")
    options.add_argument("--only", default="10x900000", help="a case of the table by its name")
    args = options.parse_args(arguments)
    case = next((case for case in CASES if case.name == args.only), None)
    if case is None:
        options.error(f"--only: known are {', '.join(case.name for case in CASES)}")
    if min(args.seconds, args.alone) < PART_S:
        options.error(f"--seconds and --alone: a part has {PART_S:.0f} s")
    with ExitStack() as stack:
        kafka, ports = start_all(stack)
        for port in ports.values():  # so that the gateways know whose port it is
            with_admin(port)
        client_ids = [client_id_of(BROKER, case, role) for role in ("crowd", "probe")]
        set_broker_quotas(ports[BROKER], client_ids)
        kafka.create_topic(case.name)
        alone = asyncio.run(probe(ports, case, args.alone))
        crowd = {"topic": case.name, "connections": case.connections}
        crowds = [
            start_clients(
                port,
                args.settle + args.seconds + 2.0,
                [
                    crowd
                    | {
                        "client_id": client_id_of(way, case, "crowd"),
                        "value_bytes": case.value_bytes,
                    }
                ],
            )
            for way, port in ports.items()
        ]
        time.sleep(args.settle)
        beside = asyncio.run(probe(ports, case, args.seconds))
        for process in crowds:
            process.communicate()
    load = os.getloadavg()[0]
    print(f"{case.name}, load of the machine {load:.1f}\nbefore the crowds")
    found = {"alone": report(alone)}
    print("beside them")
    found["beside"] = report(beside)
    missed = []
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        middle = compared(beside, SAMPLED, share)["median"]
        if middle > X_SAMPLED_MAX:
            missed.append(f"{name}: {middle:.2f} x sampled_rate is above {X_SAMPLED_MAX}")
    kept = {
        "command": f"./run bench hold --latency {' '.join(arguments)}".rstrip(),
        "case": case.name,
        "load": load,
        **found,
        "missed": missed,
    }
    return judged(RESULT, kept, missed)
