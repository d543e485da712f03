"""Whether a client is told by the gateway what the broker would tell it: two answers to one question, field by field."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any

from kvota.wire.broker_configs import is_address

Told = Callable[[str, int], tuple[str, int]]

# Not compared, as "field" or "API.field", and why: the others have to be the same.
MASKED = {
    "throttle_time": "the broker and the gateway each count what they have seen themselves",
    "controller_id": "a broker names any of them, each time another one",
    "ApiVersions.finalized_features_epoch": "an offset of the log of the cluster's metadata, which goes on",
    "DescribeQuorum.high_watermark": "of that log, too",
    "DescribeQuorum.log_end_offset": "of that log, too",
    "DescribeQuorum.last_fetch_timestamp": "when that log was read",
    "DescribeQuorum.last_caught_up_timestamp": "when that log was read",
    "DescribeLogDirs.usable_bytes": "of a disk on which others write, too",
    "InitProducerId.producer_id": "generated for who asks",
    "InitProducerId.producer_epoch": "counts who has asked",
    "ApiVersions.api_keys": "what the gateway leaves out has a test of its own",
    "AlterClientQuotas.entries": "the gateway answers itself: its quotas are in quotas.toml",
}


def differences(api: str, straight: Any, through: Any, told: Told) -> list[str]:
    """What differs, each with its place.

    An address is compared as a pair, so a host or a port that belongs to another node is a difference. A setting
    of a broker's that holds addresses has to be empty, and marked as a secret. Settings are told in no order.

    Args:
        api: its name.
        straight: kio's message from the broker.
        through: that from the gateway.
        told: where the gateway shows an address of a broker's.
    """
    hidden = {name.removeprefix(f"{api}.") for name in MASKED}
    return list(_differences(_as_told(straight, told), through, hidden, ""))


def _differences(straight: Any, through: Any, hidden: Set[str], at: str) -> Iterator[str]:
    if dataclasses.is_dataclass(straight) and type(straight) is type(through):
        for field in dataclasses.fields(straight):
            if field.name not in hidden:
                one, other = getattr(straight, field.name), getattr(through, field.name)
                yield from _differences(one, other, hidden, f"{at}.{field.name}")
    elif _is_list(straight) and _is_list(through) and len(straight) == len(through):
        both = zip(_in_order(straight), _in_order(through), strict=True)
        for number, (one, other) in enumerate(both):
            yield from _differences(one, other, hidden, f"{at}[{number}]")
    elif straight != through:
        yield f"{at[1:]}: {straight!r} | {through!r}"


def _is_list(value: Any) -> bool:
    return isinstance(value, tuple)


def _in_order(values: tuple[Any, ...]) -> Sequence[Any]:
    """Settings by their names, others as they are."""
    if all(hasattr(one, "is_sensitive") for one in values):
        return sorted(values, key=lambda one: one.name)
    return values


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
