"""A client in a process of its own: it says "began", works until its standard input ends, and tells what came of it."""

import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kvota.java.find import java_command
from kvota.localkafka.jars.class_path import kafka_classpath
from kvota.localkafka.jars.compile_java import compile_java

CLIENTS = Path(__file__).parent / "clients"
_BEGIN_S = 120.0
_LOOK_S = 0.05


def python_client(name: str, *arguments: object) -> list[str]:
    """The command of a Python program in ``clients``."""
    return [sys.executable, str(CLIENTS / f"{name}.py"), *map(str, arguments)]


def java_client(name: str, *arguments: object) -> list[str]:
    """The command of a Java program in ``clients``, with Kafka's own client on its class path."""
    classes = compile_java([CLIENTS / f"{name}.java"], classpath=kafka_classpath())
    options = ["-Xmx256m", "-XX:+UseSerialGC"]
    class_path = f"{classes}:{kafka_classpath()}"
    return [str(java_command()), *options, "-cp", class_path, name, *map(str, arguments)]


def with_properties(command: Sequence[str], properties: Path) -> list[str]:
    """The command of a program in ``clients`` that adds these properties to those of its Kafka client."""
    return ["env", f"CLIENT_PROPERTIES={properties}", *command]


class ClientProcess:
    """One client program; started on entry, killed on exit where it still runs.

    Args:
        name: of its files in ``folder``, where what it says is kept.
        command: of a program that works until its standard input ends.
        end_s: within which it must have ended behind that.
        end_codes: with which it may end.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        command: Sequence[str],
        *,
        end_s: float = 180.0,
        end_codes: Collection[int] = (0,),
    ) -> None:
        self.name = name
        self._command, self._end_s, self._end_codes = command, end_s, end_codes
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=out, stderr=err
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    @property
    def lines(self) -> list[str]:
        """What it has said so far."""
        return self._out.read_text().splitlines()

    @property
    def errors(self) -> str:
        """The end of what it has said on standard error."""
        return self._err.read_text()[-3_000:]

    def has_begun(self) -> bool:
        """Whether it has told of its first success."""
        return "began" in self.lines

    def wait_until_it_began(self) -> None:
        """Returns when it has had its first success."""
        end = time.monotonic() + _BEGIN_S
        while not self.has_begun():
            assert self._process is not None
            assert self._process.poll() is None, f"{self.name} has ended: {self.errors}"
            assert time.monotonic() < end, f"{self.name} has not begun: {self.errors}"
            time.sleep(_LOOK_S)

    def say(self, line: str) -> None:
        """One line for its standard input; raises BrokenPipeError where it has ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def signal(self, number: int) -> None:
        """Sends it this one."""
        assert self._process is not None
        self._process.send_signal(number)

    def ask_to_end(self) -> None:
        """Sends no more from now on; ``result`` waits for the end."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()

    def result(self) -> list[str]:
        """All that it has said, behind its end."""
        assert self._process is not None
        try:
            code = self._process.wait(self._end_s)
        except subprocess.TimeoutExpired as error:
            msg = f"{self.name} has not ended in {self._end_s:g} s: {self.errors}"
            raise AssertionError(msg) from error
        assert code in self._end_codes, f"{self.name} has ended with code {code}: {self.errors}"
        return self.lines
