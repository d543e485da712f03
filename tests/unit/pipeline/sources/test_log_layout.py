"""A log4j pattern says where the time is; a zone says when it was."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvota.model.errors import UsageError
from kvota.pipeline.sources.log_clock import LogClock
from kvota.pipeline.sources.log_layout import Layout, layout_of, zone_of

MESSAGE = b"Completed request:{}"


def read(layout: Layout, text: bytes, zone: str | None = None, *, is_second: bool = False) -> int:
    head = layout.head.match(text)
    assert head is not None
    assert text[head.end() :].startswith(MESSAGE)
    clock = LogClock(layout, None if zone is None else zone_of(zone))
    return clock.time_us(head, is_second=is_second)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("[%d] %p %m (%c)%n", b"[2026-11-21 00:42:21,114] DEBUG "),
        ("[%d] %p %m (%c)%n", b"[2026-11-21T00:42:21.114] TRACE "),
        ("%d{yyyy-MM-dd HH:mm:ss.SSS} %p %m (%c)%n", b"2026-11-21 00:42:21.114 DEBUG "),
        ("%d{ISO8601} [%t] %-5p %c{1} - %m%n", b"2026-11-21 00:42:21,114 [a b] DEBUG logger - "),
        ("%d{dd MMM yyyy HH:mm:ss,SSS} %msg", b"21 Nov 2026 00:42:21,114 "),
        ("%d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %m", b"2026-11-21T01:42:21.114+01:00 "),
        ("%d{yyyy-MM-dd HH:mm:ss,SSSZ} %m", b"2026-11-20 20:12:21,114-0430 "),
        ("%d{yyyy-MM-dd HH:mm:ss,SSS}{Europe/Berlin} %m", b"2026-11-21 01:42:21,114 "),
        ("%d{UNIX_MILLIS} %m", b"1795221741114 "),
    ],
)
def test_the_time_is_where_the_pattern_says(pattern: str, text: bytes) -> None:
    layout = layout_of(pattern)
    expected = datetime(2026, 11, 21, 0, 42, 21, 114_000, tzinfo=ZoneInfo("UTC"))

    found = read(layout, text + MESSAGE, "UTC" if layout.needs_zone else None)

    assert found == expected.timestamp() * 1_000_000


@pytest.mark.parametrize(
    ("pattern", "needs"),
    [
        ("[%d] %m", True),
        ("%d{yyyy-MM-dd HH:mm:ss Z} %m", False),
        ("%d{ISO8601}{UTC} %m", False),
        ("%d{UNIX_MILLIS} %m", False),
    ],
)
def test_a_zone_is_asked_for_where_times_have_none(pattern: str, needs: bool) -> None:
    assert layout_of(pattern).needs_zone is needs


@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        ("%p %m", "has no time"),
        ("[%d] %p", "has no time"),
        ("%m %d", "has no time"),
        ("%d{HH:mm:ss} %m", "without year, month, day"),
        ("%d{yyyy-DDD HH:mm:ss} %m", '"DDD"'),
        ("%d{ISO8601}{Mars} %m", '"Mars"'),
    ],
)
def test_a_pattern_that_cannot_be_read_is_refused(pattern: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        layout_of(pattern)


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../../etc/passwd", "a\0b"])
def test_a_zone_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no time zone"):
        zone_of(name)


def test_an_hour_that_is_there_twice_is_told_by_its_order() -> None:
    text = b"[2026-10-25 02:30:00,000] DEBUG " + MESSAGE

    first, second = (
        read(layout_of(), text, "Europe/Berlin", is_second=second) for second in (False, True)
    )

    assert second - first == 3_600_000_000


def test_an_hour_that_clocks_were_put_forward_over_is_no_time() -> None:
    with pytest.raises(ValueError, match="clocks were put forward"):
        read(layout_of(), b"[2026-03-29 02:30:00,000] DEBUG " + MESSAGE, "Europe/Berlin")


@given(
    seconds=st.integers(315_532_800, 2_145_916_800),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe"]),
)
def test_every_moment_comes_back(seconds: int, zone: str) -> None:
    local = datetime.fromtimestamp(seconds, ZoneInfo(zone))
    text = f"[{local:%Y-%m-%d %H:%M:%S},042] DEBUG ".encode()

    found = read(layout_of(), text + MESSAGE, zone, is_second=bool(local.fold))

    assert found == seconds * 1_000_000 + 42_000
