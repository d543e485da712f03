"""Options of a table, refused before Spark starts."""

from pathlib import Path

import pytest

from kvota.app.cli.main import main

MAP = ("--map", "ts=at,user=who,value=n", "--const", "quota_type=PRODUCE")


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object, command: str = "usage") -> str:
    code = main([command, *map(str, arguments)])
    said = capsys.readouterr()
    assert code == 2, said.err
    assert said.out == ""
    return said.err


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.csv"
    path.write_text("at,who,n\n1795271400,User:alice,5\n1795271401,bob,7\n")
    return path


def test_all_faults_are_told_at_once(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "--table", table, "--map", "ts=att,user=who,vale=n")

    assert 'the table has no column "att". Did you mean "at"?' in said
    assert 'a charge has no "vale". Did you mean "value"?' in said
    assert "value is missing" in said
    assert "quota_type is missing" in said


def test_the_mapping_of_a_table_of_spark_is_checked_before_spark_starts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = refusal(capsys, "--table", "audit.kafka.requests", "--map", "user=who")

    assert "ts is missing" in said


def test_a_place_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (tmp_path / "no.csv", "no.parquet", "no"):
        assert f'"{place}" does not exist' in refusal(capsys, "--table", place, *MAP)


def test_times_without_a_zone(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table.write_text("at,who,n\n2026-11-21 14:30:00,a,5\n")

    assert "name it with --ts-zone" in refusal(capsys, "--table", table, *MAP)


def test_times_in_several_units(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with table.open("a") as out:
        out.write("1795271402000,bob,1\n")

    said = refusal(capsys, "--table", table, *MAP)

    assert 'the column "at" has times in different units' in said


def test_rows_none_of_which_can_be_used(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table.write_text("at,who,n\n1795271400,a,many\n1795271400,b,few\n")

    said = refusal(capsys, "--table", table, *MAP)

    assert "none of the first 2 rows can be used: its value is no number" in said
    assert "value=many" in said


def test_options_of_one_source_for_another(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "--table", table, *MAP, "--log-zone", "UTC")
    assert "--log-zone: only with --request-log" in said
    said = refusal(capsys, "--events", table, *MAP, "--ts-unit", "s")
    assert "--map, --const, --ts-unit: only with" in said
    said = refusal(capsys, "--request-log", table, "--ts-zone", "UTC")
    assert "--ts-zone: only with --table" in said


def test_a_table_is_not_replayed_by_what_was_recorded(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in ("--law", "--rows"):
        said = refusal(capsys, "--table", table, *MAP, option, command="replay")
        assert f"{option}: a table does not say which quota held" in said


def test_workers_elsewhere_need_a_folder_that_they_share(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(capsys, "--table", table, *MAP, "--master", "spark://somewhere:7077")

    assert "name a folder that all workers share with --keep-events" in said
