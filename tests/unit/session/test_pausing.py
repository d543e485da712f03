"""The reasons not to read on, and the one deadline that is offered for them."""

from kvota.session.pausing import Pausing, Reason

NOW_US = 1_700_000_000_000_000


def muted(pausing: Pausing, throttle_ms: int, *, now_ms: int) -> int | None:
    pausing.mute(throttle_ms)
    return pausing.next_deadline_ms(now_ms)


def passed(pausing: Pausing, *, now_ms: int) -> int:
    """The deadline has come; returns what is left of the mute behind its cap."""
    over = pausing.deadline_passed(now_ms, NOW_US)
    assert over == Reason.MUTED
    pausing.reasons &= ~over
    return max(0, pausing.passing_left_ms(NOW_US)) if pausing.passing_until_us else 0


def test_a_mute_is_capped_and_its_deadline_is_not() -> None:
    pausing = Pausing(cap_ms=1_000)

    assert muted(pausing, 5_000, now_ms=100) == 1_100
    assert passed(pausing, now_ms=1_100) == 4_000
    assert muted(pausing, 0, now_ms=1_150) == 2_150
    assert passed(pausing, now_ms=2_150) == 2_950
    pausing.passing_until_us = 0
    assert muted(pausing, 0, now_ms=4_500) == 5_100
    assert passed(pausing, now_ms=5_100) == 0


def test_a_shorter_throttle_does_not_shorten_a_mute() -> None:
    pausing = Pausing(cap_ms=10_000)
    muted(pausing, 5_000, now_ms=0)

    assert muted(pausing, 1_000, now_ms=10) == 5_000


def test_new_throttles_do_not_prolong_one_mute_beyond_its_cap() -> None:
    pausing = Pausing(cap_ms=1_000)
    muted(pausing, 900, now_ms=0)

    assert muted(pausing, 900, now_ms=600) == 1_000


def test_a_timer_that_fires_a_fraction_early_ends_what_it_was_set_for() -> None:
    pausing = Pausing(cap_ms=10_000)
    muted(pausing, 500, now_ms=100)

    assert passed(pausing, now_ms=599) == 0
    assert pausing.reasons == 0


def test_one_request_is_let_through_after_a_capped_mute_and_then_the_mute_goes_on() -> None:
    pausing = Pausing(cap_ms=1_000)
    muted(pausing, 5_000, now_ms=0)
    assert passed(pausing, now_ms=1_000) == 4_000

    pausing.mute_again(NOW_US + 1_000_000)

    assert pausing.reasons == Reason.MUTED
    assert pausing.passing_until_us == 0
    assert pausing.next_deadline_ms(2_000) == 3_000


def test_a_request_that_comes_when_the_deadline_is_over_is_not_followed_by_a_mute() -> None:
    pausing = Pausing(cap_ms=1_000)
    muted(pausing, 5_000, now_ms=0)
    passed(pausing, now_ms=1_000)

    pausing.mute_again(NOW_US + 4_000_000)

    assert pausing.reasons == 0


def test_a_clock_that_steps_back_does_not_lengthen_what_a_passing_client_waits() -> None:
    pausing = Pausing(cap_ms=1_000)
    muted(pausing, 5_000, now_ms=0)
    passed(pausing, now_ms=1_000)

    assert pausing.passing_left_ms(NOW_US - 3_600_000_000) == 4_000


def test_the_earlier_of_two_deadlines_is_offered() -> None:
    pausing = Pausing(cap_ms=30_000)
    pausing.ask(1_000)
    pausing.mute(5_000)

    assert pausing.next_deadline_ms(0) == 1_000
    over = pausing.deadline_passed(1_000, NOW_US)
    pausing.reasons &= ~over

    assert over == Reason.ASKING
    assert pausing.next_deadline_ms(1_001) == 5_000
    assert pausing.deadline_passed(5_000, NOW_US) == Reason.MUTED


def test_an_answer_in_time_takes_the_deadline_of_the_question_away() -> None:
    pausing = Pausing(cap_ms=30_000)
    pausing.ask(1_000)
    pausing.next_deadline_ms(0)

    pausing.reasons &= ~Reason.ASKING

    assert pausing.next_deadline_ms(10) is None


def test_a_changed_counter_shortens_and_ends_a_running_mute() -> None:
    pausing = Pausing(cap_ms=30_000)
    muted(pausing, 20_000, now_ms=0)

    pausing.replace_mute(3_000)
    assert pausing.deadline_changed
    assert pausing.next_deadline_ms(1_000) == 4_000

    pausing.replace_mute(0)
    assert pausing.next_deadline_ms(1_500) == 1_500
    assert passed(pausing, now_ms=1_500) == 0


def test_a_mute_that_was_lifted_does_not_go_on_behind_the_request_let_through() -> None:
    pausing = Pausing(cap_ms=1_000)
    muted(pausing, 5_000, now_ms=0)
    passed(pausing, now_ms=1_000)

    pausing.replace_mute(0)
    pausing.mute_again(NOW_US + 1)

    assert pausing.reasons == 0


def test_reasons_come_and_go_as_a_plain_int() -> None:
    """A flag in their place would make a call of every look at them, for as long as the connection lives."""
    pausing = Pausing(cap_ms=1_000)

    pausing.reasons |= Reason.DIALLING | Reason.FETCHING
    pausing.reasons &= ~Reason.DIALLING

    assert type(pausing.reasons) is int
    assert pausing.reasons == Reason.FETCHING
