"""``planning.held``: the record's own verdict on a limit."""

from kvota.planning.held import Decided, Promise, held

BUCKET = Promise(burst_s=1.0, debt_max_s=2.0)
MUTATIONS = Promise(burst_s=2.0)


def test_a_steady_rate_at_the_limit_holds() -> None:
    rows = [Decided(second * 1000, 1.0) for second in range(60)]

    assert held(rows, BUCKET).holds


def test_ten_per_cent_over_for_a_minute_does_not_hold() -> None:
    rows = [Decided(second * 1000, 1.1) for second in range(60)]

    verdict = held(rows, BUCKET)

    assert not verdict.holds
    assert verdict.admitted_s > verdict.allowed_s
    assert verdict.elapsed_s == 59


def test_an_excess_in_the_middle_is_found_though_the_mean_is_fine() -> None:
    quiet = [Decided(second * 1000, 0.1) for second in range(30)]
    rush = [Decided(30_000 + step * 10, 0.5) for step in range(10)]
    later = [Decided((31 + second) * 1000, 0.1) for second in range(30)]

    verdict = held([*quiet, *rush, *later], BUCKET)

    assert not verdict.holds
    assert verdict.elapsed_s < 1


def test_one_request_may_be_of_any_size_but_nothing_may_follow_it() -> None:
    assert held([Decided(0, 50.0)], BUCKET).holds
    assert not held([Decided(0, 50.0), Decided(1, 0.1)], BUCKET).holds


def test_the_one_request_is_the_last_not_the_largest() -> None:
    small, large = [Decided(0, 0.4)] * 7, Decided(0, 50.0)

    assert held([*small, large], BUCKET).holds
    assert not held([large, *small], BUCKET).holds


def test_a_bucket_of_mutations_may_spend_its_burst_and_one_topic_but_no_more() -> None:
    spent = [Decided(0, 1.0), Decided(1, 1.0), Decided(1, 0.7)]

    assert held(spent, MUTATIONS).holds
    assert not held([*spent, Decided(2, 0.7)], MUTATIONS).holds


def test_what_was_given_back_makes_room() -> None:
    rows = [Decided(0, 3.0), Decided(1, -3.0), Decided(2, 2.0), Decided(3, 2.0)]

    assert held(rows, MUTATIONS).holds


def test_what_was_given_back_pays_nothing_in_advance() -> None:
    rows = [Decided(0, -50.0), Decided(1, 3.5), Decided(2, 0.1)]

    assert not held(rows, BUCKET).holds


def test_what_was_rejected_spends_nothing() -> None:
    assert held([Decided(0, 3.0), *[Decided(1, None)] * 100], BUCKET).holds


def test_a_clock_that_steps_back_pays_for_nothing_twice_only_when_it_goes_on() -> None:
    back = [Decided(10_000, 3.0), Decided(5_000, 0.0), Decided(5_000, 1.0)]

    assert held([*back, Decided(5_999, 0.1)], BUCKET).holds is False
    assert held([*back, Decided(6_001, 0.1)], BUCKET).holds


def test_time_that_passed_between_rejected_rows_counts() -> None:
    rows = [Decided(0, 3.0), Decided(1_000, None), Decided(500, None), Decided(500, 1.0)]

    assert held([*rows, Decided(500, 0.1)], BUCKET).holds


def test_nothing_at_all_holds() -> None:
    assert held([], BUCKET).holds
