"""What was meant by an amount that is written otherwise: never a guess that kvota itself would refuse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvota.model.suggested_units import (
    suggested_byte_rate,
    suggested_bytes,
    suggested_duration,
    suggested_rate,
)
from kvota.model.units import parse_byte_rate, parse_bytes, parse_duration_ms, parse_rate


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("8 mb/s", "8MB/s"),
        ("8MB", "8MB/s"),
        ("8MBps", "8MB/s"),
        ("1.5 mib per second", "1.5MiB/s"),
        ("2 gigabytes per minute", "33.3333MB/s"),
        ("10 mebibytes/sec", "10MiB/s"),
        ("80 Mbit/s", "10MB/s"),
        ("100,000 B/s", "100KB/s"),
        ("1k/s", "1KB/s"),
    ],
)
def test_a_byte_rate_in_other_words(written: str, meant: str) -> None:
    assert suggested_byte_rate(written) == f'"{meant}"'


@pytest.mark.parametrize("written", ["8Mb/s", "8 Mbps"])
def test_bits_and_bytes_are_both_offered_where_nobody_can_know(written: str) -> None:
    assert suggested_byte_rate(written) == '"8MB/s", or "1MB/s" if bits are meant'


@pytest.mark.parametrize(
    "written", ["", "fast", "8 apples/s", "MB/s", "-1MB/s", "1.000.000", "8MB/x"]
)
def test_where_it_cannot_be_told_nothing_is_offered(written: str) -> None:
    assert suggested_byte_rate(written) is None
    assert suggested_bytes(written) is None
    assert suggested_rate(written) is None
    assert suggested_duration(written) is None


NUMBERS = st.one_of(
    st.integers(0, 10**9).map(str), st.floats(0.001, 10**6).map(lambda number: f"{number:.3f}")
)
WORDS = st.sampled_from(
    ["", "b", "kb", "KB", "mb", "MB", "MiB", "gb", "tib", "bytes", "kilobytes", "mbit", "Mb"]
)
TIMES = st.sampled_from(["", "/s", "/sec", " per second", "/min", "/h", " a day", "ps"])


@given(number=NUMBERS, gap=st.sampled_from(["", " "]), word=WORDS, time=TIMES)
def test_what_is_offered_is_read(number: str, gap: str, word: str, time: str) -> None:
    written = f"{number}{gap}{word}{time}"
    offers = (
        (suggested_byte_rate(written), parse_byte_rate),
        (suggested_bytes(written), parse_bytes),
        (suggested_rate(written), parse_rate),
    )

    for offer, parse in offers:
        if offer is not None:
            parse(offer.split('"')[1])


@given(number=NUMBERS, unit=st.sampled_from(["", " s", "sec", " minutes", "H", " days", "weeks"]))
def test_a_time_that_is_offered_is_read(number: str, unit: str) -> None:
    offer = suggested_duration(f"{number}{unit}")

    assert offer is not None
    parse_duration_ms(offer.strip('"'))
