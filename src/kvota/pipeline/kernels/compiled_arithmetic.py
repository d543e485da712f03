"""Compiles the engine's arithmetic: a second instance of that module, with every function by Numba.

There is one set of formulas; none is written anew here.
"""

import importlib.util
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

import numba
from numba.core import config as numba_config

from kvota.engine import arithmetic as plain_arithmetic
from kvota.pipeline.kernels.kept_code import FOLDER

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
            setattr(module, name, numba.njit(error_model="numpy")(function))
    return module


class Locator:
    """Tells Numba where to keep the machine code of one kernel: a place that does not depend on where its source is.

    So code that was sent to a worker, or installed a second time, finds what was compiled before. The folder
    is named after the source of all kernels, so nothing in it can be of another source.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._module, self._line = function.__module__, function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Callable[..., Any], _file: str) -> "Locator":
        """Return the place of a function."""
        found = cls(function)
        found.ensure_cache_path()
        return found

    def ensure_cache_path(self) -> None:
        """Make the folder.

        Raises:
            OSError: it cannot be made.
        """
        FOLDER.mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        """Return the folder."""
        return str(FOLDER)

    def get_source_stamp(self) -> str:
        """Return what changes with the source."""
        return FOLDER.name

    def get_disambiguator(self) -> str:
        """Return what tells apart functions with one name in one module."""
        return f"{self._module}-{self._line}"


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function over arrays at its first call, and keep the machine code for the next process.

    Numba asks where to keep it when it decorates, so the setting is changed for that moment only.
    """
    before = config.CACHE_LOCATOR_CLASSES
    config.CACHE_LOCATOR_CLASSES = f"{__name__}.{Locator.__name__}"
    try:
        return cast(
            "Callable[..., Any]", numba.njit(cache=True, nogil=True, error_model="numpy")(function)
        )
    finally:
        config.CACHE_LOCATOR_CLASSES = before


def step(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a small function that only kernels call; its code becomes part of theirs."""
    return cast("Callable[..., Any]", numba.njit(error_model="numpy")(function))


compiled = _compiled()
