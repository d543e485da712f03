"""``kvota`` finds the subcommand, imports only that, and turns errors into exit codes."""

import argparse
import difflib
import importlib
import os
import sys
import traceback
from importlib.metadata import version
from typing import Any, NoReturn, Protocol, cast

from kvota.app.cli.exit_codes import DONE, INTERRUPTED, NEGATIVE, UNREACHABLE, WRONG_USE
from kvota.files.command_name import called
from kvota.model.errors import KvotaError, UnreachableError, UsageError

# Packages that a command may miss, each with the extra that brings it.
EXTRA_OF = {
    "uvloop": "gateway",
    "pyarrow": "gateway",
    "pyspark": "spark",
    "pandas": "spark",
    "numba": "spark",
    "numpy": "spark",
    "kio": "client",
    "confluent_kafka": "demo",
    "kafka": "demo",
}

# Each command has one line here, and a module of its name in this package.
COMMANDS: dict[str, str] = {
    "demo": "the whole circle on a real Kafka, in about four minutes",
    "gateway": "run the gateway in front of a Kafka cluster",
    "record": "merge, check and show the files of a record",
    "status": "who is held back now, and who uses how much of its limit",
    "explain": "why a client is treated as it is, until when, and what would change it",
    "usage": "who uses how much, from the record",
    "replay": "what other quotas would have done, from the record",
    "recommend": "a quota for every tenant, under a capacity you state",
    "volumes": "how full the brokers' disks are, and whom that slows down",
    "kafka": "start and stop a real Apache Kafka on this machine",
}


class Command(Protocol):
    """A command's module, as ``main`` uses it."""

    EXAMPLE: str  # with {kvota} where the program's name stands

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do what the command is for; return the exit code."""
        ...


class _Parser(argparse.ArgumentParser):
    """Starts its help with an example; answers wrong use with the nearest word and exit code 2."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        kwargs["allow_abbrev"] = False
        super().__init__(*args, **kwargs)
        self._example = example

    def format_help(self) -> str:
        """Return the help, with the example first."""
        start = f"example:\n  {self._example}\n\n" if self._example else ""
        return start + super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print one line, with the nearest option if one was misspelt, and exit."""
        words = [word.partition("=")[0] for word in sys.argv if word.startswith("--")]
        unknown = [word for word in words if word in message and word not in self._known()]
        near = difflib.get_close_matches(unknown[0], self._known(), n=1) if unknown else []
        hint = f' Did you mean "{near[0]}"?' if near else ""
        print(f"{self.prog}: {message}.{hint} See {self.prog} --help", file=sys.stderr)
        sys.exit(WRONG_USE)

    def _known(self) -> list[str]:
        return list(self._option_string_actions)


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit code (see ``exit_codes``)."""
    try:
        return _chosen(sys.argv[1:] if argv is None else argv)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _chosen(arguments: list[str]) -> int:
    if arguments and arguments[0] == "--version":
        print(f"kvota {version('kvota')}")
        return DONE
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        print(_overview())
        return DONE if arguments else WRONG_USE
    name = arguments[0]
    if name not in COMMANDS:
        print(_unknown(name), file=sys.stderr)
        return WRONG_USE
    command = cast("Command", importlib.import_module(f"kvota.app.cli.{name}"))
    parser = _Parser(
        prog=f"{called()} {name}",
        description=f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}.",
        example=command.EXAMPLE.format(kvota=called()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--verbose", action="store_true", help="show the stack trace of an error")
    command.configure(parser)
    args = parser.parse_args(arguments[1:])
    return _run(command, args)


def _run(command: Command, args: argparse.Namespace) -> int:
    try:
        return command.run(args)
    except BrokenPipeError:  # the reader of our table has left: not an error of ours
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        print(
            f"kvota: this needs {package}, which is not installed. "
            f"pip install 'kvota[{EXTRA_OF[package]}]'",
            file=sys.stderr,
        )
        return WRONG_USE
    except KvotaError as error:
        if args.verbose:
            traceback.print_exc()
        print(f"kvota: {error}", file=sys.stderr)
        if isinstance(error, UsageError):
            return WRONG_USE
        return UNREACHABLE if isinstance(error, UnreachableError) else NEGATIVE


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
