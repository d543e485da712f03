"""A part of a record is named by when its decisions were made."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Period:
    """A part of a record: from ``since_us`` to before ``until_us``, Unix microseconds."""

    since_us: int = -(2**63)
    until_us: int = 2**63 - 1


ALWAYS = Period()
