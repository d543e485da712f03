"""The codes that packed rows carry stand for the outcomes of the events table."""

from kvota.model.decision_sink import ADMITTED, CODE_OF_OUTCOME, OUTCOMES, REJECTED, THROTTLED
from kvota.model.event import Outcome


def test_every_outcome_has_one_code() -> None:
    assert {Outcome.ADMITTED: 0, Outcome.THROTTLED: 1, Outcome.REJECTED: 2} == CODE_OF_OUTCOME
    assert set(OUTCOMES) == set(Outcome)


def test_the_plain_names_are_these_codes() -> None:
    assert [OUTCOMES[code] for code in (ADMITTED, THROTTLED, REJECTED)] == [
        Outcome.ADMITTED,
        Outcome.THROTTLED,
        Outcome.REJECTED,
    ]
