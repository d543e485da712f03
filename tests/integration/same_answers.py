"""Whether a client is told by the gateway what the broker would tell it: two answers to one question, field by field."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from kvota.wire.broker_configs import is_address

Told = Callable[[str, int], tuple[str, int]]

# Not compared, by the field's name: the question was asked twice, and these say when, how often, or of whom.
MASKED = {
    "throttle_time": "the broker and the gateway each count what they have seen themselves",
}


def differences(straight: Any, through: Any, told: Told) -> list[str]:
    """What differs, each with its place; ``told`` says where the gateway shows an address of a broker's.

    An address is compared as a pair, so a host or a port that belongs to another node is a difference. A setting
    of a broker's that holds addresses has to be empty, and marked as a secret.
    """
    return list(_differences(_as_told(straight, told), through, ""))


def _differences(straight: Any, through: Any, at: str) -> Iterator[str]:
    if dataclasses.is_dataclass(straight) and type(straight) is type(through):
        for field in dataclasses.fields(straight):
            if field.name not in MASKED:
                one, other = getattr(straight, field.name), getattr(through, field.name)
                yield from _differences(one, other, f"{at}.{field.name}")
    elif _is_list(straight) and _is_list(through) and len(straight) == len(through):
        for number, (one, other) in enumerate(zip(straight, through, strict=True)):
            yield from _differences(one, other, f"{at}[{number}]")
    elif straight != through:
        yield f"{at[1:]}: {straight!r} | {through!r}"


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple)


def _as_told(value: Any, told: Told) -> Any:
    """The broker's answer with what the gateway has to change in it."""
    if _is_list(value):
        return tuple(_as_told(one, told) for one in value)
    if not dataclasses.is_dataclass(value):
        return value
    content: dict[str, Any] = {
        field.name: _as_told(getattr(value, field.name), told)
        for field in dataclasses.fields(value)
    }
    if content.keys() >= {"host", "port"}:
        content["host"], content["port"] = told(content["host"], content["port"])
    if content.keys() >= {"name", "value"} and is_address(content["name"]) and content["value"]:
        content["value"] = None
        if "is_sensitive" in content:
            content["is_sensitive"] = True
    return type(value)(**content)
