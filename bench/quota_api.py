"""Quotas by Kafka's own API: how fast 10,000 entities are described and altered, beside a broker in the same run.

    ./run bench quota_api [--rounds 7]

Each request is sent to the broker itself, to a gateway that keeps its quotas in a file, and to one that keeps them in a
topic, one after the other in each round; times are from the last byte sent to the last byte received, medians over rounds.
Another client asks for metadata all the while: its longest wait is what an alteration costs others; then the same beside
somebody who has all quotas described without a pause. Then nobody else is
there, and the CPU time of the gateway's event loop is taken. Then two gateways follow one topic: how long until the other
one describes what one has acknowledged.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # what it sends is the tests'

from tests.adversary.good_client import GoodClient, GoodLoad  # noqa: E402
from tests.endurance.alterations import wait_until_it_takes_them  # noqa: E402
from tests.endurance.gated_kafka import HOST  # noqa: E402
from tests.integration.raw_client import RawClient  # noqa: E402
from tests.integration.test_client_quotas import address, asked  # noqa: E402
from tests.unit.quota_api.written import (  # noqa: E402
    alteration,
    altered,
    described,
    description,
)

from kvota.app.gateway_process import (  # noqa: E402
    GatewayProcess,
    gateway_toml,
)
from kvota.localkafka import LocalKafka  # noqa: E402
from relay import commit  # noqa: E402

RESULT = HERE / "results" / "quota_api.json"
ENTITIES, IN_ONE_REQUEST = 10_000, 500
KEY = "producer_byte_rate"
FOLLOWED = 50
ALONE = 50  # of 500 each, so that ticks of 10 ms are fine enough
# So long somebody asks for all quotas, again and again.
BUSY_S = 3.0
LOAD = GoodLoad(value_bytes=0, pace_s=0.001)


def users(begin: int, count: int, value: float) -> bytes:
    """An alteration of so many users."""
    return alteration(
        *(({"user": f"user-{number}"}, {KEY: value}) for number in range(begin, begin + count))
    )


# What is sent in each round; the value is another one each time.
REQUESTS: Mapping[str, Callable[[float], bytes]] = {
    "describe 10,000": lambda _: description(strict=False),
    "describe 1": lambda _: description(("user", 0, "user-5000")),
    "alter 1": lambda value: users(5_000, 1, value),
    "alter 500": lambda value: users(2_000, IN_ONE_REQUEST, value),
    "alter 10,000": lambda value: users(0, ENTITIES, value),
}


def took_ms(client: RawClient, frame: bytes) -> float:
    """Of one request; what is wrong with its answer ends the run."""
    begin = time.perf_counter()
    answer = asked(client, frame)
    took = (time.perf_counter() - begin) * 1_000
    if frame[5] == 49:
        assert {code for _, code, _ in altered(answer)} == {0}
    return took


def started(stack: ExitStack, kafka: LocalKafka, folder: Path, source: str) -> GatewayProcess:
    config = gateway_toml(upstream=kafka.bootstrap_servers, node_ids="0-2", source=source)
    process = GatewayProcess(folder, config=config, quotas="")
    stack.enter_context(process)
    wait_until_it_takes_them(process)
    return process


def loop_s(process: GatewayProcess) -> float:
    """CPU time of the gateway's event loop since its start, to 10 ms; it is the main thread."""
    stat = Path(f"/proc/{process.pid}/task/{process.pid}/stat").read_text()
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measured(kafka: LocalKafka, folder: Path, rounds: int) -> dict[str, object]:
    """Times of each request at each of the three, and the waits of another client."""
    with ExitStack() as stack:
        gateways = {
            source: started(stack, kafka, folder / source, source) for source in ("file", "topic")
        }
        places = {"broker": kafka.nodes[0].address}
        places |= {source: address(process) for source, process in gateways.items()}
        clients = {
            name: stack.enter_context(RawClient(place, timeout_s=120.0))
            for name, place in places.items()
        }
        for client in clients.values():
            for begin in range(0, ENTITIES, IN_ONE_REQUEST):
                took_ms(client, users(begin, IN_ONE_REQUEST, 1e12))
        times: dict[str, object] = {}
        for name, request in REQUESTS.items():
            took: dict[str, list[float]] = {place: [] for place in places}
            worst = {}
            for place, client in clients.items():
                with GoodClient(places[place], "nothing", LOAD, None) as good:
                    for number in range(rounds):
                        took[place].append(took_ms(client, request(1e12 + number)))
                    worst[place] = round(good.waits().worst_ms, 1)
            times[name] = {
                "ms": {place: round(statistics.median(all_), 2) for place, all_ in took.items()},
                "longest wait of another client, ms": worst,
            }
        with GoodClient(places["file"], "nothing", LOAD, None) as good:
            time.sleep(1)
            times["nothing"] = {
                "longest wait of another client, ms": {"file": round(good.waits().worst_ms, 1)}
            }
        times["describing 10,000 in a loop"] = described_again_and_again(places, clients)
        loop_ms = {}
        for source, process in gateways.items():
            before = loop_s(process)
            for number in range(ALONE):
                took_ms(clients[source], REQUESTS["alter 500"](2e12 + number))
            loop_ms[source] = round((loop_s(process) - before) * 1_000 / ALONE, 1)
        times["alter 500, alone"] = {"CPU of the event loop for each, ms": loop_ms}
    return times


def described_again_and_again(
    places: Mapping[str, tuple[str, int]], clients: Mapping[str, RawClient]
) -> dict[str, dict[str, float]]:
    """What another client waits while one asks for all quotas without a pause, beside what it waits without that."""
    everything = REQUESTS["describe 10,000"](0)
    found: dict[str, dict[str, float]] = {}
    for place, client in clients.items():
        for is_busy in (False, True):
            answers = 0
            with GoodClient(places[place], "nothing", LOAD, None) as good:
                end = time.monotonic() + BUSY_S
                while time.monotonic() < end:
                    if is_busy:
                        took_ms(client, everything)
                        answers += 1
                    else:
                        time.sleep(0.01)
                waits = good.waits()
            for what, value in (
                ("p50", waits.p50_ms), ("p99", waits.p99_ms), ("worst", waits.worst_ms)
            ):  # fmt: skip
                name = f"another client, {'meanwhile' if is_busy else 'alone'}, {what} ms"
                found.setdefault(name, {})[place] = round(value, 2)
            if is_busy:
                found.setdefault("descriptions a second", {})[place] = round(answers / BUSY_S, 1)
    return found


def followed(kafka: LocalKafka, folder: Path) -> dict[str, object]:
    """From one gateway's answer until the other one describes it."""
    took_s = []
    with ExitStack() as stack:
        clients = [
            stack.enter_context(RawClient(address(started(stack, kafka, folder / name, "topic"))))
            for name in ("a", "b")
        ]
        asked_for = description(("user", 0, "followed"))
        for number in range(FOLLOWED):
            value = float(number + 1)
            one, other = clients[number % 2], clients[1 - number % 2]
            took_ms(one, alteration(({"user": "followed"}, {KEY: value})))
            begin = time.perf_counter()
            while described(asked(other, asked_for)) != {(("user", "followed"),): {KEY: value}}:
                time.sleep(0.001)
            took_s.append(time.perf_counter() - begin)
    return {
        "alterations": FOLLOWED,
        "median_ms": round(statistics.median(took_s) * 1_000, 1),
        "worst_ms": round(max(took_s) * 1_000, 1),
    }


def main() -> int:
    options = argparse.ArgumentParser(description="quotas by Kafka's own API")
    options.add_argument("--rounds", type=int, default=7)
    rounds = options.parse_args().rounds
    with (
        tempfile.TemporaryDirectory(prefix="kvota-quota-api-") as folder,
        LocalKafka(host=HOST) as kafka,
    ):
        times = measured(kafka, Path(folder), rounds)
        following = followed(kafka, Path(folder))
    for name, figures in times.items():
        assert isinstance(figures, dict)
        print(name)
        for what, by_place in figures.items():
            line = ", ".join(f"{place} {value:g}" for place, value in by_place.items())
            print(f"  {what:<38}{line}")
        if "ms" in figures:
            straight = figures["ms"]["broker"]
            line = ", ".join(
                f"{place} {value / straight:.2f}" for place, value in figures["ms"].items()
            )
            print(f"  {'of the broker':<38}{line}")
    print(f"two gateways on one topic: {following}")
    command = f"./run bench quota_api --rounds {rounds}"
    result = {"command": command, "commit": commit(), "requests": times, "following": following}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
