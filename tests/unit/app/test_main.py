"""The command line: exit codes, nearest names, help."""

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvota.app.cli import kafka
from kvota.app.cli.main import COMMANDS, main
from kvota.localkafka.jars.lock import kafka_versions
from kvota.localkafka.processes.tools import CLASS_OF_TOOL


def test_an_unknown_command_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["gatway"]) == 2

    assert 'Did you mean "gateway"?' in capsys.readouterr().err


def test_without_a_command_there_is_an_overview_and_wrong_use(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == 2

    assert "recommend" in capsys.readouterr().out


def test_a_misspelt_option_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["kvota", "demo", "--folde", "x"])

    with pytest.raises(SystemExit) as ended:
        main(["demo", "--folde", "x"])

    assert ended.value.code == 2
    assert 'Did you mean "--folder"?' in capsys.readouterr().err


def test_a_faulty_file_ends_with_its_faults_and_wrong_use(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    assert main(["gateway", "-c", f"{tmp_path}/none.toml", "--check"]) == 2

    assert "none.toml: there is no such file" in capsys.readouterr().err


def test_help_begins_with_an_example(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KVOTA_CALLED", raising=False)

    with pytest.raises(SystemExit) as ended:
        main(["usage", "--help"])

    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("example:\n  kvota usage")


def test_hints_say_what_can_be_typed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVOTA_CALLED", "../kvota/run kvota")

    with pytest.raises(SystemExit):
        main(["usage", "--help"])

    said = capsys.readouterr().out
    assert said.startswith("example:\n  ../kvota/run kvota usage --events kvota-demo/")
    assert "usage: ../kvota/run kvota usage" in said


def test_no_text_of_the_program_has_a_command_as_only_some_can_type_it() -> None:
    """From a clone it is ``./run kvota …``: texts say ``called()`` in place of ``kvota``."""
    typed = re.compile(rf"\bkvota ({'|'.join(COMMANDS)})\b")
    source = Path(sys.modules["kvota"].__path__[0])

    fixed = [
        f"{path.relative_to(source)}:{line}: {text}"
        for path in sorted(source.rglob("*.py"))
        for line, text in _texts(ast.parse(path.read_text()))
        if typed.search(text)
    ]

    assert not fixed


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each text in a module with its line, but for the docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node.lineno, node.value


def test_kafkas_tools_are_those_that_can_be_run() -> None:
    assert tuple(CLASS_OF_TOOL) == kafka.TOOLS


@pytest.mark.parametrize(
    ("tool", "nearest"),
    [("topic", "topics"), ("kafka-configs", "configs"), ("configs.sh", "configs")],
)
def test_a_tool_that_is_not_there_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str], tool: str, nearest: str
) -> None:
    assert main(["kafka", "tool", tool, "--list"]) == 2

    assert f'there is no tool "{tool}". Did you mean "{nearest}"?' in capsys.readouterr().err


def test_a_missing_extra_is_named(tmp_path: Path) -> None:
    """In a process of its own: what has been imported here is not imported anew without harm."""
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from kvota.app.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "usage", "--events", str(tmp_path)]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert "this needs pyspark, which is not installed. pip install 'kvota[spark]'" in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("asked", [["--version"], ["help"], ["gateway", "--help"]])
def test_what_nobody_reads_is_no_error(asked: list[str], unbuffered: str) -> None:
    """As in ``kvota … | head``."""
    reader, writer = os.pipe()
    os.close(reader)

    done = run_kvota(asked, stdout=writer, PYTHONUNBUFFERED=unbuffered)

    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_answer_that_cannot_be_written_is_an_error(unbuffered: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run_kvota(["--version"], stdout=full.fileno(), PYTHONUNBUFFERED=unbuffered)

    assert done.returncode == 3
    assert done.stderr == "kvota: the answer could not be written: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_what_is_printed_by_the_way_cannot_be_written_either(unbuffered: str) -> None:
    """More than a buffer holds, so that a print of the command itself fails."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", LONG_ANSWER],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )

    assert done.returncode == 3
    assert done.stderr == "kvota: the answer could not be written: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [(["--version"], 0, "kvota "), (["nonsense"], 2, ""), (["record", "nonsense"], 2, "")],
)
def test_notes_that_cannot_be_written_change_nothing(
    asked: list[str], code: int, said: str, unbuffered: str
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kvota.app.cli.main", *asked],
            stdout=subprocess.PIPE,
            stderr=full,
            text=True,
            check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )

    assert (done.returncode, done.stdout.startswith(said)) == (code, True)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_nothing(closed: str, tmp_path: Path) -> None:
    """What is opened next takes their numbers: else a file would have in it what is printed."""
    file = tmp_path / "kept"
    program = f"{shlex.quote(sys.executable)} -c {shlex.quote(KEEPING)} {shlex.quote(str(file))}"

    done = subprocess.run(
        ["sh", "-c", f"{program} {closed}"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 5
    assert file.read_text() == "kept"
    assert done.stdout == ("" if ">&-" in closed.split() else "answer\n")
    assert done.stderr == ("" if "2>&-" in closed else "note\n")


def run_kvota(
    asked: list[str], *, stdout: int, **environment: str
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "kvota.app.cli.main", *asked]
    return subprocess.run(
        command,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=os.environ | environment,
    )


LONG_ANSWER = """
import sys
from kvota.app.cli import main, record
record.run = lambda args: print("x" * 100_000) or 0
sys.argv[1:] = ["record", "show", "--events", "."]
sys.exit(main.main())
"""
KEEPING = """
import sys
from kvota.app.cli import main, record
def run(args):
    with open(path, "w") as file:
        print("answer", flush=True)
        print("note", file=sys.stderr)
        file.write("kept")
    return 5
path = sys.argv[1]
record.run = run
sys.argv[1:] = ["record", "show", "--events", "."]
sys.exit(main.main())
"""

# What is still done after the answer: Python ends, which takes long where much has been imported.
ENDING = """
import atexit, signal, sys
from kvota.app.cli.main import main
atexit.register(signal.raise_signal, signal.SIGINT)
sys.argv[1:] = ["--version"]
sys.exit(main())
"""


def test_ctrl_c_after_the_answer_changes_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0
    assert done.stdout.startswith("kvota ")
    assert done.stderr == ""


# A command that meets a library which makes another error of Ctrl-C, as PyArrow does while it imports pandas.
MISTAKING = """
import signal, sys, types
from kvota.app.cli.main import main
def run(args):
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise AttributeError("partially initialized module")
sys.modules["kvota.app.cli.status"] = types.SimpleNamespace(EXAMPLE="", configure=lambda _: None, run=run)
sys.argv[1:] = ["status"]
sys.exit(main())
"""


def test_ctrl_c_that_became_another_error_is_still_ctrl_c() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MISTAKING], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_a_kafka_that_is_not_to_be_had_is_answered_with_those_that_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["kafka", "up", "--version", "4.0.0"])

    assert ended.value.code == 2
    assert "4.3.1" in capsys.readouterr().err
    assert tuple(kafka_versions()) == kafka.VERSIONS
