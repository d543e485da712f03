"""Looks at volumes are read back as the history of each volume."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.record.record_files import ROWS, put_record

from kvota.model.errors import UsageError
from kvota.model.volume_row import VolumeRow
from kvota.record.found_events import find_events
from kvota.record.period import Period
from kvota.record.places import VOLUME_FOLDER
from kvota.record.record_limits import RecordLimits
from kvota.record.volume_looks import find_looks
from kvota.record.volume_record import VOLUME_SCHEMA, VolumeRecord
from kvota.testing.manual_clock import ManualClock

MINUTE_US = 60_000_000


def row(minute: float, **other: object) -> VolumeRow:
    known: dict[str, object] = {
        "observer": "gw",
        "ts_us": int(minute * MINUTE_US),
        "broker_id": 1,
        "log_dir": "/d",
        "source": "cluster",
        "status": "SUCCESS",
        "device": None,
        "total_bytes": 1_000,
        "usable_bytes": 500,
        "cached": False,
        "factor": 1.0,
    }
    return VolumeRow(**(known | other))  # type: ignore[arg-type]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write_here(*rows: VolumeRow, hour: str = "2026112100") -> Path:
        folder = tmp_path / VOLUME_FOLDER
        folder.mkdir(exist_ok=True)
        columns = [
            pa.array(column, field.type)
            for column, field in zip(zip(*rows, strict=True), VOLUME_SCHEMA, strict=True)
        ]
        table = pa.Table.from_arrays(columns, schema=VOLUME_SCHEMA)
        pq.write_table(table, folder / f"volumes-gw-run-{hour}-0.parquet")
        return tmp_path

    return write_here


def test_looks_of_a_gateway_stand_beside_a_record_without_any(write: Callable[..., Path]) -> None:
    looks = write(row(0.1)) / VOLUME_FOLDER
    record = put_record(looks.parent / "record")

    assert len(find_looks([record, looks]).histories) == 1
    assert find_events([record, looks]).rows == len(ROWS)


def test_of_each_minute_the_last_look_counts(write: Callable[..., Path]) -> None:
    folder = write(row(0.1, usable_bytes=7), row(0.5, usable_bytes=6), row(1.2, usable_bytes=5))

    (history,) = find_looks([folder]).histories

    assert history.usable_bytes.tolist() == [6, 5]
    assert history.broker_id == 1


def test_what_a_gateway_writes_is_read(tmp_path: Path) -> None:
    limits = RecordLimits(flush_interval_s=0.01, close_timeout_s=20.0)
    record = VolumeRecord(tmp_path, gateway="gw", run_id="r1", limits=limits, clock=ManualClock())
    record.start()
    record.append([row(0.0), row(0.0, log_dir="/e", usable_bytes=90)])
    record.close()

    histories = find_looks([tmp_path]).histories

    assert [each.log_dirs for each in histories] == [("/d",), ("/e",)]


def test_two_gateways_that_look_at_one_broker_make_one_history(write: Callable[..., Path]) -> None:
    folder = write(row(0), row(1, observer="other", usable_bytes=400))

    (history,) = find_looks([folder]).histories

    assert history.usable_bytes.tolist() == [500, 400]


def test_gateways_of_two_machines_have_disks_of_their_own(write: Callable[..., Path]) -> None:
    folder = write(row(0, broker_id=None), row(0, broker_id=None, observer="other"))

    assert [each.observer for each in find_looks([folder]).histories] == ["gw", "other"]


@pytest.mark.parametrize(
    "other",
    [
        {"status": "SAFETY_TIMEOUT", "log_dir": None, "total_bytes": None, "usable_bytes": None},
        {"cached": True},
        {"total_bytes": None, "usable_bytes": None},
        {"total_bytes": 0},
    ],
    ids=["failed", "cached", "without a size", "of no size"],
)
def test_what_was_not_seen_does_not_count(
    write: Callable[..., Path], other: dict[str, object]
) -> None:
    assert not find_looks([write(row(0, **other))]).histories


def test_a_period_has_its_looks_only(write: Callable[..., Path]) -> None:
    folder = write(row(0), row(1), row(2))

    (history,) = find_looks([folder], Period(MINUTE_US, 2 * MINUTE_US)).histories

    assert history.ts_us.tolist() == [MINUTE_US]


def test_a_damaged_file_is_named_and_left_out(write: Callable[..., Path]) -> None:
    folder = write(row(0))
    (folder / VOLUME_FOLDER / "volumes-gw-run-2026112101-0.parquet").write_bytes(b"PAR1 or so")

    found = find_looks([folder])

    assert len(found.histories) == found.files == 1
    assert len(found.bad) == 1
    assert "volumes-gw-run-2026112101-0.parquet" in found.bad[0]


def test_a_record_without_looks_has_no_volumes(tmp_path: Path) -> None:
    assert not find_looks([tmp_path]).histories


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such folder"):
        find_looks([tmp_path / "nowhere"])


def test_places_elsewhere_are_refused() -> None:
    with pytest.raises(UsageError, match="not on this machine"):
        find_looks(["s3a://bucket/record"])
