"""Becomes another program, on a leash: it dies when the process that holds the other end dies.

``python -I -S leash.py FD PROGRAM ARGUMENT...``, with FD the reading end of a pipe. A child of this
process watches the pipe; this process becomes the program, so its pid is the one the caller knows.
When the pipe closes, which even ``kill -9`` of the holder does, the watcher kills the program; one
byte through the pipe lets the program go for good.
(PR_SET_PDEATHSIG would be shorter, but fires when the *thread* that started the program ends.)

Stands alone: it imports nothing of kvota, so that it starts in 15 ms.
"""

import os
import select
import signal
import sys

_LOOK_S = 1.0


def main() -> None:
    """Forks the watcher, then becomes the program."""
    pipe, program = int(sys.argv[1]), sys.argv[2:]
    program_pid = os.getpid()
    if os.fork() == 0:
        _watch(pipe, program_pid)
        os._exit(0)
    os.close(pipe)
    os.execv(program[0], program)  # noqa: S606 - becoming the program is what this file is for


def _watch(pipe: int, program_pid: int) -> None:
    # Ctrl-C at a terminal is for the holder; the watcher must see the end.
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nowhere, standard)
    # As long as we are its child, the pid is still the program's own.
    while os.getppid() == program_pid:
        readable, _, _ = select.select([pipe], [], [], _LOOK_S)
        if readable:
            let_go = os.read(pipe, 1)
            if not let_go and os.getppid() == program_pid:
                os.kill(program_pid, signal.SIGKILL)
            return


if __name__ == "__main__":
    main()
