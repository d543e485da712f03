"""``kvota kafka`` starts and stops a real Apache Kafka on this machine, and runs Kafka's own tools."""

import argparse
import difflib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from kvota.app.cli.exit_codes import DONE, NEGATIVE
from kvota.files.command_name import called
from kvota.model.errors import UsageError

if TYPE_CHECKING:
    from kvota.localkafka import LocalKafka
    from kvota.localkafka.cluster.detached import RunningKafka

EXAMPLE = "{kvota} kafka up --detach && {kvota} kafka status && {kvota} kafka down"

# These are the versions of kvota.localkafka.jars.lock; importing that here would make every --help slower.
VERSIONS = ("4.3.1", "3.9.2")
# And these are the tools of kvota.localkafka.processes.tools.
TOOLS = (
    *("acls", "broker-api-versions", "configs", "console-consumer", "console-producer"),
    *("consumer-groups", "consumer-perf", "delete-records", "get-offsets", "log-dirs"),
    *("producer-perf", "topics", "transactions", "verifiable-consumer", "verifiable-producer"),
)
_LOOK_INTERVAL_S = 0.5


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="up|status|down|tool")
    up = actions.add_parser(
        "up",
        help="start a cluster; Ctrl-C ends it",
        description=f"example: {called()} kafka up --nodes 3 --user alice=alice-secret",
    )
    up.add_argument("--nodes", type=int, default=1, help="how many brokers (default: 1)")
    up.add_argument(
        "--version", choices=VERSIONS, default=VERSIONS[0], help="Kafka's version (default: 4.3.1)"
    )
    up.add_argument("--host", default="127.0.0.1", help="address of all listeners")
    up.add_argument(
        "--port",
        type=int,
        default=None,
        help="port of the first broker, others follow (default: free ones)",
    )
    up.add_argument(
        "--user",
        type=_user,
        action="append",
        default=[],
        metavar="NAME=SECRET",
        help="a user of the SASL listener, which there is with users only; may be repeated",
    )
    up.add_argument(
        "--racks",
        metavar="A,B,...",
        default="",
        help="one for each node; consumers with a client.rack read in theirs",
    )
    up.add_argument(
        "--oauth",
        action="store_true",
        help="the SASL listener takes OAUTHBEARER, too, with tokens that nobody has signed: who sends one is whom it names",
    )
    up.add_argument(
        "--tls",
        action="store_true",
        help="listeners with TLS, too, which ask clients for a certificate; for this cluster it is made",
    )
    up.add_argument(
        "--detach", action="store_true", help=f"leave it running; {called()} kafka down ends it"
    )
    down = actions.add_parser(
        "down",
        help="end what up --detach started, and remove its data",
        description=f"example: {called()} kafka down",
    )
    status = actions.add_parser(
        "status", help="what up --detach started", description=f"example: {called()} kafka status"
    )
    tool = actions.add_parser(
        "tool",
        help="run one of Kafka's own tools, e.g. topics for kafka-topics.sh",
        description=f"example: {called()} kafka tool topics --bootstrap-server 127.0.0.1:9192 --list",
    )
    tool.add_argument(
        "--version", choices=VERSIONS, default=VERSIONS[0], help="Kafka's version (default: 4.3.1)"
    )
    tool.add_argument("tool", metavar="TOOL", nargs="?", help=f"one of {', '.join(TOOLS)}")
    tool.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="go to the tool as they are"
    )
    for action in (up, down, status):
        action.add_argument("--output", choices=("table", "json"), default="table")


def run(args: argparse.Namespace) -> int:
    """Start, stop or describe it, or run a tool; return 1 if nothing runs."""
    if args.action == "tool":
        _become_tool(args)
    if args.action == "up":
        return _up_detached(args) if args.detach else _up(args)
    return _down(args) if args.action == "down" else _status(args)


def _become_tool(args: argparse.Namespace) -> NoReturn:
    """The tool takes this process over: signals, the terminal and the exit code are its own.

    Raises:
        UsageError: there is no such tool.
    """
    if args.tool is None:
        msg = f"which tool? Known are {', '.join(TOOLS)}"
        raise UsageError(msg)
    if args.tool not in TOOLS:
        near = difflib.get_close_matches(args.tool.removeprefix("kafka-"), TOOLS, n=1)
        hint = f'Did you mean "{near[0]}"?' if near else f"Known are {', '.join(TOOLS)}."
        msg = f'there is no tool "{args.tool}". {hint}'
        raise UsageError(msg)
    from kvota.localkafka.processes.tools import tool_command

    command = tool_command(args.tool, args.version, args.arguments)
    os.execv(command[0], command)  # noqa: S606  (no shell: the arguments go as they are)


def _up(args: argparse.Namespace) -> int:
    from kvota.localkafka.cluster.detached import describe

    kafka = _described(args, None)
    _say_starting(kafka, args)
    with _leaving_at(signal.SIGTERM, signal.SIGHUP), kafka:  # SIGHUP: the terminal is gone
        _show(describe(kafka), args.output, "Ctrl-C ends it")
        while True:
            kafka.check()
            time.sleep(_LOOK_INTERVAL_S)


def _up_detached(args: argparse.Namespace) -> int:
    from kvota.localkafka.cluster.detached import start_detached

    def make(folder: Path) -> "LocalKafka":
        kafka = _described(args, folder)
        _say_starting(kafka, args)
        return kafka

    with _leaving_at(signal.SIGTERM):
        running = start_detached(make)
    _show(running, args.output, f"{called()} kafka down")
    return DONE


def _down(args: argparse.Namespace) -> int:
    from kvota.localkafka.cluster.detached import stop_detached

    was = stop_detached()
    if args.output == "json":
        print(json.dumps({"ended": was.bootstrap_servers}))
    else:
        print(f"ended Kafka {was.version} at {was.bootstrap_servers} and removed its data")
    return DONE


def _status(args: argparse.Namespace) -> int:
    from kvota.localkafka.cluster.detached import running_detached

    running = running_detached()
    if running is not None:
        _show(running, args.output, f"{called()} kafka down")
        return DONE
    if args.output == "json":
        print("null")
    print(f"no Kafka runs; start one with: {called()} kafka up --detach", file=sys.stderr)
    return NEGATIVE


def _described(args: argparse.Namespace, folder: Path | None) -> "LocalKafka":
    from kvota.localkafka import LocalKafka

    names = [name for name, _ in args.user]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        msg = f'--user: "{twice}" is there twice; which secret holds?'
        raise UsageError(msg)
    return LocalKafka(
        nodes=args.nodes,
        version=args.version,
        host=args.host,
        users=dict(args.user),
        oauth=args.oauth,
        racks=[rack.strip() for rack in args.racks.split(",") if rack.strip()],
        tls="requested" if args.tls else None,
        first_port=args.port,
        folder=folder,
    )


def _say_starting(kafka: "LocalKafka", args: argparse.Namespace) -> None:
    nodes = "1 node" if args.nodes == 1 else f"{args.nodes} nodes"
    print(f"starting Kafka {kafka.version}, {nodes}, about {3 + 2 * args.nodes} s", file=sys.stderr)


def _show(running: "RunningKafka", output: str, ends: str) -> None:
    if output == "json":
        from dataclasses import asdict

        print(json.dumps(asdict(running), indent=1), flush=True)
        return
    rows = [
        ("Kafka", running.version),
        ("PLAINTEXT", running.bootstrap_servers),
    ]
    if running.sasl_bootstrap_servers:
        users = f"users {', '.join(running.users)}" if running.users else ""
        bearer = "bearer tokens of anybody (OAUTHBEARER)" if running.oauth else ""
        who = "; ".join(filter(None, (users, bearer)))
        rows.append(("SASL_PLAINTEXT", f"{running.sasl_bootstrap_servers}  {who}"))
        rows.append(("", "users have names at SASL_PLAINTEXT; at PLAINTEXT all are ANONYMOUS"))
    if running.tls_bootstrap_servers:
        rows.append(("SSL", running.tls_bootstrap_servers))
        rows.append(("", f"with --command-config {running.client_properties}"))
    if running.sasl_tls_bootstrap_servers:
        rows.append(("SASL_SSL", running.sasl_tls_bootstrap_servers))
    rows += [("logs", node.log_path) for node in running.nodes]
    # Where there are users their names shall appear in quotas and in the record.
    visible = running.sasl_bootstrap_servers or running.bootstrap_servers
    servers = ", ".join(f'"{address}"' for address in visible.split(","))
    rows += [
        ("next", f"in gateway.toml: [upstream] bootstrap_servers = [{servers}]"),
        ("", f"then: {called()} gateway -c gateway.toml"),
        ("end", ends),
    ]
    for name, value in rows:
        print(f"{name:<14}  {value}")
    sys.stdout.flush()


def _user(text: str) -> tuple[str, str]:
    name, equals, secret = text.partition("=")
    if not (name and equals and secret):
        msg = f'"{text}" is not NAME=SECRET, e.g. alice=alice-secret'
        raise argparse.ArgumentTypeError(msg)
    return name, secret


@contextmanager
def _leaving_at(*numbers: signal.Signals) -> Iterator[None]:
    """Leave through the with blocks, which end the nodes; afterwards the signals mean what they did before."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        sys.exit(DONE)

    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
