"""The programs of the client matrix: one a library, each does all that its library can and says what came of it.

Each takes: servers, user, secret, who signs certificates (PEM; for Java a trust store), a name, how many records, and a topic
that is closed to the user. It prints a line ``step: result`` for each step. Topics, groups and the transactional id begin
with the name.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvota.java.find import java_command
from kvota.localkafka.jars.class_path import clients_classpath, kafka_classpath
from kvota.localkafka.jars.compile_java import compile_java

CLIENTS = Path(__file__).parent / "clients"
OLD_JAVA = "2.5.1"
_BUILD_S = 300.0


class CannotBuildError(Exception):
    """A tool is missing on this machine, or it cannot fetch the modules that are needed."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """One library.

    Attributes:
        command: what runs it, without the arguments; builds it first. Raises CannotBuildError.
        has_trust_store: whether it takes a trust store in place of PEM.
        goes_by_name: whether it is tried at one port for all nodes, too; it looks names up with getaddrinfo.
        more: arguments behind the common ones.
    """

    command: Callable[[Path], list[str]]
    has_trust_store: bool = False
    goes_by_name: bool = False
    more: Sequence[str] = ()


def _python(name: str, *, goes_by_name: bool = False) -> Program:
    command = [sys.executable, str(CLIENTS / f"{name}.py")]
    return Program(command=lambda _: command, goes_by_name=goes_by_name)


def _java(class_path: Callable[[], str], sources: Sequence[str], protocol: str) -> Program:
    def command(_: Path) -> list[str]:
        jars = class_path()
        classes = compile_java([CLIENTS / f"{one}.java" for one in sources], classpath=jars)
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF"]
        return [str(java_command()), *options, "-cp", f"{classes}:{jars}", "MatrixClient"]

    return Program(command=command, has_trust_store=True, more=[protocol])


def _go(folder: Path) -> list[str]:
    source, program = CLIENTS / "franz_go", folder / "matrix-go"
    _fetch(["go", "mod", "download"], source)
    built = _run(["go", "build", "-o", str(program), "."], source)
    assert built.returncode == 0, built.stderr
    return [str(program)]


def _node(folder: Path) -> list[str]:
    if shutil.which("node") is None:
        raise CannotBuildError("there is no node")
    made = folder / "kafkajs"
    shutil.copytree(CLIENTS / "kafkajs", made, dirs_exist_ok=True)
    _fetch(["npm", "install", "--no-audit", "--no-fund"], made)
    return ["node", str(made / "main.js")]


def _fetch(command: list[str], folder: Path) -> None:
    """Get the modules.

    Raises:
        CannotBuildError: they cannot be had here. A program that does not compile is another matter.
    """
    try:
        done = _run(command, folder)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuildError(str(error)) from error
    if done.returncode:
        raise CannotBuildError(f"{command[0]}: {done.stderr.strip()[-300:]}")


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, timeout=_BUILD_S, check=False, capture_output=True, text=True
    )


PROGRAMS = {
    "Java 4.3.1": _java(kafka_classpath, ["MatrixClient", "MatrixShare"], "consumer"),
    f"Java {OLD_JAVA}": _java(lambda: clients_classpath(OLD_JAVA), ["MatrixClient"], "classic"),
    "librdkafka": _python("librdkafka", goes_by_name=True),
    "aiokafka": _python("aiokafka_steps", goes_by_name=True),
    "kafka-python": _python("kafka_python"),
    "franz-go": Program(command=_go),
    "kafkajs": Program(command=_node),
}
