import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvota.localkafka.processes import leash

# Says that it runs, then waits for nothing.
PROGRAM = [
    sys.executable,
    "-I",
    "-c",
    "import time; print('runs', flush=True); time.sleep(60)",
]


@pytest.fixture
def leashed() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A program on a leash, and our end of the leash."""
    far_end, near_end = os.pipe()
    command = [sys.executable, "-I", "-S", str(Path(leash.__file__)), str(far_end), *PROGRAM]
    with subprocess.Popen(
        command, pass_fds=(far_end,), stdout=subprocess.PIPE, text=True
    ) as process:
        os.close(far_end)
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        yield process, near_end
        process.kill()


def test_the_program_dies_when_the_leash_is_dropped(
    leashed: tuple[subprocess.Popen[str], int],
) -> None:
    process, near_end = leashed

    os.close(near_end)

    assert process.wait(10) == -signal.SIGKILL


def test_the_program_lives_on_when_it_was_let_go(
    leashed: tuple[subprocess.Popen[str], int],
) -> None:
    process, near_end = leashed

    os.write(near_end, b"!")
    os.close(near_end)

    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1.5)  # longer than the watcher sleeps


def test_the_program_is_the_process_that_was_started(
    leashed: tuple[subprocess.Popen[str], int],
) -> None:
    process, near_end = leashed

    command_line = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")[:-1]

    os.close(near_end)
    assert command_line == [word.encode() for word in PROGRAM]
