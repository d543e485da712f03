"""The command line: exit codes, nearest names, help."""

import ast
import re
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


def test_a_kafka_that_is_not_to_be_had_is_answered_with_those_that_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["kafka", "up", "--version", "4.0.0"])

    assert ended.value.code == 2
    assert "4.3.1" in capsys.readouterr().err
    assert tuple(kafka_versions()) == kafka.VERSIONS
