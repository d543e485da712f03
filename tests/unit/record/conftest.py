"""What the tests of the recorder share."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kvota.model.decision_sink import ChargeMemo
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.record.record_limits import RecordLimits
from kvota.record.recorder import Recorder

MemoMaker = Callable[..., ChargeMemo]
RecorderMaker = Callable[..., Recorder]


class WallClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000


@pytest.fixture(scope="session")
def clock() -> WallClock:
    return WallClock()


@pytest.fixture(scope="session")
def make_memo() -> MemoMaker:
    def make(**changes: object) -> ChargeMemo:
        columns: dict[str, object] = {
            "node_id": 1,
            "quota_type": QuotaType.PRODUCE,
            "connection": 7,
            "user": "alice",
            "client_id": "app",
            "tags": "client-id=,user=alice",
            "api_key": 0,
            "api_version": 9,
            "limit": 1_000_000.0,
            "samples": 11,
            "sample_ms": 1000,
            "algorithm": Algorithm.SAMPLED_RATE,
            "enforced": True,
        }
        return ChargeMemo(**(columns | changes))  # type: ignore[arg-type]

    return make


@pytest.fixture
def make_recorder(tmp_path: Path, clock: WallClock) -> Iterator[RecorderMaker]:
    made: list[Recorder] = []

    def make(folder: Path = tmp_path, **limits: float) -> Recorder:
        chosen = {"flush_rows": 10, "buffer_rows": 40, "retry_pause_s": 0.02} | limits
        recorder = Recorder(
            folder,
            gateway="gw",
            run_id="run",
            limits=RecordLimits(**chosen),  # type: ignore[arg-type]
            clock=clock,
        )
        made.append(recorder)
        return recorder

    yield make
    for recorder in made:
        recorder.close()


@pytest.fixture(scope="session")
def rows_in() -> Callable[[Path], list[dict[str, object]]]:
    """All rows of all complete files of a folder, by seq."""

    def read(folder: Path) -> list[dict[str, object]]:
        rows = [row for path in folder.glob("*.parquet") for row in pq.read_table(path).to_pylist()]
        return sorted(rows, key=lambda row: row["seq"])

    return read


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Wait until something holds; the test's own timeout ends it otherwise."""

    def wait(holds: Callable[[], bool]) -> None:
        while not holds():
            time.sleep(0.005)

    return wait
