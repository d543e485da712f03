"""Wrong use of ``kvota usage``, ``replay`` and ``recommend`` is reported before Spark starts."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from tests.json_page import not_on_the_page

from kvota.app.cli.main import main
from kvota.app.cli.replay import _row_json
from kvota.pipeline.law_check import Difference


def wrong(*arguments: str) -> object:
    """The exit code, whether argparse or the command itself refuses."""
    try:
        return main(list(arguments))
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["usage", "--events", "nowhere"], '"nowhere" does not exist. Name the folder'),
        (["replay", "--events", "."], "one of the arguments --law --rows --candidates --factors"),
        (["replay", "--events", ".", "--candidates", "2XB/s"], '"2XB/s" is not a byte rate'),
        (["replay", "--events", ".", "--candidates", "0"], '"0" is not above 0'),
        (["replay", "--events", ".", "--candidates", "5"], '"5" has no unit; write e.g. 5MB/s'),
        (["replay", "--events", ".", "--candidates", "0ids"], '"0ids" is not above 0'),
        (
            ["replay", "--events", ".", "--candidates", "2MB/s,1e3ids"],
            '"1e3ids" is not a byte rate',
        ),
        (["usage", "--events", ".", "--top", "0"], '"0" is not a whole number above 0'),
        (["usage", "--events", ".", "--since", "now"], '"now" is not a time; write e.g. 2026'),
        (
            ["recommend", "--events", ".", "--capacity", "PRODUCE=50MB"],
            '"50MB" is a size, not a byte rate',
        ),
        (
            ["recommend", "--events", ".", "--capacity", "CONTROLLER_MUTATION=50"],
            '"50" has no unit of a rate',
        ),
        (
            [
                *("recommend", "--events", ".", "--capacity", "PRODUCE=1MB/s"),
                *("--capacity", "PRODUCE=2MB/s"),
            ],
            "--capacity: PRODUCE is there twice",
        ),
        (
            [
                *("recommend", "--events", ".", "--capacity", "PRODUCE=1MB/s"),
                *("--headroom", "0.2"),
            ],
            '"0.2" is a percentage below 1; write 20% or, if that is meant, 0.2%',
        ),
        (
            ["replay", "--events", ".", "--factors", "1,-2"],
            '"1,-2" is not a list of factors above 0',
        ),
        (
            ["replay", "--events", ".", "--law", "--window", "11"],
            '"11" is not a window, e.g. 11x1s',
        ),
        (
            ["replay", "--events", ".", "--law", "--by", "counter"],
            "--by: --law replays every row by",
        ),
        (["replay", "--events", ".", "--law", "--mode", "open"], "--mode: --law replays every row"),
        (["replay", "--events", ".", "--rows", "--window", "11x1s"], "--window: --rows replays"),
        (["replay", "--events", ".", "--rows", "--burst", "1s"], "--burst: --rows replays every"),
        (
            [
                *("replay", "--events", ".", "--law"),
                *("--algorithm", "token_bucket", "--debt-max", "15s"),
            ],
            "--algorithm, --debt-max: --law replays every row by the counter, quota and algorithm that it",
        ),
        (["replay", "--events", ".", "--law", "--top", "5"], "--top: --law says one line per"),
        (["replay", "--events", ".", "--law", "--raw", "--top", "20"], "--top, --raw: --law says"),
        (["replay", "--events", ".", "--rows", "--raw"], "--raw: the numbers of --rows are exact"),
        (["recommend", "--events", "."], "--capacity"),
        (
            ["recommend", "--events", ".", "--capacity", "DISK=1MB/s"],
            '"DISK" is not one of PRODUCE, FETCH, REQUEST, CONTROLLER_MUTATION',
        ),
        (
            [
                *("recommend", "--events", ".", "--capacity", "PRODUCE=1MB/s"),
                *("--weight", "a=1", "--weight", "a=2"),
            ],
            "--weight: a is there twice",
        ),
        (
            ["recommend", "--events", ".", "--capacity", "PRODUCE=1MB/s", "--max-changes", "-1"],
            '"-1" is not a whole number from 0 on',
        ),
        (
            ["recommend", "--events", ".", "--capacity", "PRODUCE=1MB/s", "--min-events", "1e3"],
            '"1e3" is not a whole number from 0 on',
        ),
        (["recommend", "--events", ".", "--capacity", "PRODUCE=fast"], '"fast" is not a byte rate'),
        (
            ["recommend", "--events", ".", "--capacity", "PRODUCE=1MB/s", "--weight", "orders"],
            '"orders" is not a weight above 0, e.g. orders=2',
        ),
        (
            ["recommend", "--events", ".", "--capacity", "PRODUCE=1MB/s", "--headroom", "lots"],
            '"lots" is not a percentage, e.g. 20%',
        ),
        (
            ["recommend", "--events", ".", "--capacity", "PRODUCE=1MB/s", "--gateways", "0"],
            '"0" is not a whole number from 1 on',
        ),
        (
            ["recommend", "--events", ".", "--capacity", "PRODUCE=1MB/s", "--learn", "100%"],
            '"100%" is not a part, above 0% and below 100%, e.g. 70%',
        ),
        (
            ["recommend", "--events", ".", "--capacity", "PRODUCE=1MB/s", "--step-up", "0.5"],
            "the first is above 0 and at most 1, the second at least 1",
        ),
        (
            ["recommend", "--events", ".", "--capacity", "PRODUCE=1MB/s", "--yes"],
            "--yes writes into the file of --quotas, and none was given",
        ),
    ],
)
def test_a_mistake_is_named_with_what_was_expected(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert wrong(*arguments) == 2
    assert said in capsys.readouterr().err


def test_an_empty_folder_is_named_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert wrong("usage", "--events", str(tmp_path)) == 2
    assert "The gateway writes a file every few seconds" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["usage", "replay", "recommend"])
def test_help_shows_an_example_and_loads_no_spark(command: str) -> None:
    code = (
        "import sys, kvota.app.cli.main as main\n"
        "try: main.main([sys.argv[1], '--help'])\n"
        "finally: print(sorted({'pyspark', 'pyarrow', 'numba', 'numpy'} & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert f"kvota {command} --events" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_page_on_the_record_names_every_key_of_a_difference() -> None:
    row = _row_json({field.name: None for field in fields(Difference)})

    assert not_on_the_page(row, "replay --rows") == set()
