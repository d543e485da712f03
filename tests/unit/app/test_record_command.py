"""``kvota record`` merges, checks and shows a record, for people and for programs."""

import errno
import json
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.json_page import keys_of
from tests.unit.record.record_files import LATER_US, ROWS, in_order, put_record, rows_of

from kvota.app.cli.main import main
from kvota.model.units import format_moment
from kvota.record import check as check_module
from kvota.record.compact import compact
from kvota.record.event_file import EventFile
from kvota.testing.recorded_traffic import START_US


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # Decisions of long ago: their hour is over.
    shift_us = 10**15
    return put_record(
        tmp_path / "record", [(row[0] - shift_us, *row[1:]) for row in ROWS], each=100
    )


def test_compact_says_what_it_did_and_changes_no_decision(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rows_of(folder)

    code = main(["record", "compact", "--events", str(folder)])

    said = capsys.readouterr()
    assert code == 0
    assert said.out.startswith(f"{folder.resolve()}: 11 files became 1, 1,100 decisions, ")
    assert said.err.count("\n") == 1
    assert rows_of(folder) == in_order(before)


def test_a_second_compact_has_nothing_to_do(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["record", "compact", "--events", str(folder)])
    capsys.readouterr()

    code = main(["record", "compact", "--events", str(folder), "--output", "json"])

    (of_folder,) = json.loads(capsys.readouterr().out)["folders"]
    assert code == 0
    assert of_folder == {
        "folder": str(folder.resolve()),
        "merged": [],
        "left": [],
        "waiting_files": 0,
        "removed_files": 0,
    }


def test_show_says_runs_days_and_bytes_per_decision(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["record", "show", "--events", str(folder)])

    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert lines[0].startswith("1,100 decisions from 1998-")
    assert lines[0].endswith(" B a decision")
    assert [line.split()[0] for line in lines[3:5]] == ["gateway", "gateway-1"]
    assert any("is there" in line for line in lines)
    assert max(map(len, lines[2:])) <= 80


def test_show_for_programs_has_every_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["record", "show", "--events", str(folder), "--output", "json"])

    shown = json.loads(capsys.readouterr().out)
    assert shown["schema"] == 2
    assert shown["decisions"] == 1100
    of_runs = [(run["decisions"], run["missing_decisions"]) for run in shown["runs"]]
    assert of_runs == [(300, 0), (800, 0)]
    assert len(shown["files"]) == 11
    assert sum(file["decisions"] for file in shown["files"]) == 1100


def test_check_ends_with_1_where_rows_are_missing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", "check", "--events", str(folder)]) == 0
    sorted(folder.glob("*.parquet"))[5].unlink()

    code = main(["record", "check", "--events", str(folder)])

    lines = capsys.readouterr().out.splitlines()
    assert code == 1
    assert lines[0] == "11 files, 1,100 decisions: sound"
    assert "100 decisions missing, seq " in lines[1]
    assert lines[-1] == "10 files, 1,000 decisions: not sound (100 missing)"


def test_a_period_of_the_record_can_be_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["record", "show", "--events", str(folder), "--since", "2020-01-01", "--output", "json"])

    assert json.loads(capsys.readouterr().out)["decisions"] == 0


def test_a_period_without_any_decision_is_shown_as_such(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["record", "show", "--events", str(folder), "--since", "2020-01-01"])

    assert (code, capsys.readouterr().out) == (0, "0 decisions, 0 files\n")


def test_a_part_of_a_whole_record_lacks_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    minute_us = 60_000_000
    rows = [(START_US + number * minute_us, *row[1:]) for number, row in enumerate(ROWS[:120])]
    # The clock is set back for a while: these are of a time before the others of their run.
    rows[60:80] = [(row[0] - 300 * minute_us, *row[1:]) for row in rows[60:80]]
    put_record(tmp_path, rows, each=20)
    since = ("--since", format_moment(START_US + 30 * minute_us, between="T"))

    checked = main(["record", "check", "--events", str(tmp_path), *since])
    lines = capsys.readouterr().out.splitlines()
    main(["record", "show", "--events", str(tmp_path), *since])
    shown = capsys.readouterr().out

    assert (checked, lines) == (0, ["4 files, 80 decisions: sound"])
    assert "is there" in shown
    assert "was removed" not in shown
    # What is missing is still told.
    next(tmp_path.glob("*-000000000080-*.parquet")).unlink()
    assert main(["record", "check", "--events", str(tmp_path), *since]) == 1
    assert "20 decisions missing, seq 80 to 99" in capsys.readouterr().out


def test_files_that_are_merged_while_they_are_checked_are_no_fault(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, merged = check_module._read, []

    def merging_first(file: EventFile) -> object:
        if not merged:
            merged.append(compact(folder, now_us=LATER_US, every_hour=True))
        return read(file)

    monkeypatch.setattr(check_module, "_THREADS", 1)
    monkeypatch.setattr(check_module, "_read", merging_first)

    code = main(["record", "check", "--events", str(folder)])

    said = capsys.readouterr()
    assert (code, said.out) == (0, "1 file, 1,100 decisions: sound\n")
    assert "the record changed while it was read; it is read again" in said.err


def test_a_file_that_goes_for_good_while_it_is_checked_is_missing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read, lost = check_module._read, sorted(folder.glob("*.parquet"))[5]

    def losing_one(file: EventFile) -> object:
        lost.unlink(missing_ok=True)
        return read(file)

    monkeypatch.setattr(check_module, "_THREADS", 1)
    monkeypatch.setattr(check_module, "_read", losing_one)

    code = main(["record", "check", "--events", str(folder)])

    lines = capsys.readouterr().out.splitlines()
    assert code == 1
    assert "100 decisions missing, seq " in lines[0]
    assert lines[-1] == "10 files, 1,000 decisions: not sound (100 missing)"


@pytest.mark.parametrize("action", ["compact", "check", "show"])
def test_a_wrong_folder_is_named(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["record", action, "--events", str(tmp_path / "nowhere")]) == 2
    assert "does not exist. Name the folder" in capsys.readouterr().err


def test_files_that_cannot_be_merged_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "events-half.parquet").write_bytes(b"PAR1")

    code = main(["record", "compact", "--events", str(folder)])

    assert code == 0
    assert "events-half.parquet: not a complete Parquet file" in capsys.readouterr().err
    assert (folder / "events-half.parquet").exists()


def test_check_says_which_files_have_other_columns(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    *_, fourth, _ = files = sorted(folder.iterdir())[:5]
    for file in files:
        table = pq.read_table(file)
        pq.write_table(table.append_column("colour", pa.nulls(table.num_rows)), file)

    code = main(["record", "check", "--events", str(folder)])
    said = capsys.readouterr().out
    main(["record", "check", "--events", str(folder), "--output", "json"])
    read = json.loads(capsys.readouterr().out)

    assert code == 0
    assert f"note: {files[0]}: its columns are not those of the events table" in said
    assert str(fourth) not in said
    assert "note: the same of 2 more files" in said
    assert read["other_columns_files"] == [str(file) for file in files]


def test_the_page_on_the_record_names_every_key(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "record.md").read_text()
    (folder / "events-half.parquet").write_bytes(b"PAR1")
    sorted(folder.glob("*.parquet"))[5].unlink()

    for action in ("check", "show", "compact"):
        main(["record", action, "--events", str(folder), "--output", "json"])
        (line,) = (line for line in page.splitlines() if line.startswith(f"| `record {action}` |"))
        keys = keys_of(json.loads(capsys.readouterr().out))
        assert {f"`{key}`" for key in keys} == set(re.findall("`[a-z_]+`", line)) | {"`schema`"}, (
            action
        )


@pytest.mark.parametrize("action", ["show", "check", "compact"])
def test_an_empty_place_is_no_folder(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["record", action, "--events", ""])

    assert ended.value.code == 2
    assert '"" names nothing; is a variable empty? This folder is .' in capsys.readouterr().err


def test_a_period_without_a_decision_is_not_called_sound(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["record", "check", "--events", str(folder), "--since", "2020-01-01"])

    said = capsys.readouterr()
    assert (code, said.out) == (1, "")
    assert "the record has no decision of that time" in said.err


def test_one_file_is_no_folder_to_merge(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(folder.iterdir())

    code = main(["record", "compact", "--every-hour", "--events", str(before[0])])

    assert code == 2
    assert f"Name the folder: --events {folder}" in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before


def test_a_pipe_is_named_and_not_waited_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = folder / "events-g-r-000000000001-1.parquet"
    os.mkfifo(pipe)

    for action in ("show", "check", "compact"):
        main(["record", action, "--events", str(folder)])
        assert f"{pipe}: is no file, but a pipe" in "".join(capsys.readouterr())


def test_a_folder_below_that_may_not_be_read_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = folder / "closed"
    closed.mkdir()
    scandir = os.scandir

    def refusing(path: str) -> object:
        if Path(path) == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)

    code = main(["record", "check", "--events", str(folder)])

    said = capsys.readouterr()
    assert (code, said.out) == (3, "")
    assert f"{closed}: Permission denied. Its files are a part of the record" in said.err
