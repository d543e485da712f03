"""Which running gateway a command is about."""

import argparse
from pathlib import Path

from kvota.app.cli.places import a_path


def add_running_options(parser: argparse.ArgumentParser) -> None:
    """Add ``-c`` and ``--url``."""
    parser.add_argument(
        "-c",
        "--config",
        type=a_path,
        default=Path("gateway.toml"),
        metavar="FILE",
        help="the file that the gateway runs with; [http] says where it answers (default: gateway.toml)",
    )
    parser.add_argument(
        "--url",
        metavar="URL",
        help="where it answers, e.g. http://127.0.0.1:9180; no file is read then",
    )


def url_of(args: argparse.Namespace) -> str:
    """Return where the gateway answers.

    Raises:
        UsageError: the file cannot be read, or says that it does not answer.
    """
    if args.url:
        return str(args.url)
    from kvota.app.config import read_config
    from kvota.model.address import address_text, from_here
    from kvota.model.errors import ConfigurationError, UsageError

    if not args.config.exists():
        msg = (
            f"{args.config}: there is no such file. Name the file that the gateway runs with (-c FILE), or where it "
            "answers, as its log says: --url http://127.0.0.1:9180"
        )
        raise UsageError(msg)
    config, faults = read_config(args.config)
    if faults:
        raise ConfigurationError(faults)
    http = config.http
    if not http.is_enabled or not http.port:
        msg = (
            f"{args.config}: http.port does not say where the gateway answers. Its log does: --url http://…"
            if http.is_enabled
            else f"{args.config}: http.enabled is false, so a running gateway cannot be asked"
        )
        raise UsageError(msg)
    return f"http://{address_text(from_here(http.host), http.port)}"
