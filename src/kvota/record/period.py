"""A part of a record is named by when its decisions were made."""

from dataclasses import dataclass

# Beyond the year 9999 a time has no name.
END_OF_TIME_US = 253_402_300_800_000_000


def is_a_time(ts_us: int) -> bool:
    """Return whether a calendar has it, and a gateway's clock may have told it: from 1970 to 9999."""
    return 0 <= ts_us < END_OF_TIME_US


@dataclass(frozen=True, slots=True)
class Period:
    """A part of a record: from ``since_us`` to before ``until_us``, Unix microseconds."""

    since_us: int = -(2**63)
    until_us: int = 2**63  # a decision may be of the last microsecond that there is


ALWAYS = Period()
