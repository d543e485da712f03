"""The gateway that runs with a gateway.toml, found by the file that it holds: nobody has to know its process id."""

import logging
import os
import shlex
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from kvota.app.config import GatewayConfig
from kvota.files.command_name import called, called_anywhere
from kvota.files.process_lock import HeldError, ProcessLock, holder, told
from kvota.model.errors import UnreachableError, UsageError

log = logging.getLogger("kvota.gateway")

# The result of a reload, as it is told: its number and one of the first two, the lines of the log, its number and
# the last one.
ACCEPTED, REFUSED, END = "accepted", "refused", "end"

# Reading 10,000 entities takes half a second.
_ANSWER_S_MAX = 20.0
_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Reloaded:
    """What the running gateway has made of its files at its ``number``-th reload; ``lines`` are those of its log."""

    number: int
    is_accepted: bool
    lines: tuple[str, ...]


def hold_pid_file(config: GatewayConfig) -> ProcessLock | None:
    """Hold the file by which a reload finds this process; None, and a warning, where that cannot be.

    Raises:
        UsageError: a gateway with this gateway.toml runs, or the file that is stated cannot be written.
    """
    path = config.pid_file
    try:
        return ProcessLock.take(path)
    except HeldError as error:
        msg = (
            f"a gateway with {config.path} runs already (process {error.pid or 'unknown'}, which holds {path}). "
            f"To have it read its files again: {reload_command(config)}. "
            "To end it: send it SIGTERM"
        )
        raise UsageError(msg) from None
    except OSError as error:
        if config.is_pid_file_stated:
            msg = (
                f"{config.path}: gateway.pid_file: {path} cannot be written: {error.strerror}. "
                "Name a file in a folder that the gateway may write to"
            )
            raise UsageError(msg) from error
        log.warning(
            "%s cannot be written: %s. This gateway is not found by '%s gateway reload', SIGHUP does it; or "
            "name another place with gateway.pid_file",
            path,
            error.strerror,
            called(),
        )
        return None


def reload_command(config: GatewayConfig) -> str:
    """What to type, wherever one stands, to have the gateway with this file read its files again."""
    return f"{called_anywhere()} gateway reload -c {shlex.quote(str(config.path.absolute()))}"


def running_pid(path: Path) -> int | None:
    """Return the process id of the gateway that holds this file, None where none does.

    Raises:
        UsageError: the file cannot be read, or its holder cannot be seen from here.
    """
    try:
        pid = holder(path)
    except OSError as error:
        msg = f"{path} cannot be read: {error.strerror}. Run this as the user of the gateway"
        raise UsageError(msg) from error
    if pid == 0:
        msg = f"{path} is held by a process of another container. Run this where the gateway runs"
        raise UsageError(msg)
    return pid


def reload_running(config: GatewayConfig) -> Reloaded:
    """Have the gateway that runs with this file read its files again; wait for what it says.

    Raises:
        UnreachableError: none runs, or it does not answer.
        UsageError: it is somebody else's.
    """
    path = config.pid_file
    pid = running_pid(path)
    if pid is None:
        msg = (
            f"no gateway runs with {config.path} (nobody holds {path}). "
            f"To start one: {called()} gateway -c {config.path}"
        )
        raise UnreachableError(msg)
    latest = _result(told(path))
    before = 0 if latest is None else latest.number
    try:
        os.kill(pid, signal.SIGHUP)
    except PermissionError:
        msg = f"process {pid}, the gateway with {config.path}, is another user's. Run this as that user"
        raise UsageError(msg) from None
    except ProcessLookupError:
        msg = f"the gateway with {config.path} (process {pid}) has just ended"
        raise UnreachableError(msg) from None
    end = time.monotonic() + _ANSWER_S_MAX
    while time.monotonic() < end:
        result = _result(told(path) if path.exists() else ())
        if result is not None and result.number > before:
            return result
        if holder(path) != pid:
            msg = f"the gateway with {config.path} (process {pid}) has ended meanwhile; its log says why"
            raise UnreachableError(msg)
        time.sleep(_LOOK_S)
    msg = (
        f"the gateway with {config.path} (process {pid}) has not answered in {_ANSWER_S_MAX:.0f} s; "
        "its log says what it does"
    )
    raise UnreachableError(msg)


def _result(lines: tuple[str, ...]) -> Reloaded | None:
    """Return what the lines tell; None where they tell nothing yet, or are being written just now."""
    number, _, word = lines[0].partition(" ") if lines else ("", "", "")
    end = f"{number} {END}"
    if not number.isdecimal() or end not in lines:
        return None
    return Reloaded(int(number), word == ACCEPTED, lines[1 : lines.index(end)])
