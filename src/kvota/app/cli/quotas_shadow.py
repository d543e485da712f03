"""What a gateway has found of the file that it tries in shadow mode: shown, and asked for before ``apply``."""

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

from kvota.app.cli.exit_codes import DONE, NEGATIVE
from kvota.app.cli.json_output import print_json
from kvota.app.cli.running_options import url_of
from kvota.app.cli.status import tenant_name
from kvota.app.http_client import ask
from kvota.app.shadow_file import digest_of
from kvota.files.command_name import called
from kvota.model.client_quotas import CONNECTION_RATE_KEY, PRODUCER_IDS_KEY
from kvota.model.errors import NegativeError, UsageError
from kvota.model.quota_type import QuotaType
from kvota.model.units import format_duration_ms
from kvota.planning.plan_line import format_quota
from kvota.planning.wanted_quotas import WantedQuotas

# Of addresses and of producers there are no rows that other quotas could be tried on.
_UNTRIED = (CONNECTION_RATE_KEY, PRODUCER_IDS_KEY)
_ASKED_MAX = 1_000
_SHOWN = 20


def _how() -> str:
    return f'name it in gateway.toml ([quotas] shadow = "FILE"), then: {called()} gateway reload'


def show_shadow(args: argparse.Namespace) -> int:
    """Print who would be held back, worst first."""
    found = _asked(args)
    if found["file"] is None:
        msg = f"the gateway tries no file of quotas in shadow mode: {_how()}"
        raise UsageError(msg)
    if args.output == "json":
        print_json({**found, "worst": found["worst"][: args.top]})
    else:
        print("\n".join(shadow_lines(found, top=args.top)))
    return NEGATIVE if found["counters_that_would_hold"] else DONE


def check_shadowed(args: argparse.Namespace, wanted: WantedQuotas, *, prunes: bool) -> None:
    """Show what the gateway has found of these quotas.

    Raises:
        UsageError: what ``--prune`` removes cannot have been tried.
        NegativeError: it has not tried these, or not for so long; nothing was changed.
    """
    if prunes:
        msg = "--shadowed: what --prune would remove was not tried in shadow mode. Write those quotas as none into the file"
        raise UsageError(msg)
    found = _asked(args)
    if found["file"] is None:
        msg = f"the gateway has not tried {args.file} in shadow mode; nothing was changed. To try it {_how()}"
        raise NegativeError(msg)
    if found["digest"] != digest_of(wanted):
        msg = f"the gateway tries {found['file']}, which wants other quotas than {args.file}; nothing was changed"
        raise NegativeError(msg)
    tried_ms = found["at_ms"] - found["since_ms"]
    if tried_ms < args.shadowed:
        tried, wanted_time = format_duration_ms(tried_ms), format_duration_ms(args.shadowed)
        msg = f"the gateway has tried {found['file']} for {tried}, and --shadowed wants {wanted_time}; nothing was changed"
        raise NegativeError(msg)
    for line in shadow_lines(found, top=_SHOWN):
        print(line, file=sys.stderr)
    untried = sorted({key for _, key, _ in wanted.values() if key in _UNTRIED})
    if untried:
        keys = " and ".join(untried)
        print(
            f"not tried in shadow mode: {keys}; whom they hold back shows when they are in force",
            file=sys.stderr,
        )


def shadow_lines(found: Mapping[str, Any], *, top: int) -> list[str]:
    """One line that sums up, and one for each counter that would hold somebody back."""
    since = time.strftime("%H:%M:%S", time.localtime(found["since_ms"] / 1000))
    tried = format_duration_ms(found["at_ms"] - found["since_ms"])
    held, counters = found["counters_that_would_hold"], found["counters"]
    whom = "nobody would be held back" if not held else f"{held} would be held back"
    lines = [
        f"{found['file']} in shadow mode since {since} ({tried}): of {counters} with a limit {whom}; {found['decisions']:,} decisions"
    ]
    lines += [_line(one) for one in found["worst"][:top] if one["would_be_held"]]
    if held > top:
        lines.append(f"and {held - top} more (--top {min(_ASKED_MAX, 2 * top)} shows more)")
    return lines


def _line(one: Mapping[str, Any]) -> str:
    quota_type = QuotaType(one["quota_type"])
    limit, in_force = one["limit_per_s"], one["limit_in_force_per_s"]
    now = "none" if in_force is None else format_quota(quota_type, in_force)
    share = 100 * one["would_be_held"] / max(1, one["decisions"])
    where = f" at broker {one['node_id']}" if one["node_id"] >= 0 else ""
    return (
        f"{tenant_name(one)} {quota_type}{where}: {format_quota(quota_type, limit)} (in force: {now}); "
        f"{one['would_be_held']:,} of {one['decisions']:,} would wait ({share:.3g} %), {format_duration_ms(one['longest_wait_ms'])} at most"
    )


def _asked(args: argparse.Namespace) -> Mapping[str, Any]:
    found: Mapping[str, Any] = ask(url_of(args), "/v1/shadow", {"limit": str(_ASKED_MAX)})
    return found
