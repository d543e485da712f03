"""Ctrl-C and kill -9 at any moment: the record stays as it was, nothing goes on running.

``KVOTA_STOPS=20`` tries so many moments of each kind.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvota.testing.recorded_traffic import EventRow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

WriteEvents = Callable[..., Path]
STOPS = int(os.environ.get("KVOTA_STOPS", "2"))

# A moment is a share of the time that a run takes when it is left alone.
MOMENTS = [random.Random(number).random() for number in range(STOPS)]


def start(folder: Path, mark: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "kvota.app.cli.main", "usage", "--events", str(folder)]
    return subprocess.Popen(
        # The mark stands in the command line of the JVM.
        [*command, "--master", "local[2]", "--conf", f"spark.kvota.mark={mark}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def running(mark: Path) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if str(mark) in line]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture(scope="module")
def folder(
    recorded_rows: list[EventRow],
    write_for_all: WriteEvents,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    return write_for_all(tmp_path_factory.mktemp("stopped"), recorded_rows, files=20)


@pytest.fixture(scope="module")
def undisturbed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, float]:
    """What is printed when nobody stops it, and after how long."""
    began = time.monotonic()
    process = start(folder, tmp_path_factory.mktemp("undisturbed"))
    printed, _ = process.communicate(timeout=200)
    assert process.returncode == 0
    return printed, time.monotonic() - began


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_leaves_one_word_and_no_jvm(
    moment: float, folder: Path, undisturbed: tuple[str, float], tmp_path: Path
) -> None:
    printed, length_s = undisturbed
    process = start(folder, tmp_path)
    time.sleep(0.2 + moment * length_s)

    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=120)

    progress = ("starting", "counting", "kvota: 20 of 28 lines shown")
    lines = [line for line in said.splitlines() if not line.startswith(progress)]
    assert (process.returncode, out, lines) in [(130, "", ["interrupted"]), (0, printed, [])]
    assert running(tmp_path) == []


@pytest.mark.parametrize("moment", MOMENTS)
def test_kill_9_leaves_the_record_and_no_jvm(
    moment: float, folder: Path, undisturbed: tuple[str, float], tmp_path: Path
) -> None:
    printed, length_s = undisturbed
    before = contents(folder)
    process = start(folder, tmp_path)
    time.sleep(moment * length_s)

    process.kill()
    process.communicate()

    while running(tmp_path):  # the JVM notices a moment later
        time.sleep(0.2)
    assert contents(folder) == before
    again = start(folder, tmp_path)
    assert again.communicate(timeout=200)[0] == printed
