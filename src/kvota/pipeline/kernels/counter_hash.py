"""Numbers of counters: Spark's ``xxhash64`` of several columns, which is XXH64 with the hash so far as its seed."""

from typing import Any

import numpy as np
import numpy.typing as npt

from kvota.pipeline.kernels.compiled_arithmetic import kernel, step
from kvota.pipeline.kernels.counter_steps import Int64s
from kvota.pipeline.kernels.packing import Bytes

Hashes = npt.NDArray[np.uint64]

# What Spark begins with.
SEED = 42

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)

# Numba makes a floating number of an unsigned and a signed one, so all of them are unsigned.
_BITS = np.uint64(64)
_BYTE = np.uint64(8)


@step
def _turned(number: Any, bits: int) -> Any:
    left = np.uint64(bits)
    return (number << left) | (number >> (_BITS - left))


@step
def _read(data: Bytes, at: int, length: int) -> Any:
    number = np.uint64(0)
    for byte in range(length):
        number |= np.uint64(data[at + byte]) << (_BYTE * np.uint64(byte))
    return number


@step
def _mixed(lane: Any, word: Any) -> Any:
    return _turned(lane + word * _PRIME_2, 31) * _PRIME_1


@step
def _with_lane(found: Any, lane: Any) -> Any:
    return (found ^ _mixed(np.uint64(0), lane)) * _PRIME_1 + _PRIME_4


@step
def _ended(found: Any) -> Any:
    found ^= found >> np.uint64(33)
    found *= _PRIME_2
    found ^= found >> np.uint64(29)
    found *= _PRIME_3
    return found ^ (found >> np.uint64(32))


@step
def _with_four_bytes(found: Any, word: Any) -> Any:
    return _turned(found ^ (word * _PRIME_1), 23) * _PRIME_2 + _PRIME_3


@step
def _of_text(data: Bytes, start: int, end: int, seed: Any) -> Any:
    at = start
    found = seed + _PRIME_5
    if end - start >= 32:
        first, second = seed + _PRIME_1 + _PRIME_2, seed + _PRIME_2
        third, fourth = seed, seed - _PRIME_1
        while at + 32 <= end:
            first = _mixed(first, _read(data, at, 8))
            second = _mixed(second, _read(data, at + 8, 8))
            third = _mixed(third, _read(data, at + 16, 8))
            fourth = _mixed(fourth, _read(data, at + 24, 8))
            at += 32
        found = _turned(first, 1) + _turned(second, 7) + _turned(third, 12) + _turned(fourth, 18)
        found = _with_lane(found, first)
        found = _with_lane(found, second)
        found = _with_lane(found, third)
        found = _with_lane(found, fourth)
    found += np.uint64(end - start)
    while at + 8 <= end:
        word = _mixed(np.uint64(0), _read(data, at, 8))
        found = _turned(found ^ word, 27) * _PRIME_1 + _PRIME_4
        at += 8
    if at + 4 <= end:
        found = _with_four_bytes(found, _read(data, at, 4))
        at += 4
    while at < end:
        found = _turned(found ^ (np.uint64(data[at]) * _PRIME_5), 11) * _PRIME_1
        at += 1
    return _ended(found)


@kernel
def hash_texts(data: Bytes, offsets: Int64s, hashes: Hashes) -> None:
    """Add a column of texts to the hashes so far.

    Args:
        data: the texts' UTF-8, one after the other.
        offsets: where each text starts, and the end.
        hashes: in and out: one per row.
    """
    for row in range(len(hashes)):
        hashes[row] = _of_text(data, offsets[row], offsets[row + 1], hashes[row])


@kernel
def hash_ints(numbers: Int64s, hashes: Hashes) -> None:
    """Add a column of whole numbers of 32 bits to the hashes so far.

    Args:
        numbers: one per row.
        hashes: in and out: one per row.
    """
    for row in range(len(hashes)):
        word = np.uint64(numbers[row] & 0xFFFFFFFF)
        hashes[row] = _ended(_with_four_bytes(hashes[row] + _PRIME_5 + np.uint64(4), word))
