"""Puts one folder in the place of another, again and again, until it is killed; run as a program.

usage: replacing_process.py FOLDER RENAME [no-exchange]

It kills itself before its rename of that number. With ``no-exchange`` it is as where a file system exchanges no names.
"""

import os
import signal
import sys
from pathlib import Path

from kvota.files import whole_folder as module
from kvota.files.whole_folder import whole_folder

FILES = 20


def put(path: Path, number: int) -> None:
    """Put a folder of this name there, every file of which says the number."""
    with whole_folder(path) as new:
        new.mkdir()
        for place in range(FILES):
            (new / f"{place}.txt").write_text(str(number))


def number_in(path: Path) -> int:
    """The number that all files of a folder say."""
    said = {file.read_text() for file in path.iterdir()}
    assert (len(list(path.iterdir())), len(said)) == (FILES, 1)
    return int(said.pop())


def die_before(rename: int) -> None:
    """Kill this process before its rename of this number."""
    really, done = os.rename, 0

    def counted(*names: str) -> None:
        nonlocal done
        done += 1
        if done == rename:
            os.kill(os.getpid(), signal.SIGKILL)
        really(*names)

    os.rename = counted  # type: ignore[assignment]


if __name__ == "__main__":
    where = Path(sys.argv[1])
    die_before(int(sys.argv[2]))
    if sys.argv[3:]:
        module._exchanged = lambda *_: False
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    number = 1
    while True:
        put(where, number)
        number += 1
