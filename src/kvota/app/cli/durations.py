"""Times as values of options."""

import argparse

from kvota.model.units import parse_duration_ms


def duration_ms(text: str) -> int:
    """Read a time with its unit.

    Raises:
        ArgumentTypeError: it is none.
    """
    try:
        return parse_duration_ms(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def duration_above_0_ms(text: str) -> int:
    """Read a time of 1 ms or more.

    Raises:
        ArgumentTypeError: it is none.
    """
    found_ms = duration_ms(text)
    if found_ms < 1:
        msg = f'"{text}" is not above 0'
        raise argparse.ArgumentTypeError(msg)
    return found_ms
