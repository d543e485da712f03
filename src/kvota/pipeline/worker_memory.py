"""Gives memory back that a worker's allocators keep for later, where the worker has become large."""

import ctypes
import os
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

# Below this nothing is given back: to take it again costs time.
_LARGE_BYTES = 832 << 20

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def give_back() -> None:
    """Give back what Arrow and the C library keep, if this process holds more than 832 MiB."""
    try:
        resident = int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except OSError:
        return
    if resident < _LARGE_BYTES:
        return
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # another C library has no such function
        ctypes.CDLL(None).malloc_trim(0)
