"""The record's folder has no room for a while: traffic goes on, what is lost is counted and said, and recording resumes."""

import re
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pyarrow.parquet as pq
from tests.adversary.good_client import GoodClient, GoodLoad, Waits
from tests.endurance.findings import Findings
from tests.endurance.gated_kafka import NODES_MAX, UNREACHED, gateway_config
from tests.integration.test_gateway_http import metrics_of

from kvota.app.gateway_process import GatewayProcess, free_port_range
from kvota.localkafka import LocalKafka
from kvota.model.quota_type import Algorithm

CLIENTS = 3
_SMALL_BYTES = 262_144  # of the tmpfs
# So few rows in memory that some are lost soon.
_BUFFER = "flush_rows = 250\nbuffer_rows = 1000\n"
_NO_HTTP, _HTTP = "[http]\nenabled = false\n", "[http]\nport = 0\n"
_FAILING, _AGAIN = "recording stops", "recording again"
_SAID_S = 60.0
_LOOK_S = 0.05


class Place(Enum):
    """Where the record lies, and what fills it."""

    TMPFS = "a small file system in memory"
    FILE_SIZE = "files that may not grow beyond a few bytes"


@dataclass(frozen=True, kw_only=True)
class DiskFull:
    """How long there is no room, and for how long there is before and behind that."""

    full_s: float
    room_s: float


def can_mount(folder: Path) -> bool:
    """Whether this process may mount file systems."""
    folder.mkdir(parents=True, exist_ok=True)
    if not _mounted(folder, _SMALL_BYTES):
        return False
    subprocess.run(["umount", str(folder)], check=True)
    return True


def run_disk_full(
    kafka: LocalKafka, folder: Path, algorithm: Algorithm, place: Place, plan: DiskFull
) -> Findings:
    """Small Produces on some connections, all the time."""
    topic = f"disk-full-{place.name}-{algorithm}".replace("_", "-")
    kafka.create_topic(topic)
    first_port = free_port_range(NODES_MAX + 2)
    config = gateway_config(kafka, first_port, algorithm)
    gateway = GatewayProcess(
        folder / "gateway",
        config=config.replace("[record]\n", f"[record]\n{_BUFFER}").replace(_NO_HTTP, _HTTP),
        quotas=UNREACHED.toml,
    )
    record = folder / "gateway" / "record"
    address = ("127.0.0.1", first_port + 1 + kafka.nodes[0].node_id)
    with ExitStack() as stack:
        if place is Place.TMPFS:
            record.mkdir()
            stack.enter_context(_tmpfs(record))
        stack.enter_context(gateway)
        clients = [
            stack.enter_context(GoodClient(address, topic, GoodLoad(pace_s=0.001), None))
            for _ in range(CLIENTS)
        ]
        time.sleep(plan.room_s)
        if place is Place.FILE_SIZE:
            _limit_file_size(gateway)
        _wait_until_it_says(gateway, _FAILING)
        # Rows wait in memory first, so that those that are lost need some time.
        time.sleep(plan.full_s)
        _wait_until_some_are_dropped(gateway)
        _make_room(gateway, record, place)
        _wait_until_it_says(gateway, _AGAIN)
        time.sleep(plan.room_s)
        waits = [client.waits() for client in clients]
        code = gateway.stop()
        found = _judge(gateway, record, waits)
        found.expect(code == 0, f"the gateway has ended with code {code}")
    found.figures["place"] = place.value
    return found


def _judge(gateway: GatewayProcess, record: Path, waits: list[Waits]) -> Findings:
    """What it says at its end is held against its files, which have each row with its number."""
    ended = re.search(r"recorded (\d+) decisions, (\d+) dropped", gateway.log)
    assert ended is not None, gateway.log[-2_000:]
    recorded, dropped = map(int, ended.groups())
    told = sum(
        map(int, re.findall(r"record\S* .*[:;] (\d+) (?:more )?rows were dropped", gateway.log))
    )
    numbers: list[int] = []
    for path in record.glob("*.parquet"):
        numbers += pq.read_table(path, columns=["seq"])["seq"].to_pylist()
    decided = max(numbers) + 1
    unfinished = [path.name for path in record.iterdir() if path.suffix != ".parquet"]
    answers = sum(one.answers for one in waits)
    found = Findings(
        {
            "answers": answers,
            "reconnects": sum(one.reconnects for one in waits),
            "worst_ms": round(max(one.worst_ms for one in waits), 1),
            "decisions": decided,
            "recorded": recorded,
            "dropped": dropped,
        }
    )
    found.expect(dropped > 0, "nothing was dropped: there was room all the time")
    found.expect(len(set(numbers)) == len(numbers), "a row is there twice")
    found.expect(len(numbers) == recorded, f"{recorded} were said, {len(numbers)} are there")
    found.expect(decided == recorded + dropped, f"{decided} decisions: {recorded} + {dropped}")
    found.expect(told == dropped, f"{told} of {dropped} were said when there was room again")
    found.expect(decided >= answers, f"{answers} answers have {decided} decisions")
    found.expect(not unfinished, f"left half done: {unfinished}")
    found.expect(not any(one.reconnects for one in waits), "clients had to connect again")
    found.expect("Traceback" not in gateway.log, "the gateway's log has a stack trace")
    return found


def _wait_until_it_says(gateway: GatewayProcess, text: str) -> None:
    end = time.monotonic() + _SAID_S
    while text not in gateway.log:
        assert time.monotonic() < end, f'it does not say "{text}": {gateway.log[-2_000:]}'
        time.sleep(_LOOK_S)


def _wait_until_some_are_dropped(gateway: GatewayProcess) -> None:
    """Or for a while: what is found then says that there were none."""
    end = time.monotonic() + _SAID_S
    while not _rows_dropped(gateway) and time.monotonic() < end:
        time.sleep(_LOOK_S)


def _rows_dropped(gateway: GatewayProcess) -> float:
    return metrics_of(gateway)["kvota_record_rows_dropped_total", ()]


# ------------------------------------------------------------------ room


def _make_room(gateway: GatewayProcess, record: Path, place: Place) -> None:
    if place is Place.TMPFS:
        options = f"remount,size={_SMALL_BYTES * 100}"
        subprocess.run(["mount", "-o", options, str(record)], check=True)
    else:
        resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, _UNLIMITED)


_UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def _limit_file_size(gateway: GatewayProcess) -> None:
    """No file may grow beyond what its log needs: a file of rows is larger."""
    most = gateway.log_path.stat().st_size + 2_000
    resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))


@contextmanager
def _tmpfs(folder: Path) -> Iterator[None]:
    if not _mounted(folder, _SMALL_BYTES):
        raise AssertionError("this process may not mount file systems")
    yield
    with suppress(subprocess.CalledProcessError):
        subprocess.run(["umount", str(folder)], check=True)


def _mounted(folder: Path, size_bytes: int) -> bool:
    options = ["-t", "tmpfs", "-o", f"size={size_bytes}", "kvota-record", str(folder)]
    return subprocess.run(["mount", *options], capture_output=True, check=False).returncode == 0
