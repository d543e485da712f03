"""Starts a program that cannot outlive its starter."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

_LEASH = Path(__file__).with_name("leash.py")


def start_leashed(
    command: Sequence[str], *, log: IO[bytes], cwd: Path | None = None, own_session: bool = False
) -> tuple[subprocess.Popen[bytes], int]:
    """Starts ``command``; it is killed when this process ends, even by ``kill -9``.

    Args:
        command: the program's path, and its arguments.
        log: takes what it prints.
        cwd: its working directory.
        own_session: Ctrl-C at the terminal does not reach it.

    Returns:
        The process, and the leash: a file descriptor to close when the process has ended. One byte
        written to it lets the program go for good.
    """
    far_end, leash = os.pipe()
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_LEASH), str(far_end), *command],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(far_end,),
            start_new_session=own_session,
        )
    except BaseException:
        os.close(leash)
        raise
    finally:
        os.close(far_end)
    return process, leash
