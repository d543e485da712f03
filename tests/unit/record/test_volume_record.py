"""Looks at volumes in the record: whole files beside the decisions, which readers of these pass over."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kvota.model.volume_row import VOLUME_COLUMNS, VolumeRow
from kvota.record.found_events import find_events
from kvota.record.places import VOLUME_FOLDER
from kvota.record.record_limits import RecordLimits
from kvota.record.volume_record import ROWS_MAX, VolumeRecord
from kvota.record.volume_rows import volume_rows
from kvota.testing.manual_clock import ManualClock
from kvota.volumes import (
    Observation,
    PerVolumeLimit,
    Status,
    Threshold,
    Volume,
    VolumeThrottle,
)

HOUR_US = 3_600_000_000
LIMIT = PerVolumeLimit(hard=Threshold(available_bytes=10), soft=Threshold(available_bytes=20))


def seen(**available: int) -> Observation:
    volumes = [
        Volume(broker_id=int(name[1:]), log_dir="/d", total_bytes=100, available_bytes=free)
        for name, free in available.items()
    ]
    return Observation(status=Status.SUCCESS, volumes=volumes)


def looked(*looks: Observation, per_broker: bool = False) -> list[list[VolumeRow]]:
    """The rows of looks a second apart."""
    throttle = VolumeThrottle(
        LIMIT, fallback=0.25, validity_ms=1_500, per_broker=per_broker, now_ms=0
    )
    rows = []
    for second, look in enumerate(looks):
        throttle.take(look, second * 1000)
        ts_us = second * 1_000_000
        rows.append(volume_rows(look, throttle, observer="gw", source="cluster", ts_us=ts_us))
    return rows


def written(folder: Path) -> list[VolumeRow]:
    files = sorted((folder / VOLUME_FOLDER).glob("*.parquet"))
    return [VolumeRow(**row) for file in files for row in pq.read_table(file).to_pylist()]


@pytest.fixture
def record(tmp_path: Path, record_into: Callable[..., VolumeRecord]) -> VolumeRecord:
    return record_into(tmp_path)


@pytest.fixture
def record_into() -> Callable[..., VolumeRecord]:
    def make(folder: Path, **limits: float) -> VolumeRecord:
        clock = ManualClock()
        return VolumeRecord(
            folder,
            gateway="gw",
            run_id="r1",
            limits=RecordLimits(**{"flush_interval_s": 0.01, "close_timeout_s": 20.0} | limits),  # type: ignore[arg-type]
            clock=clock,
        )

    return make


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_one_row_for_each_volume_that_counts(tmp_path: Path, record: VolumeRecord) -> None:
    looks = looked(seen(b1=50, b2=15), seen(b1=40))

    record.start()
    for rows in looks:
        record.append(rows)
    record.close()

    rows = written(tmp_path)
    assert rows == [row for look in looks for row in look]
    assert [(row.broker_id, row.usable_bytes, row.cached, row.factor) for row in rows] == [
        (1, 50, False, 0.5),
        (2, 15, False, 0.5),
        (1, 40, False, 0.5),
        (2, 15, True, 0.5),  # broker 2 is away, and counts until the validity ends
    ]
    assert (record.rows_written, record.rows_dropped) == (4, 0)


def test_each_broker_has_its_own_factor_where_it_is_asked_for() -> None:
    ((first, second),) = looked(seen(b1=50, b2=15), per_broker=True)

    assert (first.factor, second.factor) == (1.0, 0.5)


def test_a_look_that_fails_is_a_row_without_a_volume() -> None:
    failed = Observation(status=Status.SAFETY_TIMEOUT, reason="broker 2: no answer in 1 s")
    *_, (last,) = looked(seen(b1=15), failed, failed)

    assert (last.status, last.broker_id, last.log_dir, last.usable_bytes) == (
        "SAFETY_TIMEOUT",
        None,
        None,
        None,
    )
    assert last.factor == 0.25  # the fallback: the validity has ended


def test_disks_of_this_machine_are_no_brokers() -> None:
    here = Volume(
        broker_id=-1, log_dir="/d", total_bytes=100, available_bytes=50, device="8:1"
    )  # fmt: skip

    ((row,),) = looked(Observation(status=Status.SUCCESS, volumes=[here]))

    assert (row.broker_id, row.device) == (None, "8:1")


def test_the_columns_are_those_declared(tmp_path: Path, record: VolumeRecord) -> None:
    record.start()
    record.append(looked(seen(b1=50))[0])
    record.close()

    (file,) = (tmp_path / VOLUME_FOLDER).iterdir()
    schema = pq.read_schema(file)
    assert schema.names == [column.name for column in VOLUME_COLUMNS] == list(VolumeRow._fields)
    assert schema.metadata[b"schema_version"] == b"2"


def at_hour(hour: int, count: int = 1) -> Sequence[VolumeRow]:
    (row,) = looked(seen(b1=50))[0]
    return [row._replace(ts_us=hour * HOUR_US)] * count


def test_an_hour_has_a_file_that_is_written_again_and_holds_all_of_it(
    tmp_path: Path, record: VolumeRecord
) -> None:
    record.start()
    for count, hour in enumerate((5, 5, 5, 6), 1):
        record.append(at_hour(hour))
        until(lambda count=count: len(written(tmp_path)) == count)  # type: ignore[misc]  # not only at the end
    record.close()

    files = sorted((tmp_path / VOLUME_FOLDER).iterdir())
    assert [file.name for file in files] == [
        "volumes-gw-r1-1970010105-0.parquet",
        "volumes-gw-r1-1970010106-0.parquet",
    ]
    assert [pq.read_metadata(file).num_rows for file in files] == [3, 1]


def test_a_file_of_many_rows_is_not_written_again(tmp_path: Path, record: VolumeRecord) -> None:
    record.start()
    record.append(at_hour(5, ROWS_MAX))
    record.append(at_hour(5))
    record.close()

    sizes = [
        pq.read_metadata(file).num_rows for file in sorted((tmp_path / VOLUME_FOLDER).iterdir())
    ]
    assert sizes == [ROWS_MAX, 1]


def test_where_the_disk_takes_nothing_rows_wait_and_then_they_are_counted(
    tmp_path: Path, record_into: Callable[..., VolumeRecord], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "record").write_text("a file where the folder should be")
    record = record_into(tmp_path / "record")

    record.start()
    record.append(at_hour(5, ROWS_MAX))
    record.append(at_hour(5, ROWS_MAX))
    record.append(at_hour(5))
    until(lambda: record.rows_dropped == 1)
    (tmp_path / "record").unlink()
    record.close()

    assert len(written(tmp_path / "record")) == 2 * ROWS_MAX
    said = [entry.getMessage() for entry in caplog.records]
    assert [text.partition(":")[0] for text in said] == [
        "looks at the volumes are not recorded",
        "looks at the volumes are recorded again",
    ]


def test_old_files_go_and_the_newest_stays(
    tmp_path: Path, record_into: Callable[..., VolumeRecord]
) -> None:
    folder = tmp_path / VOLUME_FOLDER
    folder.mkdir()
    for name in ("volumes-gw-r0-1970010100-0.parquet", "somebody-elses.parquet"):
        (folder / name).write_bytes(b"x" * 1000)
    record = record_into(tmp_path, folder_bytes_max=1)

    record.start()
    record.append(at_hour(5))
    record.close()

    assert sorted(path.name for path in folder.iterdir()) == [
        "somebody-elses.parquet",
        "volumes-gw-r1-1970010105-0.parquet",
    ]


def test_readers_of_decisions_pass_over_them(
    tmp_path: Path, record: VolumeRecord, make_recorder, make_memo
) -> None:
    record.start()
    record.append(at_hour(5))
    record.close()
    recorder = make_recorder()
    recorder.start()
    recorder.append(make_memo(), recorder.next_seq(), 1, 1.0, 0, 0, 0)
    recorder.close()

    found = find_events([tmp_path])

    assert (found.rows, found.bad) == (1, ())
    assert pq.read_table(tmp_path).num_rows == 1  # Arrow by itself, too
