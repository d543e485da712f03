"""``kvota configs`` describes and alters quotas and settings, with the arguments and in the words of ``kafka-configs.sh``."""

import argparse

from kvota.app.cli.parser import Parser
from kvota.model.errors import KvotaError, NegativeError

EXAMPLE = (
    "{kvota} configs --bootstrap-server 127.0.0.1:9092 --alter --user orders --add-config "
    "producer_byte_rate=5242880"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options, which are those of Kafka's tool."""
    if isinstance(parser, Parser):
        parser.exit_code_of_wrong_use = 1  # as Kafka's tool has it
    _add_once(parser, "bootstrap-server", "HOST:PORT", "brokers, or a gateway; several with commas")
    _add_once(parser, "command-config", "FILE", "properties of a Kafka client: how to log in")
    parser.add_argument("--alter", action="store_true", help="alter settings")
    parser.add_argument("--describe", action="store_true", help="show settings")
    parser.add_argument(
        "--all", action="store_true", help="with --describe: also what is not set dynamically"
    )
    parser.add_argument(
        "--entity-type",
        action="append",
        default=[],
        metavar="TYPE",
        help="users, clients, ips, brokers or topics; users and clients may stand together",
    )
    parser.add_argument(
        "--entity-name",
        action="append",
        dest="entity_names",
        default=[],
        metavar="NAME",
        help="of the user, the client id, …; for the entity type at the same place",
    )
    parser.add_argument(
        "--entity-default",
        action="append_const",
        dest="entity_names",
        const="",
        help="the default, in place of a name",
    )
    for flag, words in (
        ("user", "a user's plain name"),
        ("client", "a client id"),
        ("ip", "an address"),
        ("broker", "a broker's id"),
        ("topic", "a topic"),
    ):
        _add_once(parser, flag, "NAME", f"{words}: --entity-type {flag}s --entity-name NAME")
    for flag in ("user", "client", "ip", "broker"):
        parser.add_argument(
            f"--{flag}-defaults",
            action="store_true",
            help=f"--entity-type {flag}s --entity-default",
        )
    _add_once(parser, "add-config", "NAME=VALUE,…", "settings; a value with commas in brackets")
    _add_once(parser, "add-config-file", "FILE", "a file of properties with the settings")
    parser.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="NAME,…",
        help="settings that are removed",
    )
    parser.add_argument(
        "--output",
        choices=("text", "json"),
        default="text",
        help="text: the lines of kafka-configs.sh (default)",
    )


def run(args: argparse.Namespace) -> int:
    """Do it; whatever is wrong ends with 1, as with Kafka's tool."""
    from kvota.app.cli import configs_actions

    try:
        return configs_actions.run(args)
    except KvotaError as error:
        raise NegativeError(str(error)) from error


def _add_once(parser: argparse.ArgumentParser, name: str, metavar: str, words: str) -> None:
    """Add an option that may stand once; it is a list, so that a second one is noticed."""
    parser.add_argument(f"--{name}", action="append", default=[], metavar=metavar, help=words)
