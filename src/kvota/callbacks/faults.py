"""What is wrong with a callback's class, and where in its file."""

import inspect
import sys
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType, TracebackType

from kvota.callbacks import own_module
from kvota.model.errors import Fault
from kvota.model.plain_text import shortened
from kvota.model.quota_callback import ClientQuotaCallback

# Each method with as many arguments as it is called with, behind self.
_ARGUMENTS = {
    "configure": 1,
    "quota_metric_tags": 3,
    "quota_limit": 2,
    "broker_limit": 3,
    "update_quota": 3,
    "remove_quota": 2,
    "quota_reset_required": 1,
    "update_cluster_metadata": 1,
    "enabled": 1,
    "close": 0,
}
# ``broker_limit`` may call another one of them.
_METHODS = frozenset(_ARGUMENTS)
# An error's text is not longer than this.
_TEXT_MAX = 1_000


def class_faults(name: str, of_class: type[ClientQuotaCallback]) -> list[Fault]:
    """Each method that is missing, takes other arguments, or is a coroutine."""
    faults = []
    missing = sorted(getattr(of_class, "__abstractmethods__", ()))
    if missing:
        remedy = "Write it." if len(missing) == 1 else "Write them."
        faults.append(
            Fault(_place_of_class(of_class), f"{name} lacks {', '.join(missing)}", remedy)
        )
    faults += _method_faults(name, of_class)
    return faults


def fault_of(callback: ClientQuotaCallback, what: str, error: BaseException) -> Fault:
    """A call of a method that has raised."""
    of_class = type(callback)
    place, words = words_of(error, own_module.file_of(of_class.__module__))
    name = f"{of_class.__module__}.{of_class.__qualname__}"
    problem = f"{name}.{what} raises {words}"
    return Fault(place or _place_of_class(of_class), problem, "Mend it.")


def words_of(error: BaseException, file: str) -> tuple[str, str]:
    """Where in this file an error has come up (empty: nowhere), and what it says."""
    place, trace = "", error.__traceback__
    while trace is not None:
        if file and trace.tb_frame.f_code.co_filename == file:
            place = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place, f"{type(error).__name__}: {text_of(error, str)}"


def text_of(error: BaseException, written: Callable[[object], str] = repr) -> str:
    """The text of an error of somebody else's, not longer than a line of a log should be."""
    try:
        text = written(error)
    except BaseException as another:  # noqa: BLE001  (even that is its own affair)
        text = f"{type(error).__name__} (its text cannot be had: {type(another).__name__})"
    return shortened(text, _TEXT_MAX)


def place_of_method(of_class: type, method: str) -> str:
    """The line where a method begins, as ``file:line``; that of the class where it has none."""
    function = inspect.unwrap(getattr(of_class, method, of_class))
    code = getattr(function, "__code__", None)
    return (
        _place_of_class(of_class) if code is None else f"{code.co_filename}:{code.co_firstlineno}"
    )


def call_of(callback: object, trace: TracebackType | None) -> tuple[str, str] | None:
    """The callback's method that was called when it failed, and where in it; None: none was running."""
    calls = []
    while trace is not None:
        calls.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return _method_in(callback, calls)


def call_in(callback: object, frame: FrameType | None) -> tuple[str, str] | None:
    """The same of a thread that is running."""
    calls = []
    while frame is not None:
        calls.append((frame, frame.f_lineno))
        frame = frame.f_back
    return _method_in(callback, calls[::-1])


def line_in_package(package: str, frame: FrameType | None) -> str:
    """Where in a package's files a thread is, as ``file:line``; empty: in none of them."""
    modules = [
        module for name, module in list(sys.modules.items()) if name.partition(".")[0] == package
    ]
    files = {getattr(module, "__file__", None) for module in modules}
    while frame is not None and frame.f_code.co_filename not in files:
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _method_faults(name: str, of_class: type[ClientQuotaCallback]) -> Iterator[Fault]:
    for method, count in _ARGUMENTS.items():
        function = inspect.getattr_static(of_class, method)
        if not isinstance(function, FunctionType):
            continue  # a wrapper of somebody's own is believed
        place = place_of_method(of_class, method)
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            yield Fault(
                place,
                f"{name}.{method} is a coroutine or a generator",
                "It is called on a thread and has to return its answer: write a plain method.",
            )
            continue
        try:
            inspect.signature(function).bind(*range(count + 1))
        except TypeError as error:
            wanted = str(inspect.signature(getattr(ClientQuotaCallback, method)))
            yield Fault(
                place,
                f"{name}.{method} cannot be called with {count} arguments: {error}",
                f"Write def {method}{wanted}.",
            )


def _place_of_class(of_class: type) -> str:
    try:
        _, line = inspect.getsourcelines(of_class)
        return f"{inspect.getsourcefile(of_class)}:{line}"
    except (OSError, TypeError):
        return f"{of_class.__module__}.{of_class.__qualname__}"


def _method_in(callback: object, calls: list[tuple[FrameType, int]]) -> tuple[str, str] | None:
    """The method of the interface among these calls, not what it calls; else the first of the callback's."""
    own = [
        (frame.f_code.co_name, f"{frame.f_code.co_filename}:{line}")
        for frame, line in calls
        if frame.f_locals.get("self") is callback
    ]
    of_interface = [call for call in own if call[0] in _METHODS]
    return of_interface[-1] if of_interface else own[0] if own else None
