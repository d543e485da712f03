"""Files of a table: what is found, and rows of texts whatever stands in them."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kvota.model.errors import NegativeError, UsageError
from kvota.pipeline.sources.any_table import parts_of, unusable
from kvota.pipeline.sources.table_files import (
    ends_of,
    find_table_files,
    last_row,
    text_rows,
)
from kvota.pipeline.sources.table_mapping import TableMapping

HEADER = "at,who,n\n"


def refusal(place: Path) -> str:
    with pytest.raises(UsageError) as refused:
        find_table_files(place)
    return str(refused.value)


def cells_in(path: Path) -> list[object]:
    return [row.cells for row in text_rows(path)]


def test_rows_of_csv(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbfat, who ,n\r\n1,"a\nb",2\r\n\r\n3,\xff,4\n5,6\n7,"x"y,8\n9,z,10')

    rows = [*text_rows(path)]

    assert [row.cells for row in rows] == [
        {"at": "1", "who": "a\nb", "n": "2"},
        {"at": "3", "who": "\\xff", "n": "4"},
        "it has 2 columns, the header 3",
        "its quotes do not match, or it is too long (',' expected after '\"')",
        {"at": "9", "who": "z", "n": "10"},
    ]
    content = path.read_bytes()
    assert [content[row.offset :][:2] for row in rows] == [b"1,", b"3,", b"5,", b"7,", b"9,"]


def test_other_delimiters(tmp_path: Path) -> None:
    for delimiter in ";\t|":
        path = tmp_path / "t.csv"
        path.write_text(f"at{delimiter}n\n1{delimiter}2,5\n")
        assert cells_in(path) == [{"at": "1", "n": "2,5"}]


def test_a_quote_that_is_never_closed_loses_no_row_silently(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEADER + '1,"a,2\n' + "3,b,4\n" * 5)

    (row,) = text_rows(path)

    assert "quotes" in str(row.cells)
    assert row.lines == 6


def test_lines_of_csv_and_json_are_bounded(tmp_path: Path) -> None:
    too_long = "x" * (17 << 20)
    (tmp_path / "t.csv").write_text(f"{HEADER}1,{too_long},2\n3,b,4\n")
    (tmp_path / "t.jsonl").write_text(f'{{"a":"{too_long}"}}\n{{"a":1}}\n')

    assert cells_in(tmp_path / "t.csv")[0] == "it is longer than 16 MiB"
    assert cells_in(tmp_path / "t.csv")[1:] == [{"at": "3", "who": "b", "n": "4"}]
    assert cells_in(tmp_path / "t.jsonl") == ["it is longer than 16 MiB", {"a": 1}]


def test_rows_of_json(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    lines = [
        b'{"a":1,"b":"\xff"}',
        b"",
        b"[1]",
        b"{",
        b"17",
        b'{"a":NaN,"\xfe":"\\ud800"}',
        b"[" * 9999,
    ]
    path.write_bytes(gzip.compress(b"\n".join(lines)))

    found = cells_in(path)

    assert found[0] == {"a": 1, "b": "\\xff"}
    assert found[1] == "it is a list; each line has to be one object"
    assert str(found[2]).startswith("it is no JSON")
    assert found[3] == "it is no object of JSON"
    assert json.dumps(found[4]) == json.dumps({"a": float("nan"), "\\xfe": "\\ud800"})
    assert isinstance(found[5], str)


def test_parts_of_json_lines_have_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvota.pipeline.sources.any_table._TASK_BYTES", 50)
    path = tmp_path / "t.jsonl"
    path.write_text("".join(f'{{"n":{number}}}\n' for number in range(100)))

    parts = [*parts_of(find_table_files(path).files[0])]

    assert len(parts) > 10
    rows = [row.cells for part in parts for row in text_rows(path, part.start, part.end)]
    assert rows == [{"n": number} for number in range(100)]


def test_a_folder_of_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvota.pipeline.sources.any_table._TASK_ROWS", 30)
    (tmp_path / "below").mkdir()
    table = pa.table({"at": list(range(100)), "who": ["a"] * 100})
    pq.write_table(table, tmp_path / "below/1.parquet", row_group_size=20)
    pq.write_table(table.slice(0, 7), tmp_path / "2.parquet")
    for name in ("_SUCCESS", ".1.parquet.crc", ".hidden.parquet", "notes.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "2.parquet").read_bytes()[:-20])

    found = find_table_files(tmp_path)

    assert [file.path.name for file in found.files] == ["2.parquet", "1.parquet"]
    assert found.rows == 107
    assert [path.name for path, _ in found.bad] == ["cut.parquet"]
    assert [(part.groups, part.first_row, part.rows) for part in parts_of(found.files[1])] == [
        ((0, 1), 0, 40),
        ((2, 3), 40, 40),
        ((4,), 80, 20),
    ]
    assert ends_of(found.files[1], "at") == [0, 19, 20, 39, 40, 59, 60, 79, 80, 99]
    assert ends_of(found.files[1], "who") != []
    assert ends_of(found.files[1], "nothing") == []


def test_the_last_row_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(HEADER + "1,a,2\n" * 20_000 + "7,z,8\n\n")
    (tmp_path / "t.jsonl").write_text('{"at":1}\n{"at":9}\n')
    (tmp_path / "odd.csv").write_text(HEADER + '1,"a\nb",2\n')

    assert last_row(tmp_path / "t.csv") == {"at": "7", "who": "z", "n": "8"}
    assert last_row(tmp_path / "t.jsonl") == {"at": 9}
    assert last_row(tmp_path / "odd.csv") is None
    about = find_table_files(tmp_path / "t.csv").files[0]
    assert not about.is_exact
    assert 19_000 < about.rows < 21_000


def test_what_is_no_table(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "nothing")
    assert "has no file that ends with .parquet" in refusal(tmp_path)
    (tmp_path / "t.txt").write_text("x")
    assert "what is it?" in refusal(tmp_path / "t.txt")
    (tmp_path / "blank.csv").write_text("\n\n")
    assert "it has no header" in refusal(tmp_path / "blank.csv")
    (tmp_path / "blank.csv").unlink()
    (tmp_path / "list.json").write_text('[{"a":1}]')
    assert "each line has to be one object" in refusal(tmp_path / "list.json")
    (tmp_path / "t.jsonl").write_text('{"a":1}\n')
    (tmp_path / "other.csv").write_text(HEADER)
    assert "files of CSV and of JSON lines" in refusal(tmp_path)


def test_files_without_a_row(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text("")
    with pytest.raises(NegativeError, match="has no row"):
        find_table_files(tmp_path)

    (tmp_path / "b.jsonl").write_text('{"a":1}\n')

    assert find_table_files(tmp_path).typical.path.name == "b.jsonl"


def test_a_file_that_is_not_as_the_others_is_lost_with_a_reason(tmp_path: Path) -> None:
    for name, table in {
        "1": {"at": [1], "who": ["a"]},
        "2": {"at": [1]},
        "3": {"at": [True], "who": ["a"]},
    }.items():
        pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
    mapping = TableMapping({"ts": "at", "user": "who"})

    told = [unusable(file, mapping) for file in find_table_files(tmp_path).files]

    assert told[0] == []
    assert told[1] == ['user: the table has no column "who". It has at']
    assert told[2] == [
        'ts: the column "at" is of type bool; it has to be a timestamp, a number or a text'
    ]


def test_a_table_whose_files_may_not_count_any_more(tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": [1]}), tmp_path / "1.parquet")
    (tmp_path / "_delta_log").mkdir()

    assert f"name it as delta:{tmp_path}" in refusal(tmp_path)
