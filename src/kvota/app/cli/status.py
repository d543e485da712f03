"""``kvota status`` shows who uses how much of which limit, and who is held back, now."""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from kvota.app.cli.durations import duration_above_0_ms
from kvota.app.cli.exit_codes import DONE
from kvota.app.cli.running_options import add_running_options, url_of
from kvota.app.text_table import hidden
from kvota.app.text_width import columns_of, cut_to
from kvota.model.plain_text import on_one_line
from kvota.model.quota_type import QuotaType
from kvota.model.units import format_duration_ms

EXAMPLE = "{kvota} status --watch"

_WIDTH = 80
_NAME_MIN, _NAME_MAX = 2, 28
_ASKERS_MAX = 3
# The gateway tells of no more.
_TOP_MAX = 1_000
_RED, _PLAIN, _CLEAR = "\x1b[31m", "\x1b[0m", "\x1b[H\x1b[2J"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_running_options(parser)
    parser.add_argument("--watch", action="store_true", help="look again and again; Ctrl-C ends it")
    parser.add_argument(
        "--every",
        type=duration_above_0_ms,
        default=1_000,
        metavar="TIME",
        help="how long to wait between two looks (default: 1s)",
    )
    parser.add_argument(
        "--top",
        type=top_count,
        default=20,
        metavar="N",
        help="so many counters at most (default: 20)",
    )
    parser.add_argument("--output", choices=("lines", "json"), default="lines")


def top_count(text: str) -> int:
    """Read how many lines are to be shown."""
    if not (text.isdecimal() and 1 <= int(text[:9]) <= _TOP_MAX):
        msg = f'"{text}" is not a number from 1 to {_TOP_MAX}'
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Print one look, or one after the other."""
    from kvota.app.http_client import ask
    from kvota.model.errors import UnreachableError

    url = url_of(args)
    asked = {"limit": str(args.top)}
    _show(ask(url, "/v1/tenants", asked), args)
    while args.watch:
        time.sleep(args.every / 1000)
        try:
            status = ask(url, "/v1/tenants", asked)
        except UnreachableError as error:  # it was there: somebody restarts it
            print(f"kvota: {error}. Looking again; Ctrl-C ends it", file=sys.stderr, flush=True)
        else:
            _show(status, args)
    return DONE


def _show(status: Mapping[str, Any], args: argparse.Namespace) -> None:
    """Print one look."""
    if args.output == "json":
        print(json.dumps(status), flush=True)
        return
    is_terminal = sys.stdout.isatty()
    if args.watch and is_terminal:
        print(_CLEAR, end="")
    colours = is_terminal and not os.environ.get("NO_COLOR")
    print("\n".join(status_lines(status, top=args.top, colours=colours)), flush=True)


def status_lines(status: Mapping[str, Any], *, top: int, colours: bool = False) -> list[str]:
    """One line that sums up, and one for each counter, worst first."""
    tenants = status["tenants"]
    held = sum(1 for tenant in tenants if is_held(tenant))
    enforced = ", ".join(status["enforced"]) or "nothing"
    nodes = {tenant["node_id"] for tenant in tenants if tenant["node_id"] >= 0}
    at = time.strftime("%H:%M:%S", time.localtime(status["at_ms"] / 1000))
    connections = _counted(status["connections"], "connection")
    rest = f" at {at}: {held} held back, {connections}"
    gateway = cut_to(on_one_line(status["gateway"]), _WIDTH - columns_of(rest))
    lines = [f"{gateway}{rest}"]
    enforces = f"; enforces {enforced}"
    if columns_of(lines[0] + enforces) <= _WIDTH:
        lines[0] += enforces
    else:
        lines.append(enforces.removeprefix("; "))
    for tenant in tenants[:top]:
        line = _fitted(tenant, with_node=len(nodes) > 1)
        lines.append(f"{_RED}{line}{_PLAIN}" if colours and is_held(tenant) else line)
    lines += _hidden(min(top, len(tenants)), status.get("counters", 0))  # 0: an older gateway
    if not tenants:
        lines.append("nobody has produced, fetched or changed topics yet")
    lines += map(_within_a_line, _producer_id_lines(status.get("producer_ids")))
    return lines


def _hidden(shown: int, of: int) -> list[str]:
    """How many counters are not shown, if any, and what shows them."""
    if of <= _TOP_MAX:
        return [said] if (said := hidden(shown, of, "counters")) else []
    said = f"{shown:,} of {of:,} counters shown"
    return [said if shown == _TOP_MAX else f"{said}; --top {_TOP_MAX} shows more"]


def _producer_id_lines(ids: Mapping[str, Any] | None) -> list[str]:
    """What is known of producer ids, where any is, and who asks for them faster than now and then."""
    if ids is None:  # an older gateway
        return []
    lines = []
    if ids["users"] or ids["refused_partitions"]:
        window = format_duration_ms(ids["window_ms"])
        beside = [
            f"{ids['refused_partitions']} partitions kept back",
            *([f"{ids['untracked']} untracked"] if ids["untracked"] else []),
        ]
        known = f"{ids['distinct_ids']} in {window}"
        lines.append(
            f"producer ids of {_counted(ids['users'], 'user')}: {', '.join([known, *beside])}"
        )
    asking = [one for one in ids["asked_for"] if one["rate_per_s"] > 0]
    for one in asking[:_ASKERS_MAX]:
        each = f"{60 * one['rate_per_s']:.3g} a minute, {one['idempotent']} so far"
        of_tx = f", {one['transactional']} transactional" if one["transactional"] else ""
        lines.append(f"  asked for by {cut_to(on_one_line(one['user']), _NAME_MAX)}: {each}{of_tx}")
    return lines


def _within_a_line(text: str) -> str:
    return cut_to(text, _WIDTH)


def is_held(tenant: Mapping[str, Any]) -> bool:
    """Tell whether somebody is held back on this counter now."""
    return tenant["throttled_until_ms"] is not None


def _fitted(tenant: Mapping[str, Any], *, with_node: bool) -> str:
    """One line of 80 columns at most: first the numbers of connections go, then the end of the name, then of the rest."""
    name = cut_to(tenant_name(tenant), _NAME_MAX)
    parts = _parts(tenant)
    optional = _optional_parts(tenant)
    where = [f"broker {tenant['node_id']}"] if with_node and tenant["node_id"] >= 0 else []
    if tenant["limit_from"]:
        where.append(on_one_line(PurePath(tenant["limit_from"]).name))
    while True:
        rest = f" {tenant['quota_type']} {', '.join([*parts, *optional, *where])}"
        if columns_of(name) + columns_of(rest) <= _WIDTH or not optional:
            break
        optional.pop()
    return cut_to(cut_to(name, max(_NAME_MIN, _WIDTH - columns_of(rest))) + rest, _WIDTH)


def _parts(tenant: Mapping[str, Any]) -> list[str]:
    from kvota.app.amounts import amount_of_limit

    quota_type = QuotaType(tenant["quota_type"])
    amount = amount_of_limit(quota_type, tenant["rate_per_s"] or 0.0, tenant["limit_per_s"])
    return [amount, *filter(None, [_held(tenant)])]


def _optional_parts(tenant: Mapping[str, Any]) -> list[str]:
    connections, waiting = tenant["connections"], tenant["requests_waiting"]
    return [
        *([f"{waiting} waiting"] if waiting else []),
        *([_counted(connections, "connection")] if connections else []),
    ]


def _held(tenant: Mapping[str, Any]) -> str:
    wait_ms, muted_ms = tenant["wait_ms"], tenant["mute_left_ms"]
    if tenant["blocked"]:
        return "blocked" if tenant["enforced"] else "would be blocked"
    if muted_ms:
        return f"muted {format_duration_ms(max(wait_ms, muted_ms))}"
    if not wait_ms:
        return ""
    return f"{'waits' if tenant['enforced'] else 'would wait'} {format_duration_ms(wait_ms)}"


def tenant_name(tenant: Mapping[str, Any]) -> str:
    """Whose counter it is, on one line."""
    user, client_id = tenant["user"], tenant["client_id"]
    if user and client_id:
        name = f"{user}/{client_id}"
    elif user or client_id:
        name = user or f"client {client_id}"
    else:
        name = tenant["tags"] or "everybody"
    return on_one_line(name)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
