"""Compiles the engine's arithmetic: a second instance of that module, with every function by Numba.

There is one set of formulas; none is written anew here. Compiled kernels are cached in a folder named
after the source of all they may call, because Numba's own cache does not see that a called function
has changed.
"""

import hashlib
import importlib.util
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numba
from numba.core import config as numba_config

from kvota.engine import arithmetic as plain_arithmetic
from kvota.files.cache import cache_folder

# Numba fills this module from the environment when it is imported.
config: Any = numba_config


def _compiled() -> ModuleType:
    spec = importlib.util.find_spec(plain_arithmetic.__name__)
    if spec is None or spec.loader is None:
        msg = f"the source of {plain_arithmetic.__name__} was not found; install kvota anew"
        raise ImportError(msg)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, function in list(vars(module).items()):
        if inspect.isfunction(function):
            setattr(module, name, numba.njit(function))
    return module


def _cache_base() -> Path:
    if config.CACHE_DIR:
        return Path(config.CACHE_DIR)
    beside = Path(__file__).with_name("__pycache__")
    writable = os.access(beside if beside.exists() else beside.parent, os.W_OK)
    return beside / "numba" if writable else cache_folder() / "numba"


def _sources() -> bytes:
    """Return the text of everything kernels call, each other included."""
    files = (Path(inspect.getfile(plain_arithmetic)), *sorted(Path(__file__).parent.glob("*.py")))
    return b"\0".join(file.read_bytes() for file in files)


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function over arrays at its first call, and keep the machine code for the next process.

    Numba asks where to keep it when it decorates, so the setting is changed for that moment only.
    """
    before = config.CACHE_DIR
    config.CACHE_DIR = str(_CACHE_FOLDER)
    try:
        return cast(
            "Callable[..., Any]", numba.njit(cache=True, nogil=True, error_model="numpy")(function)
        )
    finally:
        config.CACHE_DIR = before


def step(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a small function that only kernels call; its code becomes part of theirs."""
    return cast("Callable[..., Any]", numba.njit(error_model="numpy")(function))


_CACHE_FOLDER = _cache_base() / hashlib.blake2b(_sources(), digest_size=8).hexdigest()
compiled = _compiled()
