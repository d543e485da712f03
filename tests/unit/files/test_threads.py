"""What is done in threads comes in the order of its items, and Ctrl-C ends it wherever it comes."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from kvota.files.threads import in_threads


@pytest.mark.parametrize("count", [0, 1, 3, 1_000])
@pytest.mark.parametrize("threads", [1, 8])
def test_results_come_in_the_order_of_the_items(count: int, threads: int) -> None:
    assert list(in_threads(lambda item: 2 * item, range(count), threads)) == [
        2 * item for item in range(count)
    ]


def test_an_error_comes_in_the_place_of_the_result() -> None:
    results = in_threads(lambda item: 12 // (3 - item), range(100), 4)

    assert [next(results) for _ in range(3)] == [4, 6, 12]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_who_takes_no_more_ends_it() -> None:
    seen: list[int] = []
    results: Iterator[None] = in_threads(seen.append, range(1_000_000), 4)
    next(results)

    results.close()  # type: ignore[attr-defined]

    count = len(seen)
    assert count < 1_000_000
    assert len(seen) == count, "no thread is at work any more"


# Ctrl-C at many moments, each in another place of what starts threads and hands them their work.
INTERRUPTED = """
import random, signal
from kvota.files.threads import in_threads

def interrupt(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
moments = random.Random(1)
interrupted = 0
for _ in range(3_000):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, moments.uniform(0.00001, 0.004))
            for _ in in_threads(abs, range(100), 8):
                pass
            for _ in range(100_000):
                pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        interrupted += 1
print(interrupted)
"""


def test_ctrl_c_at_any_moment_ends_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    assert done.stderr == ""
    assert int(done.stdout) > 1_000
