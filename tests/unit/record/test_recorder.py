"""From append to Parquet, also when the disk refuses, hangs or the process dies."""

import logging
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.model.decision_sink import DecisionSink
from kvota.model.errors import UsageError
from kvota.record.event_files import lock_path
from kvota.record.record_limits import RecordLimits
from kvota.record.recorder import Recorder


def append(sink: DecisionSink, memo, *, rows: int) -> None:
    for _ in range(rows):
        sink.append(memo, sink.next_seq(), 1_790_000_000_000_000, 1.0, 0, -1, 0)


def test_what_was_appended_is_in_the_files_after_close(
    make_recorder, make_memo, rows_in, tmp_path: Path
) -> None:
    recorder = make_recorder(buffer_rows=1000)
    recorder.start()

    append(recorder, make_memo(), rows=137)
    recorder.close()

    assert [row["seq"] for row in rows_in(tmp_path)] == list(range(137))
    status = recorder.status()
    assert (status.rows_written, status.rows_dropped, status.last_error) == (137, 0, None)
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert (status.files, status.bytes) == (len(sizes), sum(sizes))


def test_files_are_named_after_gateway_run_and_first_row(
    make_recorder, make_memo, tmp_path: Path
) -> None:
    recorder = make_recorder()
    recorder.start()

    append(recorder, make_memo(), rows=25)
    recorder.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "events-gw-run-000000000000-0.parquet",
        "events-gw-run-000000000010-1.parquet",
        "events-gw-run-000000000020-2.parquet",
    ]


def test_a_few_rows_are_written_after_the_interval_without_close(
    make_recorder, make_memo, rows_in, eventually, tmp_path: Path
) -> None:
    recorder = make_recorder(flush_interval_s=0.02)
    recorder.start()
    append(recorder, make_memo(), rows=3)

    eventually(lambda: recorder.status().rows_written == 3)

    assert [row["seq"] for row in rows_in(tmp_path)] == [0, 1, 2]


def test_rows_written_early_are_not_written_again_when_their_batch_is_full(
    make_recorder, make_memo, rows_in, eventually, tmp_path: Path
) -> None:
    recorder = make_recorder(flush_interval_s=0.02)
    recorder.start()
    append(recorder, make_memo(), rows=3)
    eventually(lambda: recorder.status().rows_written == 3)

    append(recorder, make_memo(), rows=20)
    recorder.close()

    assert [row["seq"] for row in rows_in(tmp_path)] == list(range(23))


def test_no_rows_make_no_file(make_recorder, tmp_path: Path) -> None:
    recorder = make_recorder()
    recorder.start()

    recorder.close()

    assert list(tmp_path.iterdir()) == []


def test_rows_that_fit_in_no_buffer_are_counted_exactly(
    make_recorder, make_memo, rows_in, tmp_path: Path
) -> None:
    recorder = make_recorder(flush_rows=10, buffer_rows=40)

    append(recorder, make_memo(), rows=1000)  # the writer has not started: nothing becomes free
    recorder.start()
    recorder.close()

    assert recorder.status().rows_dropped == 960
    assert [row["seq"] for row in rows_in(tmp_path)] == list(range(40))


def test_rows_after_close_are_counted_as_dropped(make_recorder, make_memo) -> None:
    recorder = make_recorder()
    recorder.start()
    recorder.close()

    append(recorder, make_memo(), rows=5)
    recorder.close()

    assert recorder.status().rows_dropped == 5


@settings(max_examples=25, deadline=None)
@given(
    bursts=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 12)), max_size=12),
    flush_rows=st.integers(1, 9),
)
def test_any_sequence_of_appends_comes_back_each_seq_once(
    make_memo, rows_in, clock, bursts: list[tuple[int, int]], flush_rows: int
) -> None:
    memos = [make_memo(user=f"user-{number}", connection=number) for number in range(5)]
    expected = []
    with tempfile.TemporaryDirectory() as folder:
        limits = RecordLimits(
            flush_rows=flush_rows, buffer_rows=500, flush_interval_s=0.001, close_timeout_s=60.0
        )
        recorder = Recorder(Path(folder), gateway="gw", run_id="run", limits=limits, clock=clock)
        recorder.start()

        for number, rows in bursts:
            for _ in range(rows):
                seq = recorder.next_seq()
                expected.append((seq, number, f"user-{number}", float(seq % 7)))
                recorder.append(memos[number], seq, 5, float(seq % 7), 0, -1, 0)
        recorder.close()

        found = rows_in(Path(folder))
    assert recorder.status().rows_dropped == 0
    assert [(r["seq"], r["connection"], r["user"], r["value"]) for r in found] == expected


def test_a_full_disk_loses_nothing_that_memory_can_hold(
    make_recorder, make_memo, rows_in, eventually, tmp_path: Path, caplog
) -> None:
    caplog.set_level(logging.INFO, "kvota")
    recorder = make_recorder()
    recorder.start()
    # The kernel's own full disk; the link goes when the failed file is removed.
    (tmp_path / "events-gw-run-000000000000-0.parquet.tmp").symlink_to("/dev/full")

    append(recorder, make_memo(), rows=15)
    eventually(lambda: recorder.status().rows_written == 10)
    recorder.close()

    assert [row["seq"] for row in rows_in(tmp_path)] == list(range(15))
    assert recorder.status().last_error == "No space left on device"
    assert recorder.status().rows_dropped == 0
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    assert "No space left on device" in caplog.messages[0]
    assert "recording again" in caplog.messages[1]


def test_when_it_records_again_there_is_room_and_each_dropped_row_has_been_said(
    make_recorder, make_memo, eventually, tmp_path: Path, caplog
) -> None:
    """The writer's thread says it; a row that comes in that moment finds room."""
    # All rows are there before the writer tries again.
    recorder = make_recorder(flush_rows=10, buffer_rows=40, retry_pause_s=1.0)
    memo = make_memo()
    recorder.start()
    (tmp_path / "events-gw-run-000000000000-0.parquet.tmp").symlink_to("/dev/full")

    class Meanwhile(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "recording again" in record.msg:
                append(recorder, memo, rows=1)

    logger, meanwhile = logging.getLogger("kvota.record.row_writer"), Meanwhile()
    logger.addHandler(meanwhile)
    try:
        append(recorder, memo, rows=1_000)
        eventually(lambda: recorder.status().rows_written == 40)
    finally:
        logger.removeHandler(meanwhile)
    recorder.close()

    status = recorder.status()
    assert (status.rows_written, status.rows_dropped) == (41, 960)
    assert [line.rpartition(": ")[2] for line in caplog.messages[1:]] == ["960 rows were dropped"]


def test_rows_that_are_dropped_while_it_is_behind_are_said_when_it_keeps_up_again(
    make_recorder, make_memo, eventually, caplog
) -> None:
    recorder, memo = make_recorder(flush_rows=10, buffer_rows=40), make_memo()
    append(recorder, memo, rows=55)  # the writer has not started: nothing becomes free
    recorder.start()
    eventually(lambda: recorder.status().rows_written == 40)

    append(recorder, memo, rows=10)
    recorder.close()

    said = [line.rpartition(": ")[2].rpartition("; ")[2] for line in caplog.messages]
    assert said == ["15 rows were dropped so far", "0 more rows were dropped"]


@pytest.mark.parametrize("gone", ["events", "."], ids=["the folder", "its parent, too"])
def test_a_folder_that_is_removed_is_made_again(  # noqa: PLR0917  (fixtures)
    make_recorder, make_memo, rows_in, eventually, tmp_path: Path, caplog, gone: str
) -> None:
    folder = tmp_path / "record" / "events"
    recorder = make_recorder(folder)
    recorder.start()
    append(recorder, make_memo(), rows=25)
    eventually(lambda: recorder.status().rows_written == 20)

    shutil.rmtree(folder.parent / gone)
    append(recorder, make_memo(), rows=10)
    eventually(lambda: recorder.status().rows_written == 30)
    assert lock_path(folder, "gw").read_text() == f"{os.getpid()}\n"  # held again
    recorder.close()

    assert [row["seq"] for row in rows_in(folder)] == list(range(20, 35))
    status = recorder.status()
    sizes = [path.stat().st_size for path in folder.iterdir()]
    assert (status.rows_written, status.rows_dropped) == (35, 0)
    assert (status.files, status.bytes) == (len(sizes), sum(sizes))
    assert caplog.messages == [
        f"the record folder was gone and has been made again: {folder}; what was in it is not in it now"
    ]


def _a_file(folder: Path) -> None:
    folder.write_text("in the way")


def _a_link_to_nothing(folder: Path) -> None:
    folder.symlink_to(folder.parent / "nothing")


def _a_folder_in_a_file(folder: Path) -> None:
    folder.parent.rmdir()
    folder.parent.write_text("in the way")


@pytest.mark.parametrize(
    ("put_in_its_place", "error"),
    [
        (_a_file, "Not a directory"),
        (_a_link_to_nothing, "File exists"),
        (_a_folder_in_a_file, "Not a directory"),
    ],
)
def test_what_cannot_be_written_waits_in_bounded_memory_and_the_rest_is_counted(  # noqa: PLR0917
    make_recorder, make_memo, rows_in, eventually, tmp_path: Path, caplog, put_in_its_place, error
) -> None:
    folder = tmp_path / "record" / "events"
    recorder = make_recorder(folder, flush_rows=10, buffer_rows=40)
    recorder.start()
    shutil.rmtree(folder)
    put_in_its_place(folder)

    append(recorder, make_memo(), rows=1_000)
    eventually(lambda: recorder.status().last_error is not None)
    assert recorder.status().last_error == error
    assert not recorder.status().recording
    in_the_way = folder if folder.is_symlink() or folder.is_file() else folder.parent
    in_the_way.unlink()
    eventually(lambda: recorder.status().recording)
    recorder.close()

    status = recorder.status()
    assert (status.rows_written, status.rows_dropped) == (40, 960)
    assert [row["seq"] for row in rows_in(folder)] == list(range(40))
    assert f"recording stops: {folder}: {error}" in caplog.messages[0]
    assert "recording again" in caplog.text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_becomes_read_only_is_said_and_used_again(
    make_recorder, make_memo, rows_in, eventually, tmp_path: Path, caplog
) -> None:
    recorder = make_recorder()
    recorder.start()
    tmp_path.chmod(0o500)

    append(recorder, make_memo(), rows=15)
    eventually(lambda: recorder.status().last_error == "Permission denied")
    tmp_path.chmod(0o700)
    eventually(lambda: recorder.status().rows_written == 10)
    recorder.close()

    assert [row["seq"] for row in rows_in(tmp_path)] == list(range(15))


def test_a_disk_that_hangs_holds_up_neither_append_nor_close(
    make_recorder, make_memo, tmp_path: Path, caplog
) -> None:
    recorder = make_recorder(flush_rows=10, buffer_rows=40, close_timeout_s=0.1)
    recorder.start()
    pipe = tmp_path / "events-gw-run-000000000000-0.parquet.tmp"
    os.mkfifo(pipe)  # opening it for writing waits until somebody reads

    append(recorder, make_memo(), rows=1000)
    recorder.close()

    assert recorder.status().rows_dropped == 960
    assert recorder.status().rows_written == 0
    assert "did not take them within 0.1 s" in caplog.text
    with pipe.open("rb"):
        writer = next(thread for thread in threading.enumerate() if thread.name == "kvota-record")
        writer.join()


def test_rows_that_no_file_can_hold_are_counted_and_the_next_ones_written(
    make_recorder, make_memo, rows_in, eventually, tmp_path: Path
) -> None:
    recorder = make_recorder(flush_rows=1, buffer_rows=4)
    recorder.start()
    append(recorder, make_memo(samples=40_000), rows=1)

    append(recorder, make_memo(), rows=1)
    recorder.close()

    assert recorder.status().rows_dropped == 1
    assert "40000" in recorder.status().last_error
    assert [row["seq"] for row in rows_in(tmp_path)] == [1]


def test_a_status_tells_whether_it_records(make_recorder, tmp_path: Path) -> None:
    recorder = make_recorder()
    before = recorder.status().recording
    recorder.start()
    running = recorder.status().recording

    recorder.close()

    assert (before, running, recorder.status().recording) == (False, True, False)


def test_a_folder_that_cannot_be_made_is_the_operators_to_mend(
    make_recorder, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    recorder = make_recorder(tmp_path / "file" / "events")

    with pytest.raises(UsageError, match=r"file/events cannot be used: Not a directory\. Name a"):
        recorder.start()


@pytest.mark.parametrize("name", ["", "a/b", "../x", "-a", "a b", "é", "x" * 65])
def test_a_gateway_name_that_is_no_part_of_a_file_name_is_refused(
    name: str, tmp_path: Path, clock
) -> None:
    with pytest.raises(UsageError, match=r"gateway .* is part of file names"):
        Recorder(tmp_path, gateway=name, run_id="r", limits=RecordLimits(), clock=clock)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"flush_rows": 0}, "flush_rows: 0 is below 1"),
        ({"flush_rows": 10, "buffer_rows": 19}, "write at least 20"),
        ({"flush_interval_s": 0}, "flush_interval_s: 0 is not above 0"),
        ({"age_s_max": float("nan")}, "age_s_max: nan is not above 0"),
    ],
)
def test_limits_under_which_nothing_works_are_refused(
    limits: dict[str, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        RecordLimits(**limits)


def test_every_row_is_shown_before_it_is_written(tmp_path: Path, clock, make_memo, rows_in) -> None:
    shown: list[int] = []

    class Observer:
        def take(self, rows, memos) -> None:
            shown.extend(rows["seq"].tolist())

        def look(self, now_ms: int) -> None: ...

    limits = RecordLimits(flush_rows=10, buffer_rows=40)
    recorder = Recorder(
        tmp_path, gateway="gw", run_id="run", limits=limits, clock=clock, observer=Observer()
    )
    recorder.start()
    append(recorder, make_memo(), rows=35)
    recorder.close()

    assert shown == [row["seq"] for row in rows_in(tmp_path)] == list(range(35))


def test_thin_traffic_is_written_in_fewer_files(
    make_recorder, make_memo, rows_in, tmp_path: Path
) -> None:
    recorder = make_recorder(flush_interval_s=0.01, flush_rows=100, buffer_rows=1000)
    recorder.start()
    memo = make_memo()

    begin_s = time.monotonic()
    for _ in range(100):
        append(recorder, memo, rows=1)
        threading.Event().wait(0.01)
    recorder.close()
    elapsed_s = time.monotonic() - begin_s

    # Without the longer intervals there is one for each row or two; with them so many in a second or so.
    assert len(list(tmp_path.glob("*.parquet"))) < 25 * max(1.0, elapsed_s / 1.2)
    assert [row["seq"] for row in rows_in(tmp_path)] == list(range(100))


def test_rows_are_written_in_their_order_although_a_full_batch_is_late(
    tmp_path: Path, clock, make_memo, eventually
) -> None:
    """A kill at any moment leaves the rows up to some number, and none behind a gap."""

    class Slow:
        """Keeps the first full batch for as long as the writer waits for rows, and longer."""

        def take(self, rows, memos) -> None:
            if len(rows) == 10:
                may_go_on.wait(10)

        def look(self, now_ms: int) -> None: ...

    may_go_on = threading.Event()
    limits = RecordLimits(flush_rows=10, buffer_rows=40, flush_interval_s=0.01)
    recorder = Recorder(
        tmp_path, gateway="gw", run_id="run", limits=limits, clock=clock, observer=Slow()
    )
    recorder.start()
    append(recorder, make_memo(), rows=15)
    time.sleep(0.2)  # the writer has looked for rows many times

    before = rows_in_files(tmp_path)
    may_go_on.set()
    eventually(lambda: recorder.status().rows_written == 15)
    recorder.close()

    assert before == []
    assert rows_in_files(tmp_path) == list(range(15))


def rows_in_files(folder: Path) -> list[int]:
    """The numbers of the rows, file by file as they were written."""
    files = sorted(folder.glob("*.parquet"), key=lambda path: int(path.stem.rpartition("-")[2]))
    return [seq for file in files for seq in pq.read_table(file)["seq"].to_pylist()]
