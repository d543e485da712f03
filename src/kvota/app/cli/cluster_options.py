"""The options by which a command reaches a cluster: where it is, and how to log in."""

import argparse
from typing import TYPE_CHECKING

from kvota.app.cli.places import a_path

if TYPE_CHECKING:
    from kvota.client import Cluster


def add_cluster_options(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add ``--bootstrap-server`` and ``--command-config``."""
    parser.add_argument(
        "--bootstrap-server",
        required=required,
        metavar="HOST:PORT",
        help="brokers, or a gateway; several with commas",
    )
    parser.add_argument(
        "--command-config",
        type=a_path,
        metavar="FILE",
        help="properties of a Kafka client, as Kafka's own tools have them: how to log in",
    )


def cluster_of_options(args: argparse.Namespace, *, client_id: str) -> "Cluster":
    """Return the cluster that the options name; nothing is connected yet.

    Args:
        args: of a parser with these options.
        client_id: as brokers see the command, where the properties have no ``client.id``.

    Raises:
        UsageError: a server or a property cannot be used; no password is in its text.
    """
    from kvota.client.properties import cluster_of, read_properties

    properties = read_properties(args.command_config) if args.command_config else {}
    servers = {"bootstrap.servers": args.bootstrap_server}
    return cluster_of({**properties, **servers}, client_id=client_id)
