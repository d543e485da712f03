"""What is said while somebody waits: a bar on a terminal, plain lines elsewhere."""

import os
import pty
import subprocess
import sys

from kvota.app.cli.progress import HowFar, RowsDone

WAIT = """
import time
from kvota.app.cli import progress
progress._SILENT_S, progress._TICK_S, progress._LINE_EVERY_S = 0.01, 0.02, 0.05
share, asked = 0.0, 0
def how_far():
    global share, asked
    asked += 1
    share = min(0.9, share + 0.1)
    return progress.HowFar(share, f"{share:.0%%}, 1,234 rows/s")
with progress.working("counting", how_far=how_far):
    while asked < %s:
        time.sleep(0.01)
"""


def on_a_terminal(code: str) -> str:
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stderr=theirs, stdout=theirs):
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 65_536)
            except OSError:  # Linux: the other side is closed
                break
            if not part:
                break
            parts.append(part)
    os.close(ours)
    return b"".join(parts).decode()


def elsewhere(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_a_terminal_has_a_bar_with_speed_and_time_left() -> None:
    shown = on_a_terminal(WAIT % 12)

    assert "counting" in shown
    assert "90%, 1,234 rows/s" in shown
    assert " s left" in shown
    assert shown.rstrip().endswith("\x1b[2K")  # nothing of it stays


def test_elsewhere_there_are_lines() -> None:
    lines = elsewhere(WAIT % 3)

    assert lines[0] == "counting ..."
    assert lines[1].startswith("counting: ")
    assert "rows/s, " in lines[1]
    assert lines[1].endswith(" s left")
    assert lines[-1].startswith("counting: ")
    assert "\x1b" not in "".join(lines)


def test_who_does_not_wait_is_told_nothing() -> None:
    assert elsewhere(WAIT.replace("0.01, 0.02", "30.0, 0.02") % 0) == []


def test_rows_that_are_done_say_how_far_it_is() -> None:
    rows = RowsDone(total=200)
    assert rows.how_far() == HowFar()

    rows.done += 50
    far = rows.how_far()

    assert far.share == 0.25
    assert far.text.startswith("25%, ")
    assert far.text.endswith(" rows/s")


def test_what_cannot_be_asked_any_more_is_not_told() -> None:
    code = WAIT.replace("    share = min", "    raise OSError('Spark is gone')\n    share = min")

    lines = elsewhere(code % 3)

    assert lines[:2] == ["counting ...", "counting: still at it"]
    assert "Traceback" not in "\n".join(lines)
