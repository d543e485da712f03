"""Time by hand."""

import pytest

from kvota.testing.manual_clock import START_MS, ManualClock


def test_time_passes_on_both_clocks() -> None:
    clock = ManualClock()

    clock.advance(1_500)
    clock.advance_us(250)

    assert (clock.now_us(), clock.now_ms()) == (START_MS * 1000 + 1_500_250, START_MS + 1_500)
    assert (clock.monotonic_us(), clock.monotonic_ms()) == (1_500_250, 1_500)


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_wall_clock_that_is_set_moves_no_monotonic_time(step_ms: int) -> None:
    clock = ManualClock()
    clock.advance(10)

    clock.step_wall(step_ms)

    assert clock.now_ms() == START_MS + 10 + step_ms
    assert clock.monotonic_ms() == 10


def test_time_itself_does_not_go_back() -> None:
    clock = ManualClock(start_ms=5_000)

    with pytest.raises(ValueError, match="step_wall"):
        clock.advance(-1)

    assert (clock.now_ms(), clock.monotonic_ms()) == (5_000, 0)
