"""What ``kvota report`` refuses before it starts Spark."""

from pathlib import Path

import pytest

from kvota.app.cli.main import main


def test_where_nothing_can_be_written_is_said_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "no" / "report.html"

    assert main(["report", "--sample", "-o", str(out)]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_so_many_plots_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "report.html")

    assert main(["report", "--sample", "-o", out, "--plots", "201"]) == 2
    assert "--plots 201" in capsys.readouterr().err


def test_one_record_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["report", "--sample", "--events", "record"])

    assert ended.value.code == 2
    assert "not allowed with" in capsys.readouterr().err


def test_a_faulty_plan_is_said_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("version: 1\nquotas: 5\n")

    assert main(["report", "--sample", "-o", str(tmp_path / "r.html"), "--plan", str(plan)]) == 2
    assert "plan.yaml" in capsys.readouterr().err
