"""A process that records until somebody ends it, for the tests of crashes.

usage: recording_process.py FOLDER endless | die-at-fsync N | die-at-rename N | small-files BYTES
"""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kvota.model.decision_sink import ChargeMemo
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.record.record_limits import RecordLimits
from kvota.record.recorder import Recorder


class WallClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000


def make_recorder(folder: Path, *, buffer_rows: int = 200_000) -> Recorder:
    limits = RecordLimits(
        flush_rows=100, buffer_rows=buffer_rows, flush_interval_s=0.01, retry_pause_s=0.01
    )
    return Recorder(
        folder, gateway="gw", run_id=f"run{os.getpid()}", limits=limits, clock=WallClock()
    )


def make_memo() -> ChargeMemo:
    return ChargeMemo(
        node_id=1,
        quota_type=QuotaType.PRODUCE,
        connection=1,
        user="alice",
        client_id="app",
        tags="client-id=,user=alice",
        api_key=0,
        api_version=9,
        limit=None,
        samples=11,
        sample_ms=1000,
        algorithm=Algorithm.SAMPLED_RATE,
        enforced=True,
    )


def dying_at(call: Callable[..., object], number: int) -> Callable[..., object]:
    calls = 0

    def maybe_die(*args: object) -> object:
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args)

    return maybe_die


def pause() -> None:
    time.sleep(0.0005)


def tell(*values: object) -> None:
    print(*values, sep="|", flush=True)  # noqa: T201  (read by the test)


def record(recorder: Recorder, rows: int) -> None:
    memo = make_memo()
    for _ in range(rows):
        recorder.append(memo, recorder.next_seq(), 1, 1.0, 0, -1, 0)


def record_without_end(recorder: Recorder) -> None:
    while True:
        record(recorder, 20)
        pause()


def record_under_a_file_size_limit(recorder: Recorder, limit_bytes: int) -> None:
    """Nothing fits on the disk, then everything does: the kernel itself refuses and allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    record(recorder, 1000)
    while recorder.status().last_error is None:
        pause()
    full = recorder.status()
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    while recorder.status().rows_written < 400:
        pause()
    record(recorder, 10)
    recorder.close()
    tell(full.recording, full.rows_written, full.rows_dropped, full.last_error)
    after = recorder.status()
    tell(after.recording, after.rows_written, after.rows_dropped, after.last_error)


def main(folder: str, mode: str, number: str = "0") -> None:
    few = {"buffer_rows": 400} if mode == "small-files" else {}
    recorder = make_recorder(Path(folder), **few)
    recorder.start()
    tell("ready")
    if mode == "small-files":
        record_under_a_file_size_limit(recorder, int(number))
        return
    if mode == "die-at-fsync":
        os.fsync = dying_at(os.fsync, int(number))
    if mode == "die-at-rename":
        os.rename = dying_at(os.rename, int(number))
    record_without_end(recorder)


if __name__ == "__main__":
    main(*sys.argv[1:])
