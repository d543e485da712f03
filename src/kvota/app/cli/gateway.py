"""``kvota gateway`` runs the gateway, or only checks its files."""

import argparse
import logging
import os
import sys
from pathlib import Path

EXAMPLE = "kvota gateway -c gateway.toml --check && kvota gateway -c gateway.toml"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "-c",
        "--config",
        type=Path,
        default=Path("gateway.toml"),
        metavar="FILE",
        help="the gateway's settings (default: gateway.toml)",
    )
    parser.add_argument(
        "--check", action="store_true", help="check the files, print what would run, and end"
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="how much to log, on stderr (default: info)",
    )


def run(args: argparse.Namespace) -> int:
    """Run until a signal; SIGTERM drains, SIGHUP reloads the quotas."""
    logging.basicConfig(
        stream=sys.stderr,
        level=args.log_level.upper(),
        format="%(asctime)s %(levelname)s %(message)s",
    )
    if args.check:
        return _check(args.config)
    from kvota.app.config import load_files
    from kvota.app.run_gateway import run_gateway

    run_gateway(*load_files(args.config))
    return 0


def _check_folder(folder: Path) -> None:
    """Check that the record could be written there, without making anything.

    Raises:
        UsageError: it could not.
    """
    from kvota.model.errors import UsageError

    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        problem = f"{there} is no folder"
    elif not os.access(there, os.W_OK | os.X_OK):
        problem = f"{there} may not be written to"
    else:
        return
    msg = f"record.folder: {folder} cannot be used: {problem}. Name a folder that the gateway may write to"
    raise UsageError(msg)


def _check(path: Path) -> int:
    """Report all faults of both files at once; return 0 if there are none."""
    from kvota.app.config import load_files
    from kvota.app.run_gateway import summary

    config, quotas = load_files(path)
    for line in summary(config, quotas):
        print(line)
    if config.record.folder is not None:
        _check_folder(config.record.folder)
    print(f"{path} and {config.quotas_file}: no fault found")
    return 0
