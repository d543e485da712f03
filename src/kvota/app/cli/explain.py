"""``kvota explain`` says why a client is treated as it is, until when, and what would change it."""

import argparse
import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvota.app.cli.exit_codes import DONE, NEGATIVE
from kvota.app.cli.explain_ids import (
    WIDTH,
    clock_text,
    id_lines,
    ids_held_until,
    ids_in,
    titled,
)
from kvota.app.cli.running_options import add_running_options, url_of
from kvota.app.text_width import columns_of, cut_to, filled_to
from kvota.model.plain_text import on_one_line
from kvota.model.quota_type import QuotaType
from kvota.model.units import format_duration_ms

EXAMPLE = "{kvota} explain --user analytics --client-id app"

# Of an entity's text: as long as that of both defaults. The whole names are in the first line.
_WHO_MAX = 49
_GAP = "  "
_UNDER_LEVEL = " " * 15
_Json = Mapping[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_running_options(parser)
    parser.add_argument(
        "--user", default="ANONYMOUS", metavar="NAME", help="who has logged in (default: ANONYMOUS)"
    )
    parser.add_argument(
        "--client-id", default="", metavar="NAME", help="as the client states it (default: none)"
    )
    parser.add_argument("--output", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Print the explanation; return 1 where the client is held back now."""
    from kvota.app.http_client import ask

    asked = {"user": args.user, "client_id": args.client_id}
    explained = ask(url_of(args), "/v1/explain", asked)
    if args.output == "json":
        print(json.dumps(explained))
    else:
        tenants = ask(url_of(args), "/v1/tenants", {"limit": "1000"}) if _is_new(explained) else {}
        print("\n".join(explain_lines(explained, near=_near(explained, tenants))))
    is_held = any(_held_until(quota) for quota in explained["quotas"])
    return NEGATIVE if is_held or ids_held_until(ids_in(explained)) else DONE


def _is_new(explained: _Json) -> bool:
    """True where nothing was ever counted for this client: its name may be mistyped."""
    counters = [one for quota in explained["quotas"] for one in quota["counters"]]
    return bool(counters) and all(one["new"] for one in counters)


def _near(explained: _Json, tenants: _Json) -> str:
    """A client of nearly these names that there is; empty: none."""
    there = tenants.get("tenants", ())
    near = []
    for key, title in (("user", "user"), ("client_id", "client id")):
        asked, known = explained[key], {one[key] for one in there if one[key]}
        found = [] if asked in known else difflib.get_close_matches(asked, known, n=1)
        near += [f"{title} {name}" for name in found]
    return ", ".join(near)


def explain_lines(explained: _Json, *, near: str = "") -> list[str]:
    """The explanation as people read it, in at most 80 columns but for long names.

    Args:
        explained: as the gateway tells it.
        near: a client that may be meant instead.
    """
    client = f"client id {explained['client_id']}" if explained["client_id"] else "no client id"
    lines = [on_one_line(f"user {explained['user']}, {client}, at gateway {explained['gateway']}")]
    ends = ((quota["quota_type"], _held_until(quota)) for quota in explained["quotas"])
    holds = [f"{kind} until {clock_text(end)}" for kind, end in ends if end]
    new_ids_ms = ids_held_until(ids_in(explained))
    holds += [f"new producer ids until {clock_text(new_ids_ms)}"] if new_ids_ms else []
    held = ", ".join(holds)
    lines.append(f"held back now by {held}" if held else "not held back now")
    if near:
        lines.append(on_one_line(f"nothing was counted for it yet; did you mean {near}?"))
    for quota in explained["quotas"]:
        if quota["counted"]:
            lines += ["", *_quota_lines(quota, explained)]
    of_ids = list(id_lines(ids_in(explained)))
    lines += ["", *of_ids] if of_ids else []
    others = explained["quotas"] if of_ids else [*explained["quotas"], ids_in(explained)]
    return lines + _uncounted_lines(others)


def _uncounted_lines(quotas: Sequence[_Json]) -> list[str]:
    """One line for all types of which nobody has a quota: there is nothing to explain."""
    types = [quota["quota_type"] for quota in quotas if not quota["counted"]]
    if not types:
        return []
    return ["", f"{', '.join(types)}: nobody has a quota"]


def _quota_lines(quota: _Json, explained: _Json) -> Iterator[str]:
    yield f"{quota['quota_type']}  {_headline(quota)}"
    if explained["callback"]:
        yield f"  decided by   {explained['callback']} ([kafka] client.quota.callback.class)"
    elif quota["decided_by"]:
        yield from _level_lines(quota)
    for counter in quota["counters"]:
        yield from _counter_lines(quota, counter)
    yield from _change_lines(quota)


def _headline(quota: _Json) -> str:
    if not quota["asked"]:
        return "the quota callback has not been asked about this client yet"
    if quota["limit_per_s"] is None and all(
        one["limit_per_s"] is None for one in quota["counters"]
    ):
        return "passes: no quota matches, so it has no limit"
    worst = max(quota["counters"], key=lambda one: (one["throttled_until_ms"] or 0, one["wait_ms"]))
    if worst["throttled_until_ms"]:
        return _held_text(worst)
    if not quota["enforced"] and worst["wait_ms"]:
        would = format_duration_ms(worst["wait_ms"])
        return f"passes: shadow mode (it would have to wait {would})"
    return "passes" if quota["enforced"] else "passes: shadow mode, nobody is held back"


def _held_text(counter: _Json) -> str:
    if counter["blocked"]:
        return "blocked: its limit lets nothing pass"
    wait_ms = max(counter["wait_ms"], counter["mute_left_ms"])
    verb = {"waits": "kept back", "refused": "refused"}.get(counter["outlook"], "throttled")
    until = clock_text(counter["throttled_until_ms"])
    return f"{verb} for {format_duration_ms(wait_ms)} more, until {until}"


def _level_lines(quota: _Json) -> Iterator[str]:
    levels = [(*_level_texts(quota, level), level) for level in quota["levels"]]
    width = max((columns_of(who) for who, _, _ in levels), default=0)
    for who, amount, level in levels:
        mark = ">" if level["decides"] else " "
        line = f"  {mark} level {level['level']}  {filled_to(who, width)} {amount:>9}"
        place = on_one_line(level["limit_from"])
        if columns_of(line) + len(_GAP) + columns_of(place) <= WIDTH:
            yield f"{line}{_GAP}{place}".rstrip()
        else:
            yield line
            yield f"{_UNDER_LEVEL}{place}"


def _level_texts(quota: _Json, level: _Json) -> tuple[str, str]:
    """Who is meant by it, as long as fits with the rest into a line, and what they may use."""
    from kvota.planning.plan_line import format_quota

    if level["entity"] is None:
        return "(a client id, which this client has not)", "-"
    limit = level["limit_per_s"]
    amount = "-" if limit is None else format_quota(QuotaType(quota["quota_type"]), limit)
    return cut_to(on_one_line(level["entity"]["text"]), _WHO_MAX), amount


def _counter_lines(quota: _Json, counter: _Json) -> Iterator[str]:
    quota_type = QuotaType(quota["quota_type"])
    names = ", ".join(f"{key}={value}" for key, value in (quota["tags"] or {}).items() if value)
    where = "" if counter["node_id"] in {None, -1} else f" at broker {counter['node_id']}"
    fresh = ", which is not there yet" if counter["new"] else ""
    yield on_one_line(f"  counter      {names or 'one for everybody'}{where}{fresh}")
    if counter["limit_per_s"] is not None:
        yield f"  limit        {_limit_text(quota_type, counter)}"
        yield f"  now          {_now_text(quota_type, counter)}"
    connections = counter["connections"]
    if connections:
        muted = f", {counter['muted_connections']} muted" if counter["muted_connections"] else ""
        waiting = f", {counter['requests_waiting']} waiting" if counter["requests_waiting"] else ""
        yield f"  connections  {connections}{muted}{waiting}"
    if counter["wait_ms"] and not counter["blocked"]:
        yield f"  why          {_why(quota_type, counter)}"


def _limit_text(quota_type: QuotaType, counter: _Json) -> str:
    from kvota.planning.plan_line import format_quota

    text = format_quota(quota_type, counter["limit_per_s"])
    if counter["factor"] != 1.0:
        configured = format_quota(quota_type, counter["configured_limit_per_s"])
        text += f" ({configured} x {counter['factor']:.2f}, the factor in force)"
    window = format_duration_ms(counter["sample_ms"])
    if counter["debt_ms"] is not None:
        return f"{text}, counted by token_bucket with a burst of {window}"
    return f"{text}, counted by {counter['algorithm']} over {counter['samples']} x {window}"


def _now_text(quota_type: QuotaType, counter: _Json) -> str:
    from kvota.app.amounts import room_text
    from kvota.planning.plan_line import format_quota

    if counter["tokens"] is not None:
        left = f"{counter['tokens']:.1f} partitions left in the bucket"
    elif counter["debt_ms"] is not None:
        debt_ms = counter["debt_ms"]
        owed = f"{format_duration_ms(abs(debt_ms))} of its limit"
        left = f"owes {owed}" if debt_ms > 0 else f"owes nothing; {owed} left of the burst"
    else:
        left = f"{format_quota(quota_type, counter['rate_per_s'] or 0.0)} measured"
    room = counter["room"]
    return left if room is None else f"{left}; room for {room_text(quota_type, room)} at once"


def _why(quota_type: QuotaType, counter: _Json) -> str:
    wait = format_duration_ms(counter["wait_ms"])
    if quota_type is QuotaType.CONTROLLER_MUTATION:
        return f"the bucket is overdrawn: {wait} until it is not; topics get error 89 until then"
    if counter["debt_ms"] is not None and counter["outlook_if_enforced"] == "waits":
        return f"more is owed than debt_max: a request waits {wait} for its turn, and then its like"
    if counter["debt_ms"] is not None:
        return f"what is owed is paid in {wait}; until then each answer says so, and mutes"
    return f"the rate falls to the limit in {wait}, if nothing more comes"


def _change_lines(quota: _Json) -> Iterator[str]:
    """The command, on a line of its own where it is long, so that it can be copied."""
    if not quota["change"]:
        return
    title = "to change" if quota["decided_by"] else "to limit it"
    yield from titled(title, quota["change"])


def _held_until(quota: _Json) -> int | None:
    ends = [one["throttled_until_ms"] for one in quota["counters"] if one["throttled_until_ms"]]
    return max(ends, default=None)
