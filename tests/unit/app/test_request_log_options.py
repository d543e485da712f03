"""Options of a request log, refused before Spark starts."""

from pathlib import Path

import pytest
from tests.unit.pipeline.sources.log_text import line

from kvota.app.cli.main import main


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code = main(["usage", *map(str, arguments)])
    said = capsys.readouterr()
    assert code == 2, said.err
    assert said.out == ""
    return said.err


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs/kafka-request.log"
    path.parent.mkdir()
    path.write_text(line() + "\n")
    return path


def test_a_zone_is_asked_for(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "--request-log", log)

    assert "--log-zone, e.g. UTC or Europe/Berlin" in said


def test_a_zone_that_is_none(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert '"Mars" is no time zone' in refusal(capsys, "--request-log", log, "--log-zone", "Mars")


def test_either_a_log_or_events(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["usage", "--request-log", str(log), "--events", str(log.parent)])

    assert left.value.code == 2
    assert "not allowed with" in capsys.readouterr().err


def test_options_of_a_log_without_one(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "--events", log.parent, "--log-zone", "UTC", "--keep-events", "kept")

    assert "--log-zone, --keep-events: only with --request-log or --table" in said


def test_events_are_kept_only_where_nothing_is(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--log-zone", "UTC", "--keep-events", log.parent)

    assert "there is something in it" in refusal(capsys, "--request-log", log, *options)


def test_workers_elsewhere_need_a_folder_that_they_share(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(
        capsys, "--request-log", log, "--log-zone", "UTC", "--master", "spark://somewhere:7077"
    )

    assert "name a folder that all workers share with --keep-events" in said


def test_a_log_of_kafka_2_7(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_text(
        "[2020-11-21 00:42:21,114] DEBUG Completed request:RequestHeader(apiKey=FETCH)\n"
    )

    said = refusal(capsys, "--request-log", log, "--log-zone", "UTC")

    assert "is a request log of Kafka 2.7 or earlier" in said
    assert said.count("\n") == 1
