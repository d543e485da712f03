"""Whether every Spark that kvota names makes the same tables, to the last bit.

    ./run bench spark_versions [--versions 3.5.0 4.0.0 4.1.4 4.2.1]

Each version is installed from PyPI into an environment of its own in the cache folder (400 MB each; removed by hand), with this
one's NumPy, PyArrow, pandas and Numba. There a session as a user makes it works on a small record, in another time zone and
with none of kvota's settings, and so does kvota's own. What comes out is held against this environment's Spark. With the
versions for which there are packages of Delta Lake or Iceberg, a table is saved there, replaced and read back; Spark fetches
these packages (``KVOTA_IVY_SETTINGS`` names an Ivy settings file for who cannot reach the public repository).
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
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kvota.files.cache import cache_folder
from kvota.localkafka.jars.ivy import SETTINGS_VARIABLE
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.testing.recorded_traffic import RecordedTraffic
from verdict import judged

TREE = Path(__file__).parent.parent
RESULT = Path(__file__).parent / "results" / "spark_versions.json"
PROGRAM = TREE / "tests" / "spark" / "results_process.py"
LAKE_PROGRAM = Path(__file__).with_name("lake_tables.py")
BESIDE_SPARK = ("pyarrow", "pandas", "numba", "numpy", "rich", "orjson", "pyyaml")
# The least of what the extra allows, those that Delta Lake and Iceberg are for, and the newest before this environment's.
VERSIONS = ("3.5.0", "4.0.0", "4.1.4", "4.2.1")
WAYS = {
    "own session": (
        "own,rows,law,usage,replay,plan,table,saved",
        "spark.sql.session.timeZone=Asia/Kolkata",
        "spark.sql.shuffle.partitions=3",
    ),
    "kvota's session": ("rows,usage",),
}
LIMIT_S = 900.0


class Lake(NamedTuple):
    """A table format, what Spark needs for it, and a place; ``FOLDER``: one that is there for it."""

    name: str
    package: str
    place: str
    settings: tuple[str, ...]


_DELTA_EXTENSION = "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension"
_DELTA_CATALOG = "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
LAKES = {
    "4.0.0": Lake(
        "Delta Lake 4.0.0",
        "io.delta:delta-spark_2.13:4.0.0",
        "delta:FOLDER/usage",
        (_DELTA_EXTENSION, _DELTA_CATALOG),
    ),
    "4.1.4": Lake(
        "Iceberg 1.12.0",
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "iceberg:lake.kvota.usage",
        (
            "spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type=hadoop",
            "spark.sql.catalog.lake.warehouse=file:FOLDER",
        ),
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", nargs="+", default=VERSIONS)
    args = parser.parse_args()
    here = version("pyspark")
    pythons = {here: Path(sys.executable)} | {name: installed(name) for name in args.versions}
    found: dict[str, dict[str, dict[str, str]]] = {}
    lakes: dict[str, dict[str, object]] = {}
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
            if name in LAKES:
                lakes[LAKES[name].name] = {"Spark": name} | in_a_lake(
                    python, record, LAKES[name], Path(folder) / f"lake-{name}"
                )
                print(f"  {LAKES[name].name}: {lakes[LAKES[name].name]}")
    missed = [
        f"{lake}: {step}" for lake, steps in lakes.items() for step, did in steps.items() if not did
    ]
    same = all(parts == found[here] for parts in found.values())
    result = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "beside Spark": {name: version(name) for name in BESIDE_SPARK},
        "versions": list(pythons),
        "parts": {way: sorted(parts) for way, parts in found[here].items()},
        "same to the last bit": same,
        "table formats": lakes,
    }
    if not same:
        missed.append("not every version makes the same tables")
    return judged(RESULT, result, missed)


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
    return dict(said(python, PROGRAM, record, "local[2]", parts, *settings))


def in_a_lake(python: Path, record: Path, lake: Lake, folder: Path) -> dict[str, object]:
    """What of a table format does what it should."""
    folder.mkdir()
    settings = [f"spark.jars.packages={lake.package}", *lake.settings]
    if SETTINGS_VARIABLE in os.environ:
        settings.append(f"spark.jars.ivySettings={os.environ[SETTINGS_VARIABLE]}")
    words = [text.replace("FOLDER", str(folder)) for text in (lake.place, *settings)]
    return dict(said(python, LAKE_PROGRAM, record, *words))


def said(python: Path, *command: Path | str) -> dict[str, Any]:
    """The last line of a program's output, which is JSON."""
    done = subprocess.run(
        [python, *command],
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
