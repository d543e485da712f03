"""What one Produce with its answer costs in the machine of a connection: Python calls and µs.

    ./run bench round_trip [--against /path/to/another/checkout]

With Kafka's own rules, and with a quota callback of a user's own. Compared in the same run: the least that any relay has to do with it (read both heads, remember the
correlation id, match the answer), and the machine of another checkout of kvota, if one is named. Each tree
runs in a process of its own; the processes take turns, and the best round of each counts, as other work on
the machine only ever adds. Calls are counted by the interpreter's own profiler, C functions included;
tests/unit/session/test_calls_of_a_request.py holds them. The figures are kept with the commits they are of.
"""

# What is measured is imported by the process that measures it, from the tree that it is told.
# ruff: noqa: PLC0415

import argparse
import inspect
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from struct import Struct
from typing import Any

TREE = Path(__file__).parent.parent
RESULT = Path(__file__).parent / "results" / "round_trip.json"
ROUNDS = 9
COUNT = 20_000
START_US = 1_700_000_000_000_000
RECORD_BYTES = 1_024


def conversation() -> tuple[bytes, bytes]:
    """A Produce v9 of one record of 1 KiB, and its answer."""
    topic = b"\x07orders"
    records = bytes(70 + RECORD_BYTES)
    body = b"\0" + b"\xff\xff" + (30_000).to_bytes(4, "big") + b"\x02" + topic + b"\x02"
    body += bytes(4) + (len(records) + 1).to_bytes(2, "little") + records + b"\0\0\0"
    head = (0).to_bytes(2, "big") + (9).to_bytes(2, "big") + (1).to_bytes(4, "big") + b"\0\5bench\0"
    request = (len(head) + len(body)).to_bytes(4, "big") + head + body
    partition = bytes(4 + 2) + bytes(8) + b"\xff" * 8 + bytes(8) + b"\x01\0\0"
    answer = (
        (1).to_bytes(4, "big") + b"\0\x02" + topic + b"\x02" + partition + b"\0" + bytes(4) + b"\0"
    )
    return request, len(answer).to_bytes(4, "big") + answer


def own_callback() -> object:
    """A user's: one counter for each team, asked on another thread by a gateway."""
    from kvota.callbacks import ClientQuotaCallback

    class ByTeam(ClientQuotaCallback):
        def quota_metric_tags(self, quota_type: object, user: str, client_id: str) -> object:
            return {"team": client_id.partition("-")[0]}

        def quota_limit(self, quota_type: object, tags: object) -> float:
            return 1e12

        def update_quota(self, *of_quota: object) -> None: ...

        def remove_quota(self, *of_quota: object) -> None: ...

        def quota_reset_required(self, quota_type: object) -> bool:
            return False

    return ByTeam()


def machine(own: object = None, *, is_timed: bool = False) -> object:
    """A connection of the tree that is first on the path, under a quota that nobody reaches.

    ``own`` is a callback to go by; else Kafka's own rules. ``is_timed``: with a REQUEST quota, too.
    """
    from kvota.model.quota_entity import DEFAULT, QuotaEntity
    from kvota.model.quota_type import QuotaType
    from kvota.session.budget import AnnouncedBudgets
    from kvota.session.connection import Connection
    from kvota.session.facts import ClusterFacts
    from kvota.session.settings import ConnectionSettings
    from kvota.session.shared import Shared
    from kvota.session.topology import Advertised, Topology

    try:
        from kvota.testing.null_sink import NullSink
    except ImportError:  # a checkout from before metrics
        from kvota.record.null_sink import NullSink

    entries = {QuotaEntity(user=DEFAULT): {QuotaType.PRODUCE: 1e12}}
    if is_timed:
        entries[QuotaEntity(user=DEFAULT)][QuotaType.REQUEST] = 1e9
    advertised = Advertised(host="localhost", node_port_base=1, node_id_min=0, node_id_max=1)
    more: dict[str, object] = {}
    first: tuple[object, ...] = ()
    try:
        from kvota.callbacks import DefaultQuotaCallback
        from kvota.engine import QuotaEngine
        from kvota.model.configured_quotas import ConfiguredQuotas
        from kvota.session.pausing import Pausing

        callback = DefaultQuotaCallback(ConfiguredQuotas(entries))
        engine = QuotaEngine(own or callback, {})
        first = (Pausing(cap_ms=30_000),)
        more |= configured(inspect.signature(Shared).parameters, callback)
    except ImportError:  # a checkout from before quota callbacks
        from kvota.engine import QuotaEngine, QuotaTable

        engine = QuotaEngine(QuotaTable(entries), {})
    shared = Shared(
        engine=engine,
        sink=NullSink(),
        topology=Topology(advertised),
        budgets=AnnouncedBudgets(limit_bytes=2**27),
        facts=ClusterFacts(),
        settings=ConnectionSettings(enforced=frozenset({QuotaType.PRODUCE})),
        **more,
    )
    has_client_host = "client_host" in inspect.signature(Connection).parameters
    ends = {"client_host": "192.0.2.1"} if has_client_host else {}
    return Connection(
        shared,
        *first,
        number=1,
        dialled=("broker", 9092),
        node_id=1,
        wake=lambda: None,
        **ends,
    )


def configured(parameters: Container[str], callback: object) -> dict[str, object]:
    """What connections share since there are quota callbacks, and quotas that Kafka's tools describe."""
    more: dict[str, object] = {}
    if "default_callback" in parameters:
        more["default_callback"] = callback
    if "client_quotas" in parameters:
        from kvota.model.client_quotas import ClientQuotas
        from kvota.session.outside import FixedQuotas, Refusal

        more["client_quotas"] = FixedQuotas(ClientQuotas(), Refusal(44, "none"))
    return more


def least() -> tuple[Callable[[bytes, int], bytes], Callable[[bytes, int], bytes]]:
    """A relay that knows nothing but which answer belongs to which request."""
    head, answer_head = Struct(">iIih").unpack_from, Struct(">ii").unpack_from
    due: deque[tuple[int, int]] = deque()

    def from_client(data: bytes, _now_us: int) -> bytes:
        size, _key, correlation, _length = head(data, 0)
        due.append((correlation, size))
        return data

    def from_upstream(data: bytes, _now_us: int) -> bytes:
        _size, correlation = answer_head(data, 0)
        if due.popleft()[0] != correlation:
            raise AssertionError
        return data

    return from_client, from_upstream


def calls(there: Callable[[bytes, int], object], back: Callable[[bytes, int], object]) -> list[str]:
    """What one round trip calls."""
    request, answer = conversation()
    seen: list[str] = []

    def note(frame: object, event: str, function: object) -> None:
        if event == "call":
            seen.append(frame.f_code.co_name)  # type: ignore[attr-defined]
        elif event == "c_call":
            seen.append(function.__name__)  # type: ignore[attr-defined]

    sys.setprofile(note)
    there(request, START_US + 1000)
    back(answer, START_US + 1000)
    sys.setprofile(None)
    return seen[:-1]  # the last one is setprofile


def us_timed(connection: object) -> float:
    """As ``us_per_round_trip``, where REQUEST is charged: each step is timed, as the gateway's driver does it."""
    there, back = connection.from_client, connection.from_upstream  # type: ignore[attr-defined]
    request_time = connection.request_time  # type: ignore[attr-defined]
    request, answer = conversation()
    now_us, time_ns = START_US, time.time_ns
    start = time.perf_counter_ns()
    for _ in range(COUNT):
        now_us += 50
        began_ns = time_ns()
        there(request, now_us)
        request_time.took_from_client(request, time_ns() - began_ns, now_us)
        began_ns = time_ns()
        back(answer, now_us)
        request_time.took(time_ns() - began_ns, now_us)
    return (time.perf_counter_ns() - start) / COUNT / 1000


def us_per_round_trip(
    there: Callable[[bytes, int], object], back: Callable[[bytes, int], object]
) -> float:
    request, answer = conversation()
    now_us = START_US
    start = time.perf_counter_ns()
    for _ in range(COUNT):
        now_us += 50
        there(request, now_us)
        back(answer, now_us)
    return (time.perf_counter_ns() - start) / COUNT / 1000


Way = tuple[Callable[[bytes, int], bytes], Callable[[bytes, int], bytes]]


def way_of(connection: object, *, is_asked: bool = False) -> Way:
    """Both directions of a connection that has had its first request; ``is_asked``: its callback has to be."""
    there, back = connection.from_client, connection.from_upstream  # type: ignore[attr-defined]
    request, answer = conversation()
    out = there(request, START_US)
    if is_asked:  # the first request waits until the callback has been asked
        (_, (token, question)) = connection.commands.pop()  # type: ignore[attr-defined]
        told = question.ask(connection.caller.shared.engine.callback)  # type: ignore[attr-defined]
        out = connection.resolved(token, told, START_US)  # type: ignore[attr-defined]
    if out != request or back(answer, START_US) != answer:
        raise AssertionError
    return there, back


def measure() -> dict[str, object]:
    """The figures of the tree that is first on the path."""
    ways = [way_of(machine()), way_of(machine(own_callback()), is_asked=True)]
    bare = least()
    timed = machine(is_timed=True)
    timed_us = 1e9
    if hasattr(timed, "charge_time"):  # else a checkout from before REQUEST
        timed.charge_time(is_charged=True)
    names = [calls(*way) for way in ways]
    best = [1e9] * 3
    for _ in range(3):  # in turns
        best = [
            min(us, us_per_round_trip(*way)) for us, way in zip(best, [*ways, bare], strict=True)
        ]
        if hasattr(timed, "charge_time"):
            timed_us = min(timed_us, us_timed(timed))
    return {
        "calls": len(names[0]),
        "names": names[0],
        "us": best[0],
        "own_calls": len(names[1]),
        "own_us": best[1],
        "least_us": best[2],
        "timed_us": timed_us,
    }


def commit_of(tree: Path) -> str:
    """The commit of a checkout; a plus sign: and changes of its sources that are not committed."""
    commands = (["git", "rev-parse", "--short", "HEAD"], ["git", "status", "--porcelain", "src"])
    name, changed = (
        subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False).stdout
        for command in commands
    )
    return f"{name.strip()}+" if changed.strip() else name.strip()


def measured_in(tree: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, __file__, "--measure"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    figures: dict[str, float] = json.loads(ran.stdout)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--against", type=Path, help="another checkout of kvota")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure()))
        return 0
    trees = {"this tree": TREE}
    if options.against is not None:
        if not (options.against / "src" / "kvota").is_dir():
            print(
                f"{options.against} is no checkout of kvota: it has no src/kvota", file=sys.stderr
            )
            return 2
        trees["the other"] = options.against.resolve()
    rounds = [{name: measured_in(tree) for name, tree in trees.items()} for _ in range(ROUNDS)]
    result = summary(trees, rounds)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    show(result)
    return 0


Rounds = list[dict[str, dict[str, float]]]


def summary(trees: Mapping[str, Path], rounds: Rounds) -> dict[str, object]:
    """What is kept: the best of all rounds, and ratios as medians of them, with the least and the greatest."""
    result: dict[str, object] = {
        "command": "./run bench round_trip" + " --against CHECKOUT" * ("the other" in trees),
        "python": platform.python_version(),
        "least_us": round(
            min(one["least_us"] for figures in rounds for one in figures.values()), 3
        ),
    }
    for name, tree in trees.items():
        result[name] = {
            "commit": commit_of(tree),
            "calls": rounds[0][name]["calls"],
            "us": round(min(figures[name]["us"] for figures in rounds), 3),
            "own callback: calls": rounds[0][name]["own_calls"],
            "own callback: us": round(min(figures[name]["own_us"] for figures in rounds), 3),
        }
    this = [figures["this tree"] for figures in rounds]
    result["with a REQUEST quota, us"] = round(min(one["timed_us"] for one in this), 3)
    result["own callback / Kafka's own rules"] = ratios([one["own_us"] / one["us"] for one in this])
    if "the other" in trees:
        pairs = [(figures["this tree"], figures["the other"]) for figures in rounds]
        result["this tree / the other"] = ratios([one["us"] / other["us"] for one, other in pairs])
        result["this tree / the other, own callback"] = ratios(
            [one["own_us"] / other["own_us"] for one, other in pairs]
        )
    return result


def ratios(of_rounds: list[float]) -> dict[str, float]:
    """Of some rounds."""
    found = {"median": statistics.median(of_rounds), "min": min(of_rounds), "max": max(of_rounds)}
    return {name: round(value, 3) for name, value in found.items()}


def show(result: dict[str, Any]) -> None:
    """For people."""
    least_us = result["least_us"]
    print(f"{'':24} {'calls':>5}  {'µs':>6}  x the least   (best of {ROUNDS} rounds)")
    for name in [one for one in ("this tree", "the other") if one in result]:
        for what, prefix in (("", ""), (", own callback", "own callback: ")):
            best, count = (result[name][f"{prefix}{one}"] for one in ("us", "calls"))
            print(f"{name + what:24} {count:5}  {best:6.3f}  {best / least_us:.2f}")
    timed_us = result["with a REQUEST quota, us"]
    print(
        f"{'with a REQUEST quota on':24} {'':5}  {timed_us:6.3f}  {timed_us / least_us:.2f}   "
        f"{timed_us - result['this tree']['us']:.2f} µs more (./run bench request_time: of a request's whole CPU)"
    )
    print(f"{'the least':24} {'':5}  {least_us:6.3f}  1.00")
    for name, found in result.items():
        if isinstance(found, dict) and "median" in found:
            print(f"{name}: median {found['median']:.3f}, {found['min']:.3f} to {found['max']:.3f}")


if __name__ == "__main__":
    sys.exit(main())
