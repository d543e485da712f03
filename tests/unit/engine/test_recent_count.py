"""What has happened lately, in samples: the running one counts, and what is older than all of them does not."""

from kvota.engine.recent_count import RecentCount
from kvota.model.quota_window import QuotaWindow


def test_what_is_older_than_the_window_is_gone() -> None:
    recent = RecentCount(QuotaWindow(3, 100))
    recent.add(0)
    recent.add(150, 2)
    assert [recent.peek(now_ms) for now_ms in (150, 299, 300, 399, 400)] == [3, 3, 2, 2, 0]
    assert recent.peek_rate(250) == 3 * 1000 / 250


def test_a_clock_that_went_back_leaves_nothing_in_the_future() -> None:
    recent = RecentCount(QuotaWindow(3, 100))
    recent.add(10_000)
    recent.add(50)
    assert recent.peek(50) == 1
    assert recent.peek(10_000) == 0


def test_no_more_samples_are_kept_than_there_are() -> None:
    recent = RecentCount(QuotaWindow(11, 1))
    for now_ms in range(1000):
        recent.add(now_ms)
    assert len(recent._counts) == 11
