"""The ``kvota`` command: finds the subcommand, imports only that, turns errors into exit codes."""

import argparse
import difflib
import importlib
import os
import sys
import traceback
from importlib.metadata import version
from typing import Any, NoReturn, Protocol, cast

from kvota.model.errors import KvotaError, UnreachableError, UsageError

# What each extra brings that a command may miss.
EXTRA_OF = {
    "uvloop": "gateway",
    "pyarrow": "gateway",
    "pyspark": "spark",
    "pandas": "spark",
    "numba": "spark",
    "numpy": "spark",
    "kio": "localkafka",
    "confluent_kafka": "demo",
    "kafka": "demo",
}

DONE, NEGATIVE, WRONG_USE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130

# Name → one line. The module of the same name in this package does it.
COMMANDS: dict[str, str] = {
    "demo": "the whole circle on a real Kafka, in about four minutes",
    "gateway": "run the gateway in front of a Kafka cluster",
    "usage": "who uses how much, from the record",
    "replay": "what other quotas would have done, from the record",
    "recommend": "a quota for every tenant, under a capacity you state",
    "kafka": "start and stop a real Apache Kafka on this machine",
}


class Command(Protocol):
    """What a module in this package offers."""

    EXAMPLE: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Do it; returns the exit code."""
        ...


class _Parser(argparse.ArgumentParser):
    """Help starts with an example; wrong use ends with what was wrong, the nearest word, and exit code 2."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        kwargs["allow_abbrev"] = False
        super().__init__(*args, **kwargs)
        self._example = example

    def format_help(self) -> str:
        """The example first."""
        start = f"example:\n  {self._example}\n\n" if self._example else ""
        return start + super().format_help()

    def error(self, message: str) -> NoReturn:
        """One line, the nearest option where one was misspelt, and where to find the rest."""
        words = [word.partition("=")[0] for word in sys.argv if word.startswith("--")]
        unknown = [word for word in words if word in message and word not in self._known()]
        near = difflib.get_close_matches(unknown[0], self._known(), n=1) if unknown else []
        hint = f' Did you mean "{near[0]}"?' if near else ""
        print(f"{self.prog}: {message}.{hint} See {self.prog} --help", file=sys.stderr)
        sys.exit(WRONG_USE)

    def _known(self) -> list[str]:
        return list(self._option_string_actions)


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code: 0 done, 1 a negative answer, 2 wrong use, 3 unreachable."""
    arguments = sys.argv[1:] if argv is None else argv
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
        prog=f"kvota {name}",
        description=f"{COMMANDS[name][0].upper()}{COMMANDS[name][1:]}.",
        example=command.EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--verbose", action="store_true", help="show the stack trace of an error")
    command.configure(parser)
    args = parser.parse_args(arguments[1:])
    return _run(command, args)


def _run(command: Command, args: argparse.Namespace) -> int:
    try:
        return command.run(args)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
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
            "  kvota demo",
            "",
            "kvota COMMAND [options]: quotas for Apache Kafka",
            "",
            *lines,
            "",
            "kvota COMMAND --help tells the rest.",
        ]
    )


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f'Did you mean "{near[0]}"?' if near else f"Known are {', '.join(COMMANDS)}."
    return f'kvota: there is no command "{name}". {hint}'


if __name__ == "__main__":
    sys.exit(main())
