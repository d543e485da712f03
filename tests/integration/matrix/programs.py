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
    """A tool is missing on this machine, or it cannot fetch what it needs."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """One library.

    Attributes:
        command: what runs it, without the arguments; builds it first. Raises CannotBuildError.
        has_trust_store: whether it takes a trust store in place of PEM.
        more: arguments behind the common ones.
    """

    command: Callable[[Path], list[str]]
    has_trust_store: bool = False
    more: Sequence[str] = ()


def _python(name: str) -> Program:
    return Program(command=lambda _: [sys.executable, str(CLIENTS / f"{name}.py")])


def _java(class_path: Callable[[], str], sources: Sequence[str], protocol: str) -> Program:
    def command(_: Path) -> list[str]:
        jars = class_path()
        classes = compile_java([CLIENTS / f"{one}.java" for one in sources], classpath=jars)
        options = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=OFF"]
        return [str(java_command()), *options, "-cp", f"{classes}:{jars}", "MatrixClient"]

    return Program(command=command, has_trust_store=True, more=[protocol])


def _go(folder: Path) -> list[str]:
    program = folder / "matrix-go"
    _build(["go", "build", "-o", str(program), "."], CLIENTS / "franz_go")
    return [str(program)]


def _node(folder: Path) -> list[str]:
    made = folder / "kafkajs"
    shutil.copytree(CLIENTS / "kafkajs", made, dirs_exist_ok=True)
    _build(["npm", "install", "--no-audit", "--no-fund"], made)
    return ["node", str(made / "main.js")]


def _build(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, timeout=_BUILD_S, check=False, capture_output=True, text=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuildError(str(error)) from error
    if done.returncode:
        raise CannotBuildError(f"{command[0]}: {done.stderr.strip()[-300:]}")


PROGRAMS = {
    "Java 4.3.1": _java(kafka_classpath, ["MatrixClient", "MatrixShare"], "consumer"),
    f"Java {OLD_JAVA}": _java(lambda: clients_classpath(OLD_JAVA), ["MatrixClient"], "classic"),
    "librdkafka": _python("librdkafka"),
    "aiokafka": _python("aiokafka_steps"),
    "kafka-python": _python("kafka_python"),
    "franz-go": Program(command=_go),
    "kafkajs": Program(command=_node),
}
