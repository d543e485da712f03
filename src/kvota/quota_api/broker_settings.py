"""Decides what alterations of the gateway's settings do, as a broker of Kafka 4.3 decides about its own.

Codes and words are those with which it answers about a setting of its own that is a number and can be changed
dynamically, such as ``background.threads``.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from kvota.model.broker_settings import (
    WINDOW_DEFAULTS,
    SettingChanges,
    Settings,
    is_gateways,
    with_changes,
)
from kvota.wire.alter_configs import APPEND, DELETE, SET, SUBTRACT, Operation
from kvota.wire.error_code import ErrorCode
from kvota.wire.steps import STEP_PARTS, Steps

# Of all settings together, with their names: so much stands in one row after the other of a topic.
SETTINGS_MAX = 200
SETTINGS_BYTES_MAX = 256 * 1024

_JAVA_BLANKS = bytes(range(0x21)).decode("ascii")  # what Java's trim() cuts
_INT = re.compile(r"[+-]?\d{1,11}")
_INT_MAX = 2**31 - 1
# A sample that is as long as a day, and a window of ten thousand of them, are beyond all use.
_LARGEST: Mapping[str, int] = MappingProxyType(
    {name: 10_000 if name.endswith(".num") else 86_400 for name in WINDOW_DEFAULTS}
)
_WORDS = {APPEND: "append", SUBTRACT: "subtract"}


class Refused(NamedTuple):
    """Why nothing is altered, in Kafka's words."""

    error_code: int
    message: str


def judge(
    operations: Sequence[Operation],
    stored: Settings,
    *,
    replaces: bool,
    of_all: bool,
    may_lag: bool = False,
) -> Steps[SettingChanges | Refused]:
    """What one resource's part of a request changes of the gateway's settings, many of them in steps.

    Args:
        operations: all of the resource, those on the broker's own settings among them.
        stored: what is set dynamically now.
        replaces: what is not named is removed.
        of_all: it is about all brokers; else about one, for which the gateway has no settings.
        may_lag: what is stored may be newer than ``stored``: what seems to be so already is a change, too.
    """
    refused = _misshapen(operations)
    if refused is not None:
        return refused
    is_long = len(operations) > STEP_PARTS
    if is_long:
        yield
    of_gateway = [each for each in operations if is_gateways(each.name)]
    asked: dict[str, str | None] = dict.fromkeys(stored) if replaces and of_all else {}
    for name, value, operation, *_ in of_gateway:
        if operation in _WORDS:
            words = f"Config value {_WORDS[operation]} is not allowed for config key: {name}"
            return Refused(ErrorCode.INVALID_CONFIG, words)
        if operation not in {SET, DELETE}:
            return Refused(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
        asked[name] = None if operation == DELETE else value
    if is_long:
        yield
    changes = {name: value for name, value in asked.items() if may_lag or stored.get(name) != value}
    if not of_all:
        return _for_one_broker(asked)
    fault = _fault_of_values(changes)
    if is_long:
        yield
    return fault or _too_much(with_changes(stored, changes)) or changes


def _misshapen(operations: Sequence[Operation]) -> Refused | None:
    counts = Counter(each.name for each in operations)
    if len(counts) < len(operations):
        return Refused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    without_value = [
        each.name for each in operations if each.value is None and each.operation != DELETE
    ]
    if without_value:
        words = f"Null value not supported for : {', '.join(without_value)}"
        return Refused(ErrorCode.INVALID_REQUEST, words)
    return None


def _for_one_broker(asked: SettingChanges) -> SettingChanges | Refused:
    """None is ever set there, so there is none to delete."""
    names = [name for name, value in asked.items() if value is not None]
    if not names:
        return {}
    return Refused(
        ErrorCode.INVALID_REQUEST,
        "Cannot update these configs for one broker, the gateway has them for all brokers: alter the default "
        f"(--entity-default): {_listed(names)}",
    )


def _fault_of_values(changes: SettingChanges) -> Refused | None:
    for name, value in changes.items():
        words = None if value is None else fault_of_number(name, value)
        if words is not None:
            return Refused(ErrorCode.INVALID_REQUEST, words)
    return None


def fault_of_number(name: str, value: str) -> str | None:
    """What is wrong with the value of a setting that is a number; None: nothing, or it is no such setting."""
    largest = _LARGEST.get(name)
    if largest is None:
        return None
    number = number_of(value)
    if number is None:
        problem = "Not a number of type INT"
    elif number < 1:
        problem = "Value must be at least 1"
    elif number > largest:
        problem = f"Value must be no more than {largest}"
    else:
        return None
    return f"Invalid value {value} for configuration {name}: {problem}"


def number_of(value: str) -> int | None:
    """The number that Java reads as an INT, or None."""
    text = value.strip(_JAVA_BLANKS)
    if not _INT.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT_MAX - 1 <= number <= _INT_MAX else None


def _too_much(settings: Settings) -> Refused | None:
    size_bytes = sum(len(name.encode()) + len(value.encode()) for name, value in settings.items())
    if len(settings) <= SETTINGS_MAX and size_bytes <= SETTINGS_BYTES_MAX:
        return None
    return Refused(
        ErrorCode.INVALID_REQUEST,
        f"The gateway keeps at most {SETTINGS_MAX} dynamic settings of {SETTINGS_BYTES_MAX} bytes in all; "
        f"these would be {len(settings)} of {size_bytes} bytes",
    )


def mixed(gateways: Iterable[str], brokers: Iterable[str]) -> Refused:
    """Both keep settings, and one alteration is made whole or not at all."""
    return Refused(
        ErrorCode.INVALID_REQUEST,
        f"Nothing is altered: of these the gateway keeps {_listed(gateways)} and the broker {_listed(brokers)}. "
        "Alter them one after the other",
    )


def _listed(names: Iterable[str]) -> str:
    """As Java shows a list."""
    return f"[{', '.join(sorted(names))}]"
