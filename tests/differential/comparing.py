"""Same operations on both sides; any difference is a failure with seed, index and both answers."""

import math
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.differential.operations import Operation
from tests.differential.subjects import SUBJECTS, Answer

from kvota.java.find import java_command
from kvota.localkafka.jars.class_path import kafka_classpath
from kvota.localkafka.jars.compile_java import compile_java

_TIMEOUT_S = 120
_HISTORY = 12


@cache
def _class_path() -> str:
    sources = sorted((Path(__file__).parent / "java").glob("*.java"))
    return f"{compile_java(sources, classpath=kafka_classpath())}:{kafka_classpath()}"


def ask_kafka(name: str, operations: Sequence[Operation]) -> list[str]:
    """One answer per operation from Kafka's own class, live in a JVM."""
    lines = "".join("\t".join(op) + "\n" for op in operations)
    done = subprocess.run(
        [
            *(str(java_command()), "-Xmx256m", "-XX:+UseSerialGC", "-cp", _class_path()),
            *("Oracle", name),
        ],
        input=lines.encode(),
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-4000:]
    answers = done.stdout.decode().splitlines()
    assert len(answers) == len(operations), (
        f"{len(answers)} answers to {len(operations)} operations"
    )
    return answers


def agrees(ours: Answer, kafkas: str) -> bool:
    """Everything equal, doubles to the last bit; NaN equals NaN."""
    words = kafkas.split("\t")
    return len(words) == len(ours) and all(map(_agrees, ours, words))


def _agrees(ours: str | float, word: str) -> bool:
    if isinstance(ours, bool):
        return word == str(ours).lower()
    if isinstance(ours, float):
        theirs = float(word)
        return ours == theirs or (math.isnan(ours) and math.isnan(theirs))
    return word == str(ours)


def first_difference(
    name: str, operations: Sequence[Operation], answers: Sequence[str], *, where: str
) -> str | None:
    """None if kvota answers every operation as Kafka did, else a text to begin debugging with."""
    subject = SUBJECTS[name]()
    for index, (operation, kafkas) in enumerate(zip(operations, answers, strict=True)):
        ours = subject(operation)
        if not agrees(ours, kafkas):
            start = max(i for i in range(index + 1) if operations[i][0] == "new")
            before = [start, *range(max(start + 1, index - _HISTORY), index)]
            history = "\n".join(f"  {i}: {operations[i]} -> {answers[i]!r}" for i in before)
            return (
                f"{name}, {where}, operation {index}: {operation}\n"
                f"kvota: {ours}\nKafka: {kafkas.split(chr(9))}\nbefore it:\n{history}"
            )
    return None
