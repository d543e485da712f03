"""What a program in Python is asked for on its command line, and how it answers: see ``tests/integration/matrix/programs.py``."""

import sys

SERVERS, USER, SECRET, CAFILE, NAME = sys.argv[1:6]
RECORDS, DENIED = int(sys.argv[6]), sys.argv[7]
PATIENCE_S = 60.0


def say(step: str, result: object) -> None:
    """One line of the result."""
    sys.stdout.write(f"{step}: {result}\n")
    sys.stdout.flush()
