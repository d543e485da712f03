"""``kvota forecast`` as people and programs see it."""

import json
import re
from pathlib import Path

import pytest
from tests.json_page import not_on_the_page
from tests.looks import TOTAL_BYTES, write_looks

from kvota.app.cli.main import main
from kvota.volumes.settings import ADMIN_PREFIXES, HARD_RATIO, SOFT_RATIO


def config(folder: Path) -> str:
    (folder / "quotas.toml").write_text("")
    path = folder / "gateway.toml"
    path.write_text(
        '[upstream]\nbootstrap_servers = ["127.0.0.1:9"]\n[kafka]\n'
        f'"{ADMIN_PREFIXES[0]}bootstrap.servers" = "127.0.0.1:9"\n'
        f'"{HARD_RATIO[0]}" = 0.3\n"{SOFT_RATIO[0]}" = 0.5\n'
    )
    return str(path)


def test_each_limit_has_its_time_and_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--events", str(write_looks(tmp_path)), "-c", config(tmp_path)]

    code = main(["forecast", *places, "--horizon", "20d", "--output", "json"])

    said = json.loads(capsys.readouterr().out)
    soft, hard, full = said["limits"]
    assert code == 1  # two are more likely reached than not
    assert [each["limit_kind"] for each in (soft, hard, full)] == ["soft", "hard", "full"]
    assert soft["reached_p10_h"] < soft["reached_p50_h"] < soft["reached_p90_h"]
    assert soft["reached_p50_h"] == pytest.approx(100, abs=5)
    assert hard["reached_p50_h"] == pytest.approx(300, abs=20)
    assert (full["reached_p50_h"], full["reached_ratio"]) == (None, 0.0)
    assert full["limit_bytes"] == TOTAL_BYTES


def test_a_screen_has_the_same_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["forecast", "--events", str(write_looks(tmp_path)), "--horizon", "40d"])

    said = capsys.readouterr().out
    assert code == 1
    assert "full" in said
    assert "1.00 TB" in said
    days = re.search(r"full +([0-9.]+) d  \(([0-9.]+) d to ([0-9.]+) d\)", said)
    assert days is not None
    middle, early, late = map(float, days.groups())
    assert 23 < early < middle < late < 28


def test_nothing_within_the_horizon_is_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["forecast", "--events", str(write_looks(tmp_path))])

    assert code == 0
    assert "over 3 d" in capsys.readouterr().out


def test_directories_on_one_device_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(
        [
            "forecast",
            "--events",
            str(write_looks(tmp_path, log_dirs=("/a", "/b"))),
            "--output",
            "json",
        ]
    )

    said = json.loads(capsys.readouterr().out)
    assert not_on_the_page(said, "forecast") == set()
    (only,) = said["limits"]
    assert only["log_dirs"] == ["/a", "/b"]


def test_a_short_history_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["forecast", "--events", str(write_looks(tmp_path, hours=50))])

    said = capsys.readouterr()
    assert "short" in said.out
    assert "less than 72 h" in said.err


def test_the_same_record_gives_the_same_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(write_looks(tmp_path))
    said = []
    for _ in range(2):
        main(["forecast", "--events", place, "--horizon", "20d", "--output", "json"])
        said.append(capsys.readouterr().out)

    assert said[0] == said[1]


def test_a_record_without_looks_is_a_negative_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["forecast", "--events", str(tmp_path)]) == 1
    assert "no two looks" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--by", "user"], "only with --tenants"),
        (["--master", "local[1]"], "only with --tenants or --save"),
        (["--max-bad", "1", "--bad-file", "x"], "--max-bad, --bad-file: only with --tenants"),
        (["--keep-events", "x"], "--keep-events: only with --tenants"),
        (["--save", ""], "names no place"),
        (["--tenants", "-c", "gateway.toml"], "limits of volumes"),
    ],
    ids=["by", "master", "bad", "keep", "save", "config"],
)
def test_what_does_nothing_is_refused(
    tmp_path: Path, words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["forecast", "--events", str(tmp_path), *words]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("text", ["91d", "0s", "soon"])
def test_a_horizon_that_is_none_is_refused(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["forecast", "--events", str(tmp_path), "--horizon", text])

    assert ended.value.code == 2
    assert f'"{text}" is not' in capsys.readouterr().err
