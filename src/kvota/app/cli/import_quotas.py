"""``kvota gateway import-quotas`` takes the quotas of the brokers, or of a file, over into the gateway's own."""

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from kvota.app.cli.exit_codes import DONE, NEGATIVE
from kvota.app.cli.places import a_path
from kvota.files.command_name import called
from kvota.model.errors import UsageError

if TYPE_CHECKING:
    from kvota.app.config import GatewayConfig
    from kvota.app.import_quotas import Import, LeftOut
    from kvota.model.client_quotas import ClientQuotas, KeyChange

# More changes than these are counted, not listed.
_LISTED_MAX = 200


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.description = f"example: {called()} gateway import-quotas -c gateway.toml --command-config admin.properties"
    parser.add_argument(
        "-c",
        "--config",
        type=a_path,
        default=argparse.SUPPRESS,
        metavar="FILE",
        help="the gateway's settings (default: gateway.toml)",
    )
    parser.add_argument(
        "--from",
        dest="source",
        type=a_path,
        metavar="FILE",
        help="a quotas.toml, or a document of quotas that a gateway has written (default: the brokers)",
    )
    parser.add_argument(
        "--bootstrap-server",
        metavar="HOST:PORT",
        help="of the brokers (default: upstream.bootstrap_servers of gateway.toml)",
    )
    parser.add_argument(
        "--command-config",
        type=a_path,
        metavar="FILE",
        help="properties of a Kafka client, as Kafka's own tools have them: how to log in",
    )
    parser.add_argument(
        "--replace", action="store_true", help="remove what is not there, too (default: it stays)"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace) -> int:
    """Show what would change, ask, and do it; return 1 where the answer is no."""
    from kvota.app.config import load_files
    from kvota.app.import_quotas import carry_out, file_quotas, gateways_quotas, planned
    from kvota.client.properties import read_properties, security_of

    properties = read_properties(args.command_config) if args.command_config else {}
    security = security_of(properties)
    config, written = load_files(args.config)
    before = written if written is not None else gateways_quotas(config)
    left_out: list[LeftOut] = []
    if args.source is not None:
        found = file_quotas(args.source)
    else:
        found, left_out = asyncio.run(_of_brokers(args, config, properties))
    plan = planned(config, before, found, left_out=left_out, replaces=args.replace)
    for each in plan.left_out:
        print(f"left out: {each.sentence}", file=sys.stderr)
    if not plan.changes:
        print("nothing would change", file=sys.stderr)
        return DONE
    for line in _lines(plan):
        print(line)
    if not args.yes and not _agrees(len(plan.changes)):
        print("nothing was changed; --yes does it without a question", file=sys.stderr)
        return NEGATIVE
    for line in carry_out(config, plan, security, login=args.command_config):
        print(f"kvota: {line}", file=sys.stderr)
    return DONE


async def _of_brokers(
    args: argparse.Namespace, config: "GatewayConfig", properties: dict[str, str]
) -> "tuple[ClientQuotas, list[LeftOut]]":
    from kvota.app.import_quotas import brokers_quotas
    from kvota.client import BrokerError
    from kvota.client.properties import cluster_of
    from kvota.model.address import address_text
    from kvota.wire.error_code import ErrorCode

    servers = args.bootstrap_server or ",".join(
        address_text(*server) for server in config.gateway.upstream
    )
    own = {key: value for key, value in properties.items() if key != "bootstrap.servers"}
    try:
        async with cluster_of({"bootstrap.servers": servers, **own}) as cluster:
            return await brokers_quotas(cluster)
    except BrokerError as error:
        if error.code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise
        msg = (
            f"the brokers at {servers} do not tell this user their quotas ({error}). Whoever has "
            "DESCRIBE_CONFIGS on the cluster can import them (--command-config), or list them: "
            f"kafka-configs.sh --bootstrap-server {servers} --command-config FILE --describe --entity-type "
            "users; the same for clients, ips, and users with clients"
        )
        raise UsageError(msg) from error


def _agrees(count: int) -> bool:
    if not sys.stdin.isatty():
        return False
    values = "1 value" if count == 1 else f"{count} values"
    return input(f"Change {values} (y/n)? ").strip().lower() in {"y", "yes"}


def _lines(plan: "Import") -> list[str]:
    lines = [_line(plan, change) for change in plan.changes[:_LISTED_MAX]]
    if len(plan.changes) > _LISTED_MAX:
        lines.append(f"and {len(plan.changes) - _LISTED_MAX} more")
    return lines


def _line(plan: "Import", change: "KeyChange") -> str:
    """E.g. ``+ user-principal 'orders' producer_byte_rate none -> 4000000``."""
    old = plan.before.value(change.entity, change.key)
    sign = "+" if old is None else "-" if change.value is None else "~"
    texts = ["none" if value is None else f"{value:.12g}" for value in (old, change.value)]
    return f"{sign} {change.entity} {change.key} {texts[0]} -> {texts[1]}"
