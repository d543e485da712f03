"""The demo's tables, each with the sentences that it needs to be understood."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvota.app.demo.screen import WIDTH, wrapped
from kvota.app.demo.tenants import (
    ANALYTICS,
    ANALYTICS_CONNECTIONS,
    CI_BOT,
    CRASHLOOP,
    CRASHLOOP_RECORDS,
    ORDER_BYTES,
    ORDERS,
    ORDERS_PER_S,
    TENANTS,
    TenantReport,
)
from kvota.app.text_table import text_table
from kvota.model.quota_type import QuotaType
from kvota.model.units import format_byte_rate, format_duration_ms
from kvota.planning.need import Tolerance
from kvota.planning.plan_line import PlanLine, Reason, format_quota

if TYPE_CHECKING:
    from kvota.pipeline.admitted import Together
    from kvota.planning.promised import Promised

_REFUSALS = frozenset({Reason.STEP, Reason.TOO_LITTLE_DATA, Reason.NOT_CONFIRMED})
# A path may make a line longer.
_COMMAND_WIDTH = WIDTH - 30


@dataclass(frozen=True, slots=True)
class Use:
    """One tenant's use of one quota type in one run, from the usage table."""

    rate: float
    share_throttled: float
    refused: int
    limit: float | None


Uses = Mapping[tuple[str, str], Use]  # by (tenant, quota type)


def refused(uses: Uses, tenant: str, quota_type: QuotaType) -> int:
    """Return how many times a tenant was refused; of what it has not used, never."""
    use = uses.get((tenant, quota_type))
    return use.refused if use else 0


@dataclass(frozen=True, slots=True)
class Tried:
    """The replay's result for one quota."""

    quota: float
    requests: int
    share_over: float
    share_throttled: float


def who_they_are() -> str:
    """Return who takes part, and what will happen."""
    return (
        f"Four tenants share one Kafka: {ORDERS} sends {format_byte_rate(ORDERS_PER_S * ORDER_BYTES)} and "
        f"minds its latency, {ANALYTICS} sends all it can over {ANALYTICS_CONNECTIONS} connections, {CRASHLOOP} makes a "
        f"new idempotent producer for every {CRASHLOOP_RECORDS} records, {CI_BOT} creates and deletes topics in storms. "
        "First kvota only watches; then it plans quotas and holds all four to them. Two to four minutes."
    )


def what_was_seen(seen: Mapping[str, TenantReport]) -> list[str]:
    """Return a line for each tenant: what its own clients saw."""
    orders, analytics, loop = seen[ORDERS], seen[ANALYTICS], seen[CRASHLOOP]
    bot = seen[CI_BOT]
    of_orders = (
        f"{orders.delivered_records:,} of {orders.sent_records:,} records delivered, "
        f"{orders.stored_records:,} read back"
    )
    of_loop = (
        f"{loop.producers:,} producers made, {loop.delivered_records:,} of {loop.sent_records:,} "
        "records delivered"
    )
    return [
        f"{ORDERS}: {of_orders}",
        f"{ANALYTICS}: {analytics.delivered_records:,} records delivered",
        f"{CRASHLOOP}: {of_loop}",
        f"{CI_BOT}: {bot.created_topics:,} topics created, {bot.refused_topics:,} refused",
    ]


def candidates(use: Use) -> list[float]:
    """Return quotas worth a try: shares of what was used, and the one in force in place of its like."""
    tried = [_two_figures(use.rate * share) for share in (0.25, 0.5, 1.0, 1.5, 2.0)]
    if use.limit is None:
        return tried
    in_force = use.limit
    others = [quota for quota in tried if not 0.8 < quota / in_force < 1.25]
    return sorted([in_force, *others])


def replay_table(tried: Sequence[Tried], use: Use) -> str:
    """Return what other PRODUCE quotas would have done to analytics."""
    requests = tried[0].requests if tried else 0
    rows = [
        [
            format_byte_rate(one.quota),
            f"{one.share_over:.0%}",
            f"{one.share_throttled:.0%}",
            "the first guess" if one.quota == use.limit else "",
        ]
        for one in tried
    ]
    table = text_table(
        ["quota", "requests over it", "time throttled", ""],
        rows,
        left=0,
        last_left=True,
        width=WIDTH,
    )
    above = wrapped(
        f"What other PRODUCE quotas would have done to {ANALYTICS}, which used "
        f"{format_byte_rate(use.rate)}: its {requests:,} recorded requests, replayed on Spark"
    )
    below = wrapped(
        f"Replayed as they came, though throttled clients would have sent less. {ANALYTICS} sends as fast "
        "as it can: of a quota far below its use nothing is ever left, and nearly all that it sends is "
        "over it. Its fair part cannot be seen from that, but from what the others need:"
    )
    return f"{above}\n\n{table}\n\n{below}"


def plan_table(lines: Sequence[PlanLine], used: Uses, capacities: Mapping[QuotaType, float]) -> str:
    """Return the plan: for each tenant its limit and the reason."""
    can_take = ", ".join(
        f"{quota_type.value} {format_quota(quota_type, most)}"
        for quota_type, most in capacities.items()
    )
    rows = sorted((_plan_row(line, used) for line in lines), key=_by_tenant)
    # What a plan refuses has a reason of its own, which names the option that relaxes it.
    refused = [
        f"\n{wrapped(f'{line.entity.user} {line.quota_type}: {line.evidence}.')}"
        for line in lines
        if line.reason in _REFUSALS or line.need is None
    ]
    header = ["tenant", "quota", "used", "needs", "limit", "because"]
    tolerance = Tolerance()
    return "\n".join(
        [
            wrapped(f"You say how much the cluster can take: {can_take}"),
            "",
            text_table(header, rows, left=2, last_left=True, width=WIDTH),
            *refused,
            "",
            wrapped(
                "used: its mean rate. needs: the smallest quota under which, in the first 70 % of the time, no more than "
                f"{tolerance.share_over_max:.1%} of its requests would have been throttled, and none for "
                f"more than {format_duration_ms(tolerance.worst_ms_max)}. Its busiest moments "
                "decide that, so it is above the mean."
            ),
        ]
    )


def _plan_row(line: PlanLine, used: Uses) -> list[str]:
    tenant = str(line.entity.user)
    use = used.get((tenant, line.quota_type))
    because = {
        Reason.NEED: "what it needs, and the headroom",
        Reason.SHARE: "a fair share: it needs more",
        Reason.FLOOR: "the least that is planned",
        Reason.STEP: "one step from the first guess",
        Reason.KEPT: "the first guess is right" if line.need else "as it was: nothing learnt",
        Reason.NOT_CONFIRMED: "as it was: not confirmed",
    }
    return [
        tenant,
        line.quota_type.value,
        _amount(line.quota_type, use.rate if use else 0.0),
        "-" if line.need is None else _amount(line.quota_type, line.need.rate),
        _amount(line.quota_type, line.proposed),
        because.get(line.reason, line.reason.value.replace("_", " ")),
    ]


def as_typed(words: Sequence[str]) -> str:
    """Return a command as a user would type it, an option to a line where it is long."""
    lines = [""]
    for word in words:
        if word.startswith("--") and len(lines[-1]) + len(word) > _COMMAND_WIDTH:
            lines.append("   ")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n".join(lines)


def confirmed(whole: "Sequence[Together]") -> str:
    """Return whether all tenants together stay within the capacities in the time that was held out."""
    kept = [f"{each.quota_type}" for each in whole if each.is_kept]
    over = [
        f"{each.quota_type} is above it in {each.seconds_over} of {each.seconds} s"
        for each in whole
        if not each.is_kept
    ]
    parts = [f"{', '.join(kept)} within the capacity"] if kept else []
    return wrapped(
        "The plan, replayed over the 30 % of the time that it was not learnt from: all tenants together: "
        + "; ".join([*parts, *over])
    )


def promised(found: "Mapping[QuotaType, Promised]") -> str:
    """Return what all quotas add up to: a limit that comes down by steps is large for a while."""
    sums = ", ".join(
        f"{quota_type} {format_quota(quota_type, one.rate)}" for quota_type, one in found.items()
    )
    return wrapped(f"If all used their limits at once, that would be {sums}")


def before_and_after(before: Uses, after: Uses, marks: Mapping[tuple[str, str], str]) -> str:
    """Return the closing table: each tenant without its limit and with it."""
    rows = [
        ["", "", "", "would be", "", "", "", ""],
        ["tenant", "quota", "rate", "throttled", "limit", "rate", "throttled", "held"],
    ]
    for key in sorted(before.keys() | after.keys(), key=_by_tenant):
        was, now = before.get(key), after.get(key)
        rows.append(
            [
                *key,
                _amount(key[1], was.rate) if was else "-",
                f"{was.share_throttled:.0%}" if was else "-",
                _amount(key[1], now.limit) if now else "-",
                _amount(key[1], now.rate) if now else "-",
                _throttled(now),
                marks.get(key, "-"),
            ]
        )
    text = text_table(rows[0], rows[1:], left=2, last_left=True, width=WIDTH)
    header = text.splitlines()[1]
    first, second = header.index("rate"), header.index("limit")
    above = " " * (first - 5) + "before (shadow)"
    return f"{above:<{second - 4}}after (enforced)\n{text}"


def _throttled(use: Use | None) -> str:
    if use is None:
        return "-"
    return f"{use.refused:,} refused" if use.refused else f"{use.share_throttled:.0%}"


def _by_tenant(row: Sequence[str]) -> tuple[int, str, str]:
    """Order by the first two columns, tenant and quota type."""
    return (TENANTS.index(row[0]) if row[0] in TENANTS else len(TENANTS), row[0], row[1])


def _amount(quota_type: str, value: float | None) -> str:
    return "unlimited" if value is None else format_quota(QuotaType(quota_type), value)


def _two_figures(value: float) -> float:
    return float(f"{max(value, 1.0):.1e}")
