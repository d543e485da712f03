"""What held goes on to hold: clients under kills, reloads, slow readers and a full disk, for minutes.

    ./run bench endurance [--part NAME[,NAME]] [--algorithm sampled_rate,token_bucket]

The parts are those of tests/endurance, with longer plans, on a real Kafka: each says what it counts and what must hold.
It exits 1 where something does not. The figures of a part are kept beside those of the others.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # the parts are the tests'

from tests.endurance.alterations import (  # noqa: E402
    STORES,
    Alterations,
    run_alterations,
)
from tests.endurance.disk_full import DiskFull, Place, can_mount, run_disk_full  # noqa: E402
from tests.endurance.findings import Findings  # noqa: E402
from tests.endurance.followers import Followers, run_followers  # noqa: E402
from tests.endurance.gated_kafka import HOST  # noqa: E402
from tests.endurance.groups import GROUPS, Restarts, run_groups  # noqa: E402
from tests.endurance.id_storms import (  # noqa: E402
    FURTHER_LIBRARIES,
    LIBRARIES,
    IdStorm,
    run_id_storm,
)
from tests.endurance.kills import Kills, run_kills  # noqa: E402
from tests.endurance.reloads import Reloads, run_reloads  # noqa: E402
from tests.endurance.rolling import (  # noqa: E402
    LIBRARIES as ROLLING_LIBRARIES,
)
from tests.endurance.rolling import SECRET, USER, Rolling, run_rolling  # noqa: E402
from tests.endurance.same_quotas import run_same_quotas  # noqa: E402
from tests.endurance.slow_readers import SlowReaders, run_slow_readers  # noqa: E402

from kvota.localkafka import LocalKafka  # noqa: E402
from kvota.model.quota_type import Algorithm  # noqa: E402

RESULT = HERE / "results" / "endurance.json"
KILLS = Kills(
    of_broker=6,
    of_gateway=3,
    between_s=9.0,
    producers=5,
    records_per_s=2_500,
    limit=60_000,
    with_console=True,
)
GROUPS_PLAN = Restarts(groups=GROUPS, records=600, records_per_s=12.0, restarts=3, limit=10_000)
RELOADS = Reloads(
    count=60,
    between_s=1.0,
    producers=5,
    records_per_s=1_000,
    limits=(20_000, 80_000),
    seed=60,
    with_law=True,
)
SLOW_READERS = SlowReaders(
    readers=200, answer_bytes=36_000_000, bytes_per_s=20_000, seconds=20.0, memory_mib_max=337.0
)
ALTERATIONS = Alterations(kills=50, users=6_000, many=5_000, seed=50)
FOLLOWERS = Followers(alterations=200, settings=10, deaths=5, within_ms=1_000)
SAME_QUOTAS = 10_000
ID_STORM = IdStorm(
    libraries=(*LIBRARIES, *FURTHER_LIBRARIES),
    producers=3,
    records=40,
    rate=2,
    window_s=4,
    victims=("broker", "gateway", "gateway!") * 3,
    between_s=60.0,
)
DISK_FULL = DiskFull(full_s=20.0, room_s=5.0)
ROLLING = Rolling(
    seconds=600.0,
    between_s=3.0,
    verifiable_per_s=200,
    libraries=ROLLING_LIBRARIES,
    producers=2,
    records_per_s=200,
    limit=20_000,
    protocols=["classic", "consumer"],
    members=2,
    with_copy=True,
)


def kills(folder: Path, algorithm: Algorithm) -> Findings:
    """Six kills of the broker and three of the gateway; idempotent producers, transactions, a copy in transactions."""
    with LocalKafka(host=HOST) as kafka:
        return run_kills(kafka, folder, algorithm, KILLS)


def groups(folder: Path, algorithm: Algorithm) -> Findings:
    """Three restarts of the gateway, by SIGTERM and kill -9, under consumer groups of every library and protocol."""
    with LocalKafka(host=HOST) as kafka:
        return run_groups(kafka, folder, algorithm, GROUPS_PLAN)


def reloads(folder: Path, _: Algorithm) -> Findings:
    """Sixty SIGHUPs that change limits, algorithms and enforcement; the law over the record."""
    with LocalKafka(host=HOST) as kafka:
        return run_reloads(kafka, folder, RELOADS)


def slow_readers(folder: Path, algorithm: Algorithm) -> Findings:
    """Two hundred consumers that read answers of 36 MB at 20 KB/s each: memory, and the wait of another client."""
    with LocalKafka(host=HOST) as kafka:
        return run_slow_readers(kafka, folder, algorithm, SLOW_READERS)


def disk_full(folder: Path, algorithm: Algorithm) -> Findings:
    """No room for the record for 20 s: traffic goes on, what is lost is counted to the row."""
    found = Findings()
    places = [place for place in Place if place is Place.FILE_SIZE or can_mount(folder / "probe")]
    with LocalKafka(host=HOST) as kafka:
        for place in places:
            name = place.name.lower()
            found.add(name, run_disk_full(kafka, folder / name, algorithm, place, DISK_FULL))
    return found


def alterations(folder: Path, _: Algorithm) -> Findings:
    """Fifty kills of the gateway while quotas are altered, each second one during 10,000 values at once: none that was acknowledged is lost, none half."""
    found = Findings()
    with LocalKafka(host=HOST) as kafka:
        for store in STORES:
            found.add(store, run_alterations(kafka, folder / store, store, ALTERATIONS))
    return found


def followers(folder: Path, _: Algorithm) -> Findings:
    """Two gateways on one topic of quotas, three brokers, five deaths of its leader: from one's answer to the other one's description."""
    with LocalKafka(nodes=3, host=HOST) as kafka:
        return run_followers(kafka, folder, FOLLOWERS)


def same_quotas(folder: Path, _: Algorithm) -> Findings:
    """Ten thousand random alterations to a broker and to gateways with a file and a topic: the same answers, and the same quotas at the end."""
    with LocalKafka(host=HOST) as kafka:
        return run_same_quotas(kafka, folder, count=SAME_QUOTAS)


def id_storms(folder: Path, _: Algorithm) -> Findings:
    """Ten minutes of producers that crash-loop over their quota of new ids, in six libraries (needs Go and npm), with kills: what was delivered is there once."""
    return run_id_storm(folder, ID_STORM)


def rolling(folder: Path, algorithm: Algorithm) -> Findings:
    """Ten minutes of rolling restarts, in order, of three brokers and two gateways, over TLS with SCRAM, under Kafka's verifiable clients and others."""
    with LocalKafka(nodes=3, host=HOST, users={USER: SECRET}, tls="none") as kafka:
        return run_rolling(kafka, folder, algorithm, ROLLING)


PARTS: Mapping[str, Callable[[Path, Algorithm], Findings]] = {
    "kills": kills,
    "groups": groups,
    "reloads": reloads,
    "slow_readers": slow_readers,
    "disk_full": disk_full,
    "alterations": alterations,
    "followers": followers,
    "same_quotas": same_quotas,
    "id_storms": id_storms,
    "rolling": rolling,
}


def print_figures(figures: Mapping[str, object], indent: str = "  ") -> None:
    for name, figure in figures.items():
        if isinstance(figure, Mapping):
            print(f"{indent}{name}")
            print_figures(figure, indent + "  ")
        else:
            shown = f"{figure:,}" if isinstance(figure, int | float) else figure
            print(f"{indent}{name:<32}{shown}")


def keep(part: str, algorithm: Algorithm, found: Findings, seconds: float) -> None:
    kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    kept.setdefault(part, {})[algorithm.value] = {
        "command": f"./run bench endurance --part {part} --algorithm {algorithm.value}",
        "seconds": round(seconds),
        "figures": found.figures,
        "missed": found.missed,
    }
    RESULT.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> int:
    options = argparse.ArgumentParser(description="what held goes on to hold")
    options.add_argument("--part", help=f"of {', '.join(PARTS)}; several with commas")
    options.add_argument("--algorithm", help=f"of {', '.join(Algorithm)}; with commas; else both")
    args = options.parse_args()
    names = args.part.split(",") if args.part else list(PARTS)
    for name in names:
        if name not in PARTS:
            options.error(f"there is no part {name}; known are {', '.join(PARTS)}")
    try:
        wanted = args.algorithm.split(",") if args.algorithm else list(Algorithm)
        algorithms = [Algorithm(name) for name in wanted]
    except ValueError as error:
        options.error(f"{error}; known are {', '.join(Algorithm)}")
    missed = []
    for name in names:
        for algorithm in algorithms:
            print(f"{name}, {algorithm}: {PARTS[name].__doc__}", flush=True)
            begin = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="kvota-endurance-") as folder:
                found = PARTS[name](Path(folder), algorithm)
            print_figures(found.figures)
            keep(name, algorithm, found, time.monotonic() - begin)
            missed += [f"{name}, {algorithm}: {text}" for text in found.missed]
    print("\n".join(missed) or "all of it holds")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
