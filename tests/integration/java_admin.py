"""Kafka's own admin client, driven line by line."""

import subprocess
from pathlib import Path
from typing import Self

from kvota.java.find import java_command
from kvota.localkafka.jars.class_path import kafka_classpath
from kvota.localkafka.jars.compile_java import compile_java

_SOURCE = Path(__file__).parents[2] / "bench/java/AdminBench.java"


class JavaAdmin:
    """A JVM with one ``Admin``; it ends with the block."""

    def __init__(self, servers: str, client_id: str) -> None:
        classes = compile_java([_SOURCE], classpath=kafka_classpath())
        self._process = subprocess.Popen(
            [
                str(java_command()),
                *("-Xmx512m", "-cp", f"{classes}:{kafka_classpath()}"),
                *("AdminBench", servers, client_id),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        with self._process:
            self._process.stdin.close()
            self._process.wait(60)

    def carry_out(self, line: str) -> tuple[float, str]:
        """Seconds, and what came of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        took_ns, _, said = self._process.stdout.readline().strip().partition(" ")
        assert took_ns, f"Java's Admin failed at: {line}"
        return int(took_ns) / 1e9, said
