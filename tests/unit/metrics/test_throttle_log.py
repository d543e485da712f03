"""One line when somebody's throttling begins, one when it ends."""

import logging

import pytest
from tests.unit.metrics.conftest import START_MS, Rows, memo

from kvota.metrics.cells import Cells
from kvota.metrics.tally import Tally
from kvota.metrics.throttle_log import ThrottleLog
from kvota.model.decision_sink import ADMITTED, NO_ANSWER, REJECTED, THROTTLED
from kvota.model.quota_type import QuotaType


@pytest.fixture
def rows(caplog: pytest.LogCaptureFixture) -> Rows:
    caplog.set_level(logging.INFO)
    cells = Cells(shown_max=10)
    return Rows(Tally(cells, ThrottleLog(cells, lambda _: "quotas.toml:4")))


def test_a_throttling_that_goes_on_has_two_lines(
    rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    analytics = memo("analytics", limit=2_360_000.0)
    rows.add((analytics, 0, 10_000))
    for second in range(30):
        at_ms = second * 1000
        rows.add((analytics, at_ms, 10_000, 1_400, THROTTLED), (analytics, at_ms, 1, 0, ADMITTED))
        rows.tally.look(START_MS + at_ms)
    for second in range(30, 60):
        rows.tally.look(START_MS + second * 1000)

    assert caplog.messages == [
        (
            "throttling begins: analytics PRODUCE at broker 1, 2.36 MB/s allowed by quotas.toml:4; it has to "
            "wait 1.40 s"
        ),
        (
            "throttling ends: analytics PRODUCE at broker 1, after 30.4 s: 30 of 60 decisions held it back, "
            "for 42.0 s in all"
        ),
    ]


def test_whoever_is_not_held_back_any_more_has_its_end_though_a_long_wait_was_told(
    rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    """Its limit was raised, or its type is in shadow mode now."""
    rows.add((memo("a"), 0, 1, 3_600_000, THROTTLED))
    rows.add((memo("a"), 15_000, 1))
    rows.tally.look(START_MS + 15_000)

    assert [message.split(":")[0] for message in caplog.messages] == [
        "throttling begins",
        "throttling ends",
    ]


def test_shadow_mode_throttles_nobody(rows: Rows, caplog: pytest.LogCaptureFixture) -> None:
    rows.add((memo("a", enforced=False), 0, 1, 500, THROTTLED))

    assert caplog.messages == []


def test_a_request_that_waits_in_line_is_throttled_too(
    rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    mutation = memo("ci-bot", quota_type=QuotaType.CONTROLLER_MUTATION, limit=5.0)
    rows.add((memo("a"), 0, 1, 500, REJECTED, NO_ANSWER), (mutation, 0, 80, 11_900, REJECTED))

    assert len(caplog.messages) == 2
    assert "ci-bot CONTROLLER_MUTATION, 5.00 /s allowed" in caplog.messages[1]


def test_a_storm_is_said_in_few_lines(rows: Rows, caplog: pytest.LogCaptureFixture) -> None:
    rows.add(*[(memo(f"u{n}"), 0, 1, 500, THROTTLED) for n in range(300)])
    for second in range(60):
        rows.tally.look(START_MS + second * 1000)

    assert len(caplog.messages) < 60
    assert any("for 280 others" in message for message in caplog.messages)


def test_names_stay_on_their_line(rows: Rows, caplog: pytest.LogCaptureFixture) -> None:
    evil = memo("x", tags="client-id=%22%7D%0A,user=a%20b")
    rows.add((evil, 0, 1, 500, THROTTLED))

    assert "a%20b/%22%7D%0A PRODUCE" in caplog.messages[0]
