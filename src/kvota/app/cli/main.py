"""``kvota`` finds the subcommand, imports only that, and turns errors into exit codes."""

import argparse
import difflib
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Protocol, cast

from kvota.app.cli import standard_streams
from kvota.app.cli.exit_codes import (
    BROKEN,
    CODE_OF_ERROR,
    DONE,
    INTERRUPTED,
    UNREACHABLE,
    WRONG_USE,
)
from kvota.app.cli.parser import Parser
from kvota.files.cache import cache_folder
from kvota.files.command_name import called
from kvota.model.errors import KvotaError

# The extra that brings all that a command needs; what others miss depends on their settings.
EXTRA_OF_COMMAND = {
    "demo": "demo",
    "usage": "spark",
    "ingest": "spark",
    "replay": "spark",
    "recommend": "spark",
    "report": "report",
    "forecast": "spark",
    "kafka": "localkafka",
    "quotas": "client",
    "topics": "client",
    "configs": "client",
}
# Packages that a command may miss, each with the extra that brings it.
EXTRA_OF = {
    "uvloop": "gateway",
    "pyarrow": "gateway",
    "starlette": "gateway",
    "uvicorn": "gateway",
    "pyspark": "spark",
    "pandas": "spark",
    "numba": "spark",
    "rich": "spark",
    "orjson": "spark",
    "jinja2": "report",
    "matplotlib": "report",
    "numpy": "spark",
    "grpc": "connect",
    "kio": "client",
    "yaml": "client",
    "confluent_kafka": "demo",
    "kafka": "demo",
}

# Each command has one line here, and a module of its name in this package.
COMMANDS: dict[str, str] = {
    "demo": "the whole circle on a real Kafka, in about four minutes",
    "gateway": "run the gateway in front of a Kafka cluster",
    "record": "merge, check and show the files of a record",
    "ingest": "take what gateways record, in folders or a topic, into one record",
    "status": "who is held back now, and who uses how much of its limit",
    "explain": "why a client is treated as it is, until when, and what would change it",
    "usage": "who uses how much, from the record",
    "replay": "what other quotas would have done, from the record",
    "recommend": "a quota for every tenant, under a capacity you state",
    "report": "one HTML file with plots: who uses how much, what quotas and a plan do, how disks fill",
    "forecast": "when disks reach their limits, and when tenants outgrow their quotas",
    "quotas": "keep quotas in a file: export, plan, apply, undo",
    "topics": "create, grow, delete and describe topics; says how long a spent quota makes it wait",
    "configs": "quotas and settings with the arguments of kafka-configs.sh, without a JVM",
    "volumes": "how full the brokers' disks are, and whom that slows down",
    "kafka": "start and stop a real Apache Kafka on this machine",
}


# Of Ctrl-C in this process. A library may make another error of it, as PyArrow does while it imports pandas.
_interrupts: list[int] = []


class Command(Protocol):
    """A command's module, as ``main`` uses it."""

    EXAMPLE: str  # with {kvota} where the program's name stands

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do what the command is for; return the exit code."""
        ...


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit code (see ``exit_codes``)."""
    if argv is not None:
        return _code(argv)
    _leave_hypothesis_out()
    standard_streams.prepare()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is to be ignored
        signal.signal(signal.SIGINT, _interrupt)
    return _code(sys.argv[1:], ends=_take_no_more_interrupts)


def _code(arguments: list[str], ends: Callable[[], object] = lambda: None) -> int:
    """Run one command and call ``ends``, then say if it was interrupted; return the exit code."""
    try:
        try:
            return _answered(arguments)
        finally:
            ends()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _interrupt(number: int, frame: FrameType | None) -> None:
    _interrupts.append(number)
    signal.default_int_handler(number, frame)


def _answered(arguments: list[str]) -> int:
    """Do what is asked, and see that what was printed is written: Python does it as it ends, too late to say why not."""
    try:
        try:
            return _chosen(arguments)
        finally:  # also behind a help text, which ends by SystemExit
            sys.stdout.flush()
    except OSError as error:  # of what is printed: those of a command have become its code
        return _unwritten(error)


def _chosen(arguments: list[str]) -> int:
    if arguments[:1] in (["--version"], ["-V"], ["version"]):
        from importlib.metadata import (
            version,
        )  # it takes as long to load as all of this program's start

        print(f"kvota {version('kvota')}")
        return DONE
    if arguments[:1] in (["-h"], ["--help"], ["help"]) and set(arguments[1:]) & set(COMMANDS):
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        print(_overview())
        return DONE if arguments else WRONG_USE
    name = arguments[0]
    if name not in COMMANDS:
        print(_unknown(name), file=sys.stderr)
        return WRONG_USE
    command = cast("Command", importlib.import_module(f"kvota.app.cli.{name}"))
    parser = Parser(
        prog=f"{called()} {name}",
        description=f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}.",
        example=command.EXAMPLE.format(kvota=called()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--verbose", action="store_true", help="show the stack trace of an error")
    command.configure(parser)
    args = parser.parse_args(arguments[1:])
    return _run(name, command, args)


def _unwritten(error: OSError) -> int:
    """Say why nobody gets what was printed; return the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    # Its reader has left, such as head: not an error of ours.
    if isinstance(error, BrokenPipeError):
        return DONE
    print(f"kvota: the answer could not be written: {error.strerror}", file=sys.stderr)
    return UNREACHABLE


def _take_no_more_interrupts() -> None:
    """The answer has been given, or Ctrl-C taken: as Python ends, one more would end it by the signal, not by its code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _leave_hypothesis_out() -> None:
    """Kio loads Hypothesis where tests have installed it, which then leaves a folder where the user stands."""
    sys.modules.setdefault("hypothesis", cast("ModuleType", None))


def _run(name: str, command: Command, args: argparse.Namespace) -> int:
    try:
        return command.run(args)
    except Exception as error:  # noqa: BLE001  (whatever it is: its exit code must be no answer to what was asked)
        return _code_of(error, name, args)


def _code_of(error: Exception, name: str, args: argparse.Namespace) -> int:
    """Say what went wrong, and what to do; return the exit code."""
    if isinstance(error, BrokenPipeError) or (
        isinstance(error, OSError) and error.filename == standard_streams.ANSWER
    ):
        return _unwritten(error)
    if isinstance(error, KvotaError):
        _say(str(error), args)
        return next(code for kind, code in CODE_OF_ERROR.items() if isinstance(error, kind))
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and package in EXTRA_OF:
        extra = EXTRA_OF_COMMAND.get(name, EXTRA_OF[package])
        _say(f"this needs {package}, which is not installed. pip install 'kvota[{extra}]'", args)
        return WRONG_USE
    if isinstance(error, OSError) and error.filename is not None:
        _say(f"{error.filename}: {error.strerror}.{_remedy(str(error.filename))}", args)
        return UNREACHABLE
    if _interrupts:
        raise KeyboardInterrupt from error
    traceback.print_exception(error)
    report = "that is a fault of kvota itself; please report it with the lines above"
    print(f"kvota: {report}", file=sys.stderr)
    return BROKEN


def _say(text: str, args: argparse.Namespace) -> None:
    if args.verbose:
        traceback.print_exc()
    print(f"kvota: {text}", file=sys.stderr)


def _remedy(path: str) -> str:
    """Say what to do about a file that the system refuses, where it is one of kvota's own."""
    if Path(path).is_relative_to(cache_folder()):
        return f" That is in kvota's own folder; another one can be named: KVOTA_CACHE=/path {called()} …"
    return ""


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {line}" for name, line in COMMANDS.items()]
    return "\n".join(
        [
            "example:",
            f"  {called()} demo",
            "",
            f"{called()} COMMAND [options]: quotas for Apache Kafka",
            "",
            *lines,
            "",
            f"{called()} COMMAND --help explains a command.",
        ]
    )


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f'Did you mean "{near[0]}"?' if near else f"Known are {', '.join(COMMANDS)}."
    return f'kvota: there is no command "{name}". {hint}'


if __name__ == "__main__":
    sys.exit(main())
