"""A process that compacts a folder and dies at the n-th call of a function of ``os``, for the tests of crashes.

usage: compacting_process.py FOLDER NOW_US [rename | unlink | fsync N]
"""

import os
import signal
import sys
from pathlib import Path

from kvota.record.compact import compact


def die_at(name: str, number: int) -> None:
    calls = 0
    call = getattr(os, name)

    def maybe_die(*args: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **options)

    setattr(os, name, maybe_die)


if __name__ == "__main__":
    folder, now_us, *death = sys.argv[1:]
    print("ready", flush=True)  # noqa: T201  (read by the tests)
    if death:
        die_at(death[0], int(death[1]))
    compact(Path(folder), now_us=int(now_us))
