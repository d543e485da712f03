"""The order in which Java's HashMap goes through its keys: Kafka's checks, and its answers, follow it.

Where several things are wrong at once, a broker names the first it comes upon.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")

_MASK = 0xFFFF_FFFF
_DEFAULT_CAPACITY = 16


@lru_cache(maxsize=256)  # types and keys repeat
def string_hash(text: str) -> int:
    """``String.hashCode``, without its sign.

    >>> string_hash("user"), string_hash("client-id")
    (3599307, 2390829661)
    """
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & _MASK
    return value


def map_hash(mapping: Mapping[str, str | None]) -> int:
    """``Map.hashCode`` of a mapping of strings, without its sign."""
    return (
        sum(string_hash(key) ^ string_hash(value or "") for key, value in mapping.items()) & _MASK
    )


def hash_order(
    items: Sequence[T], hashes: Iterable[int], *, capacity: int = _DEFAULT_CAPACITY
) -> list[T]:
    """The items as a HashMap iterates over them.

    Args:
        items: distinct keys, in the order in which they were put.
        hashes: their hash codes.
        capacity: what the map was made with.
    """
    slots = 1
    while slots < capacity:
        slots *= 2
    while len(items) > slots * 3 // 4:
        slots *= 2
    # A bucket keeps the order in which its keys came, also when the table grows.
    indexes = [(value ^ value >> 16) & slots - 1 for value in hashes]
    return [items[at] for at in sorted(range(len(items)), key=indexes.__getitem__)]


def string_order(keys: Iterable[str], *, capacity: int = _DEFAULT_CAPACITY) -> tuple[str, ...]:
    """The same of strings.

    >>> string_order(["user", "client-id", "ip"], capacity=3)
    ('client-id', 'user', 'ip')
    """
    return _string_order(tuple(keys), capacity)


@lru_cache(maxsize=256)
def _string_order(keys: tuple[str, ...], capacity: int) -> tuple[str, ...]:
    return tuple(hash_order(keys, map(string_hash, keys), capacity=capacity))
