"""``planning.held``: the record's own verdict on a limit."""

from kvota.model.quota_type import QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.planning.held import held

WINDOW = QuotaWindow(samples=2, sample_ms=1000)
SECOND_US = 1_000_000


def test_a_steady_rate_at_the_limit_holds() -> None:
    charges = [(second * SECOND_US, 100.0) for second in range(60)]

    assert held(QuotaType.PRODUCE, charges, limit=100.0, window=WINDOW).holds


def test_ten_per_cent_over_for_a_minute_does_not_hold() -> None:
    charges = [(second * SECOND_US, 110.0) for second in range(60)]

    verdict = held(QuotaType.PRODUCE, charges, limit=100.0, window=WINDOW)

    assert not verdict.holds
    assert verdict.admitted > verdict.allowed


def test_an_excess_in_the_middle_is_found_though_the_mean_is_fine() -> None:
    quiet = [(second * SECOND_US, 10.0) for second in range(30)]
    burst = [(30 * SECOND_US + step * 10_000, 50.0) for step in range(10)]
    later = [((31 + second) * SECOND_US, 10.0) for second in range(30)]

    verdict = held(QuotaType.PRODUCE, [*quiet, *burst, *later], limit=100.0, window=WINDOW)

    assert not verdict.holds
    assert verdict.interval_s < 1


def test_one_request_larger_than_the_window_is_what_record_first_leaves_open() -> None:
    assert held(QuotaType.PRODUCE, [(0, 5_000.0)], limit=100.0, window=WINDOW).holds


def test_a_bucket_may_spend_its_burst_and_one_request_but_no_more() -> None:
    full = [(0, 100.0), (1, 100.0), (2, 70.0)]

    assert held(QuotaType.CONTROLLER_MUTATION, full, limit=100.0, window=WINDOW).holds
    assert not held(
        QuotaType.CONTROLLER_MUTATION, [*full, (3, 70.0)], limit=100.0, window=WINDOW
    ).holds


def test_what_was_given_back_makes_room() -> None:
    charges = [(0, 300.0), (1, -300.0), (2, 200.0), (3, 200.0)]

    assert held(QuotaType.CONTROLLER_MUTATION, charges, limit=100.0, window=WINDOW).holds
