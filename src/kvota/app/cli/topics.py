"""``kvota topics`` creates, grows, deletes and describes topics; each topic has a result of its own."""

import argparse

from kvota.app.cli.cluster_options import add_cluster_options
from kvota.app.cli.durations import duration_above_0_ms
from kvota.app.cli.parser import add_action
from kvota.app.cli.places import a_path

EXAMPLE = (
    "{kvota} topics create orders invoices --partitions 12 --bootstrap-server 127.0.0.1:9092 --wait"
)
TIMEOUT_MS = 60_000
_SERVER = "--bootstrap-server kafka:9092"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's actions and their options."""
    actions = parser.add_subparsers(
        dest="action", required=True, metavar="create|alter|delete|describe|list"
    )
    create = add_action(
        actions, "create", "create topics", f"topics create orders --partitions 12 {_SERVER}"
    )
    _add_names(create)
    create.add_argument(
        "--partitions", type=_count, metavar="N", help="of each (default: the cluster's default)"
    )
    create.add_argument(
        "--replication-factor",
        type=_count,
        metavar="N",
        help="brokers that hold each partition (default: the cluster's default)",
    )
    create.add_argument(
        "--config",
        action="append",
        default=[],
        type=_setting,
        metavar="NAME=VALUE",
        help="a setting of each topic, e.g. retention.ms=3600000; may be given several times",
    )
    _add_changing(create, "create", existing="--if-not-exists")

    alter = add_action(
        actions,
        "alter",
        "give topics more partitions",
        f"topics alter orders --partitions 24 {_SERVER}",
    )
    _add_names(alter)
    alter.add_argument(
        "--partitions", type=_count, required=True, metavar="N", help="of each, old and new ones"
    )
    _add_changing(alter, "alter", existing="--if-exists")

    delete = add_action(
        actions, "delete", "delete topics", f"topics delete orders invoices {_SERVER}"
    )
    _add_names(delete)
    _add_changing(delete, "delete", existing="--if-exists")

    describe = add_action(
        actions, "describe", "show topics; without names, all", f"topics describe orders {_SERVER}"
    )
    _add_names(describe)
    describe.add_argument(
        "--partitions",
        action="store_true",
        help="a line for each partition (--output json has them always)",
    )
    _add_looking(describe)

    listing = add_action(actions, "list", "list the names of all topics", f"topics list {_SERVER}")
    listing.add_argument("--internal", action="store_true", help="Kafka's own topics, too")
    _add_looking(listing)


def run(args: argparse.Namespace) -> int:
    """Do what the action says."""
    from kvota.app.cli import topics_actions

    return topics_actions.run(args)


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="TOPIC", help="their names")
    parser.add_argument(
        "--from-file",
        type=a_path,
        metavar="FILE",
        help="more names, one a line; empty lines and those that begin with # do not count; - is stdin",
    )


def _add_changing(parser: argparse.ArgumentParser, verb: str, *, existing: str) -> None:
    add_cluster_options(parser)
    if existing == "--if-exists":
        parser.add_argument(existing, action="store_true", help="a topic that is not there is fine")
    else:
        parser.add_argument(existing, action="store_true", help="a topic that is there is fine")
    if verb != "delete":
        parser.add_argument(
            "--validate-only",
            action="store_true",
            help="let the cluster check it, and change nothing",
        )
    parser.add_argument(
        "--wait",
        action="store_true",
        help=f"where the quota on topic mutations is spent, wait and {verb} then (default: say how long, and exit 1)",
    )
    _add_timeout_and_output(parser)


def _add_looking(parser: argparse.ArgumentParser) -> None:
    add_cluster_options(parser)
    _add_timeout_and_output(parser)


def _add_timeout_and_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout",
        type=duration_above_0_ms,
        default=TIMEOUT_MS,
        metavar="TIME",
        help="for all of it, waits among it (default: 1m)",
    )
    parser.add_argument("--output", choices=("table", "json"), default="table")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) < 2**31:
        msg = f'"{text}" is not a number from 1 on'
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        msg = f'"{text}" is not NAME=VALUE, e.g. retention.ms=3600000'
        raise argparse.ArgumentTypeError(msg)
    return name.strip(), value
