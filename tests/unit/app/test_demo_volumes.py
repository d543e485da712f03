"""What the demo of full disks makes of the seconds that it has seen."""

from pathlib import Path

import pytest

from kvota.app.demo.filling_disk import LIMIT_BYTES_PER_S, Second, verdict
from kvota.app.demo.screen import Screen

FAST = Second(at_s=1.0, available_bytes=200, factor=1.0, bytes_per_s=LIMIT_BYTES_PER_S)
SLOW = Second(at_s=9.0, available_bytes=20, factor=0.1, bytes_per_s=0.1 * LIMIT_BYTES_PER_S)
STILL_FAST = Second(at_s=9.0, available_bytes=20, factor=0.1, bytes_per_s=LIMIT_BYTES_PER_S)
OVER = Second(at_s=9.0, available_bytes=-1, factor=0.0, bytes_per_s=0.0)


@pytest.mark.parametrize(
    ("filling", "recovered", "code", "broken"),
    [
        ([FAST, SLOW, SLOW, SLOW, SLOW, SLOW], [SLOW, FAST], 0, None),
        ([FAST, SLOW, SLOW, SLOW, SLOW, STILL_FAST], [FAST], 1, "followed the factor"),
        ([FAST] * 6, [FAST], 1, "followed the factor"),
        ([FAST, SLOW, SLOW, SLOW, SLOW, OVER], [FAST], 1, "was not passed"),
        ([FAST, SLOW, SLOW, SLOW, SLOW, SLOW], [SLOW], 1, "as fast as before"),
        ([FAST, SLOW, SLOW, SLOW, SLOW, SLOW], [], 1, "as fast as before"),
    ],
)
def test_a_promise_that_was_broken_is_named(
    filling: list[Second],
    recovered: list[Second],
    code: int,
    broken: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert verdict(Screen(3), filling, recovered, Path("demo")) == code

    marked = [line for line in capsys.readouterr().out.splitlines() if "NO" in line]
    assert [broken in line for line in marked if broken] == ([True] if broken else [])
