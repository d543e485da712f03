"""A worker's memory is bounded, however many rows a file or a counter has: what it takes at most is what docs/pipeline.md says."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kvota.record.event_parquet import parquet_bytes
from kvota.record.event_schema import WRITE_SCHEMA
from kvota.record.runs import Run

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_000)]

# One file is one task's: were its rows held at once, they would take 2.8 GB.
ROWS = 8_000_000
USERS = 30_000
WORKER_MB_MAX = 1_200

# Workers stay until Spark ends, and the system keeps what each has held at most.
SCRIPT = """
import json, os, sys
from pathlib import Path
from kvota.pipeline import chunks_of_files, end_session, find_events, replay, session, usage_total
from kvota.pipeline.usage_tables import USAGE_COLUMNS

def peaks_mb():
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = MARK in (process / "environ").read_bytes()
            is_worker = b"worker_daemon" in (process / "cmdline").read_bytes()
            status = (process / "status").read_text()
        except OSError:  # it has ended, or is somebody else's
            continue
        if is_ours and is_worker:
            yield int(status.split("VmHWM:")[1].split()[0]) >> 10

os.environ["KVOTA_TEST_MARK"] = sys.argv[1]
MARK = b"KVOTA_TEST_MARK=" + sys.argv[1].encode()
spark = session("local[1]")
found = find_events([Path(sys.argv[1])])
seen = {}
for name, work in (
    ("usage", lambda: usage_total(chunks_of_files(spark, found, "user", further=USAGE_COLUMNS))),
    ("replay", lambda: replay(chunks_of_files(spark, found), [1e5, 2e5, 4e5])),
):
    work().write.format("noop").mode("overwrite").save()
    seen[name] = max(peaks_mb())
print(json.dumps(seen))
end_session(spark)
"""


@pytest.fixture
def one_file(tmp_path: Path) -> Path:
    """Write a record of one file; one user has 60 % of its rows."""
    rng = np.random.default_rng(3)
    user = rng.integers(0, USERS, ROWS, dtype=np.int32)
    user[rng.random(ROWS) < 0.6] = 0
    ts_us = 1_900_000_000_000_000 + np.arange(ROWS) * 300

    def same(text: str) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(np.zeros(ROWS, np.int32), pa.array([text]))

    columns = {
        "ts_us": ts_us,
        "seq": np.arange(ROWS),
        "gateway": same("gateway-1"),
        "run_id": same("run-1"),
        "quota_type": same("PRODUCE"),
        "algorithm": same("sampled_rate"),
        "outcome": same("admitted"),
        "client_id": same("app"),
        "user": pa.DictionaryArray.from_arrays(user, pa.array([f"user-{n}" for n in range(USERS)])),
        "tags": pa.DictionaryArray.from_arrays(
            user, pa.array([f"client-id=,user=user-{n}" for n in range(USERS)])
        ),
        "value": np.round(rng.lognormal(7, 1.5, ROWS)),
        "limit": np.full(ROWS, 2e5),
        "samples": np.full(ROWS, 11),
        "sample_ms": np.full(ROWS, 1000),
        "enforced": np.zeros(ROWS, np.bool_),
        "owed_ms": pa.nulls(ROWS, pa.int64()),
        "producer_id": pa.nulls(ROWS, pa.int64()),
    }
    zeros = np.zeros(ROWS, np.int64)
    arrays = [pa.array(columns.get(field.name, zeros)).cast(field.type) for field in WRITE_SCHEMA]
    run = Run("gateway-1", "run-1", 0, ROWS - 1, ROWS, int(ts_us[0]), int(ts_us[-1]))
    content = parquet_bytes(pa.table(arrays, schema=WRITE_SCHEMA), [run])
    (tmp_path / f"events-gateway-1-run-1-000000000000-{ROWS}.parquet").write_bytes(content)
    return tmp_path


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux says what a process has held at most"
)
def test_neither_a_large_file_nor_a_large_counter_is_held_at_once(one_file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(one_file)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    peaks_mb = json.loads(done.stdout)
    assert set(peaks_mb) == {"usage", "replay"}
    assert max(peaks_mb.values()) <= WORKER_MB_MAX, peaks_mb
