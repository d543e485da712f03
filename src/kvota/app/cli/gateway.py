"""``kvota gateway`` runs the gateway, only checks its files, or has a running one read them again."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kvota.app.cli import import_quotas
from kvota.app.cli.exit_codes import DONE, UNREACHABLE, WRONG_USE
from kvota.app.cli.places import a_path
from kvota.app.log_lines import begin_log, write_as
from kvota.files.command_name import called
from kvota.model.errors import UsageError

if TYPE_CHECKING:
    from kvota.app.config import GatewayConfig

EXAMPLE = "{kvota} gateway -c gateway.toml --check && {kvota} gateway -c gateway.toml"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    _add_options(parser, default=Path("gateway.toml"), log_level="info")
    actions = parser.add_subparsers(dest="action", metavar="run|reload|import-quotas")
    for name, words in (
        ("run", "the gateway itself (default)"),
        (
            "reload",
            "have the one that runs with this file read its files again, and say what is in force then",
        ),
    ):
        # What stands before the action is not forgotten behind it.
        kept = {"default": argparse.SUPPRESS, "log_level": argparse.SUPPRESS}
        _add_options(actions.add_parser(name, help=words, description=words), **kept)
    words = "take the quotas of the brokers, or of a file, over into the gateway's own"
    import_quotas.configure(actions.add_parser("import-quotas", help=words))


def _add_options(parser: argparse.ArgumentParser, *, default: object, log_level: str) -> None:
    suppressed = default is argparse.SUPPRESS
    switch = argparse.SUPPRESS if suppressed else False
    parser.add_argument(
        "-c",
        "--config",
        type=a_path,
        default=default,
        metavar="FILE",
        help="the gateway's settings (default: gateway.toml)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        default=switch,
        help="check the files, print what would run, and end",
    )
    parser.add_argument(
        "--connect",
        action="store_true",
        default=switch,
        help="with --check: also connect to the bootstrap servers and to all brokers that the cluster names",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default=log_level,
        help="how much to log, on stderr (default: info)",
    )


def run(args: argparse.Namespace) -> int:
    """Run until a signal; SIGTERM drains, SIGHUP reloads the files. Or do what the action says."""
    if args.action == "import-quotas":
        return import_quotas.run(args)
    begin_log(args.log_level)
    if args.action == "reload":
        return _reload(args)
    if args.check:
        return _check(args.config, connect=args.connect)
    if args.connect:
        msg = "--connect belongs to --check; the gateway itself looks at its brokers when it starts"
        raise UsageError(msg)
    from kvota.app.config import load_files
    from kvota.app.run_gateway import run_gateway

    config, written = load_files(args.config)
    write_as(config.log_format)
    run_gateway(config, written)
    return DONE


def _reload(args: argparse.Namespace) -> int:
    """Find faults before anything is sent; then print what the gateway has logged."""
    if args.check:
        msg = f"reload checks the files by itself; to check them only: {called()} gateway -c {args.config} --check"
        raise UsageError(msg)
    from kvota.app.config import load_files
    from kvota.app.running_gateway import reload_running

    config, _ = load_files(args.config)
    result = reload_running(config)
    for line in result.lines:
        print(line, file=sys.stdout if result.is_accepted else sys.stderr)
    if not result.is_accepted:
        print("kvota: refused; what was in force stays as it is", file=sys.stderr)
    return DONE if result.is_accepted else WRONG_USE


def _check(path: Path, *, connect: bool) -> int:
    """Report everything at once: faults of both files, of the quota callback and of what is around them, doubts, and brokers that do not answer.

    Raises:
        UsageError: with all faults. Where the files themselves have some there is no telling what is around them.
    """
    from kvota.app.check import check_folder, doubts, others, when_certificates_end
    from kvota.app.check_callback import check_files
    from kvota.app.check_login import check_own_login
    from kvota.app.check_source import check_source
    from kvota.app.run_gateway import summary

    config, stored, callback = check_files(path)
    for line in [*summary(config, stored), *when_certificates_end(config)]:
        print(line)
    faults: list[str] = []
    running, warnings = "", doubts(config, stored, callback)
    with _noted(faults):
        check_own_login(config)
    with _noted(faults):
        if config.record.folder is not None:
            check_folder(config.record.folder)
    with _noted(faults):
        running = others(config)
    with _noted(faults):
        warnings += check_source(config)
    for line in [*filter(None, [running]), *(f"warning: {sentence}" for sentence in warnings)]:
        print(line)
    if not faults:
        print(f"{path} and {config.quotas.file}: no fault found")
    all_answer = _all_answer(config) if connect else True
    if faults:
        raise UsageError("\n".join(faults))
    return DONE if all_answer else UNREACHABLE


@contextmanager
def _noted(faults: list[str]) -> Iterator[None]:
    """What is wrong here is not the last that is looked at."""
    try:
        yield
    except UsageError as error:
        faults.append(str(error))


def _all_answer(config: "GatewayConfig") -> bool:
    from kvota.app.check_brokers import ask_brokers

    answers = ask_brokers(config)
    if answers.note:
        print(answers.note)
    for sentence in answers.missing:
        print(sentence, file=sys.stderr)
    return not answers.missing
