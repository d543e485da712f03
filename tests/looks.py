"""Looks at a volume as a gateway has recorded them, made up."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kvota.model.volume_row import VolumeRow
from kvota.record.places import VOLUME_FOLDER
from kvota.record.volume_record import VOLUME_SCHEMA

HOUR_US = 3_600_000_000
START_US = 1_763_596_800_000_000
TOTAL_BYTES = 1_000_000_000_000


def write_looks(
    folder: Path, *, hours: int = 240, log_dirs: tuple[str, ...] = ("/data",), failed: int = 0
) -> Path:
    """Of broker 1: 1 GB an hour comes in, and 400 GB are used at the end; then some looks fail."""
    (folder / VOLUME_FOLDER).mkdir(parents=True)
    rng = np.random.default_rng(3)
    used = 400e9 - np.cumsum(1e9 * rng.gamma(8.0, 1 / 8.0, hours))[::-1]
    nothing = VolumeRow(
        observer="gw",
        ts_us=START_US + HOUR_US * hours,
        broker_id=None,
        log_dir=None,
        source="cluster",
        status="FAILED",
        device=None,
        total_bytes=None,
        usable_bytes=None,
        cached=False,
        factor=1.0,
    )
    rows = [
        nothing._replace(
            ts_us=START_US + HOUR_US * hour,
            broker_id=1,
            log_dir=log_dir,
            status="SUCCESS",
            total_bytes=TOTAL_BYTES,
            usable_bytes=TOTAL_BYTES - int(each),
        )
        for hour, each in enumerate(used)
        for log_dir in log_dirs
    ]
    rows += [nothing] * failed
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), VOLUME_SCHEMA, strict=True)
    ]
    table = pa.Table.from_arrays(columns, schema=VOLUME_SCHEMA)
    pq.write_table(table, folder / VOLUME_FOLDER / "volumes-gw-run-2025112000-0.parquet")
    return folder
