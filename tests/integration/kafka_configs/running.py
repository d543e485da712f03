"""Command lines of kafka-configs.sh, run in one JVM: a JVM for each would take two seconds."""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from kvota.localkafka.jars.class_path import kafka_classpath
from kvota.localkafka.jars.compile_java import compile_java
from kvota.localkafka.processes.command_line import SHORT_LIVED, kafka_command

HERE = Path(__file__).parent
_LAMBDA = re.compile(r"\$\$Lambda[^(]*")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command line ended, and what it has written."""

    exit_code: int
    stdout: str
    stderr: str


class ConfigCommands:
    """kafka-configs.sh of one version of Kafka."""

    def __init__(self, version: str) -> None:
        classes = compile_java([HERE / "ConfigCommands.java"], classpath=kafka_classpath(version))
        command = kafka_command(
            version,
            "ConfigCommands",
            (),
            log_level="OFF",
            log_stream="SYSTEM_ERR",
            java_options=(*SHORT_LIVED, "-Dfile.encoding=UTF-8"),
        )
        # The class path stands in a file, and an archive of classes is for that one.
        at = next(index for index, part in enumerate(command) if part.startswith("@"))
        command[at : at + 1] = ["-Xshare:off", "-cp", f"{classes}:{kafka_classpath(version)}"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(60)

    def run(self, arguments: Sequence[str], address: str) -> Ended:
        """Run one command line; ``{address}`` in it is replaced, and again in what it has written."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        given = [argument.replace("{address}", address) for argument in arguments]
        stdin.write("\x1f".join(given).encode() + b"\n")
        stdin.flush()
        exit_code, out_bytes, err_bytes = map(int, stdout.readline().split())
        out, err = stdout.read(out_bytes).decode(), stdout.read(err_bytes).decode()
        return Ended(exit_code, *(_comparable(text, address) for text in (out, err)))


def _comparable(text: str, address: str) -> str:
    return _LAMBDA.sub("$$Lambda", text).replace(address, "{address}")
