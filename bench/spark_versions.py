"""Whether every Spark that kvota names makes the same tables, to the last bit.

    ./run bench spark_versions [--versions 3.5.0 4.0.0 4.2.1]

Each version is installed from PyPI into an environment of its own in the cache folder (400 MB each; removed by hand), with this
one's NumPy, PyArrow, pandas and Numba. There a session as a user makes it works on a small record, in another time zone and
with none of kvota's settings, and so does kvota's own. What comes out is held against this environment's Spark.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kvota.files.cache import cache_folder
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.testing.recorded_traffic import RecordedTraffic

TREE = Path(__file__).parent.parent
RESULT = Path(__file__).parent / "results" / "spark_versions.json"
PROGRAM = TREE / "tests" / "spark" / "results_process.py"
BESIDE_SPARK = ("pyarrow", "pandas", "numba", "numpy", "rich", "orjson", "pyyaml")
# The least of what the extra allows, one in the middle, and the newest before this environment's.
VERSIONS = ("3.5.0", "4.0.0", "4.2.1")
WAYS = {
    "own session": (
        "own,rows,law,usage,replay,plan",
        "spark.sql.session.timeZone=Asia/Kolkata",
        "spark.sql.shuffle.partitions=3",
    ),
    "kvota's session": ("rows,usage",),
}
LIMIT_S = 900.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", nargs="+", default=VERSIONS)
    args = parser.parse_args()
    here = version("pyspark")
    pythons = {here: Path(sys.executable)} | {name: installed(name) for name in args.versions}
    found: dict[str, dict[str, dict[str, str]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record"
        write_record(record)
        for name, python in pythons.items():
            found[name] = {way: made(python, record, words) for way, words in WAYS.items()}
            alike = {
                way: {part: text == found[here][way][part] for part, text in parts.items()}
                for way, parts in found[name].items()
            }
            print(f"Spark {name}: {alike}")
    same = all(parts == found[here] for parts in found.values())
    result = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "beside Spark": {name: version(name) for name in BESIDE_SPARK},
        "versions": list(pythons),
        "parts": {way: sorted(parts) for way, parts in found[here].items()},
        "same to the last bit": same,
    }
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if same else 1


def write_record(folder: Path) -> None:
    """Charges of every quota type, in shadow mode and enforced."""
    folder.mkdir()
    rows = [
        *RecordedTraffic(3, run_id="run-1").rows(2_500),
        *RecordedTraffic(4, run_id="run-2", enforced=True).rows(1_500),
    ]
    columns = zip(zip(*rows, strict=True), EVENT_SCHEMA, strict=True)
    arrays = [pa.array(column, field.type) for column, field in columns]
    table = pa.Table.from_arrays(arrays, schema=EVENT_SCHEMA)
    for number in range(5):
        piece = table.slice(number * 800, 800)
        pq.write_table(
            piece, folder / f"events-gateway-1-run-1-{number * 800:012}-{number}.parquet"
        )


def installed(name: str) -> Path:
    """The Python of an environment with this Spark; made where there is none."""
    folder = cache_folder() / "spark-versions" / name
    python = folder / "bin" / "python"
    pins = [f"pyspark=={name}", *(f"{package}=={version(package)}" for package in BESIDE_SPARK)]
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *pins], check=True)
        (folder / "complete").touch()
    return python


def made(python: Path, record: Path, words: tuple[str, ...]) -> dict[str, str]:
    parts, *settings = words
    done = subprocess.run(
        [python, PROGRAM, record, "local[2]", parts, *settings],
        env=os.environ | {"PYTHONPATH": f"{TREE / 'src'}:{TREE}", "PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{python}: {done.stderr[-3_000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    raise SystemExit(main())
