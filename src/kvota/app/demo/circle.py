"""The demo goes once round the circle, on a real Kafka, with real clients.

Shadow mode with first-guess quotas → the record → usage, replay and a plan on Spark → the plan in force →
the same tenants again → the law and the limits, judged from the record.
"""

import logging
import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from kvota.app.demo.screen import Screen
from kvota.app.demo.tenants import ANALYTICS, CI_BOT, ORDERS, TENANTS, TenantReport, topic_of
from kvota.app.demo.traffic import percentile, run_tenants
from kvota.app.demo.verdicts import Charges, admitted_charges, verdicts
from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.app.text_table import text_table
from kvota.localkafka import LocalKafka
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import UsageError
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import CONFIGURABLE_TYPES, QuotaType
from kvota.model.units import format_byte_rate, format_duration_ms
from kvota.planning.guardrails import Guardrails
from kvota.planning.plan import format_quota
from kvota.store.quotas_file import dump_quotas

if TYPE_CHECKING:  # Spark is imported when the first traffic has run
    from pyspark.sql import SparkSession

    from kvota.pipeline.law import LawResult

STEPS = 8
# Windows of 2 x 1 s: Kafka's default of 11 lets a client run over for longer than the demo lasts.
WINDOW = {
    "quota.window.num": 2,
    "quota.window.size.seconds": 1,
    "controller.quota.window.num": 2,
    "controller.quota.window.size.seconds": 1,
}
FIRST_GUESS = ConfiguredQuotas(
    {
        QuotaEntity(user=DEFAULT): {
            QuotaType.PRODUCE: 4e6,
            QuotaType.FETCH: 8e6,
            QuotaType.CONTROLLER_MUTATION: 5.0,
        }
    }
)
# The operator says that this cluster can take this much.
CAPACITIES = {
    QuotaType.PRODUCE: 10e6,
    QuotaType.FETCH: 20e6,
    QuotaType.CONTROLLER_MUTATION: 8.0,
}
# The plan is made from 20 s of traffic, for a cluster that nobody depends on.
RELAXED = Guardrails(
    hours_min=0, events_min=1, step_up_max=1e6, step_down_max=1e-6, keeps_median=False
)
# Kafka counts in whole milliseconds: the time of a charge, its throttle, and the end of the mute.
ROUNDING_MS = 3
# A mute that ends later than this is the gateway's fault, and no excuse.
LATE_MS_MAX = 100.0
_MARKER = ".kvota-demo"
_SHADOW, _ENFORCED = "shadow", "enforced"
_HELD, _LATE, _NOT_HELD = "✓", "✓ late", "✗ NOT HELD"


@dataclass(frozen=True, slots=True)
class Use:
    """One tenant's use of one quota type in one run, from the usage table."""

    rate: float
    share_throttled: float
    throttled: int
    refused: int
    limit: float | None


Uses = dict[tuple[str, str], Use]  # (tenant, quota type)


def run_demo(folder: Path, *, seconds: float) -> int:
    """Run the demo; its record and quotas stay in ``folder``. Return 1 if a limit or the law broke.

    Raises:
        KvotaError: Kafka, the gateway or a tenant failed; nothing is left running.
    """
    _prepare(folder)
    screen = Screen(STEPS)
    with _terminated_as_interrupt(), ExitStack() as stack:
        passwords = {name: f"{name}-secret" for name in TENANTS}
        with screen.step("Apache Kafka 4.3.1, one node") as said:
            kafka = stack.enter_context(LocalKafka(users=passwords))
            for tenant in (ORDERS, ANALYTICS):
                kafka.create_topic(topic_of(tenant), partitions=2)
            said.append(f"broker at {kafka.sasl_bootstrap_servers}")
        code = _Circle(screen, folder, kafka, passwords, seconds).run(stack)
    print(f"\n{format_duration_ms(screen.elapsed_s * 1000)} in all; nothing is left running")
    return code


class _Circle:
    def __init__(
        self,
        screen: Screen,
        folder: Path,
        kafka: LocalKafka,
        passwords: dict[str, str],
        seconds: float,
    ) -> None:
        self._screen = screen
        self._folder = folder
        self._kafka = kafka
        self._passwords = passwords
        self._seconds = seconds

    def run(self, stack: ExitStack) -> int:
        before_seen, _ = self._traffic(_SHADOW, FIRST_GUESS)
        with self._screen.step("Spark: who used how much, and what other quotas would have done"):
            from kvota.pipeline.spark_session import end_session, session

            spark = session("local[2]", short=True)
            stack.callback(end_session, spark)
            before = self._usage(spark, _SHADOW)
            replayed = self._replayed(spark)
        print(f"\n{replayed}\n", flush=True)
        with self._screen.step("Spark: a plan under the capacity stated"):
            plan = self._plan(spark)
        print(f"\n{plan.text}\n", flush=True)
        after_seen, late_ms = self._traffic(_ENFORCED, plan.quotas)
        with self._screen.step("The law and the limits, from the record"):
            after = self._usage(spark, _ENFORCED)
            marks = _marks(admitted_charges(self._record(_ENFORCED)), late_ms)
            law = self._law(spark)
        print()
        self._screen.heading("Before and after")
        print(_closing_table(before, after, marks))
        print()
        print(_closing_lines(before_seen, after_seen, str(law), self._folder))
        print(
            "held                 in every interval: admitted <= limit x (elapsed + 1 s) + one request "
            f"(mutations: + the burst), to {ROUNDING_MS} ms"
        )
        if _LATE in marks.values():
            print(
                f"{_LATE:<20} not quite: the latest mute ended {late_ms:.0f} ms late, and what was not sent "
                "meanwhile was sent afterwards"
            )
        unjudged = [key for key in before if key not in marks]
        if unjudged:
            print(f"not judged, no limit was in force: {unjudged}")
        held = not unjudged and _NOT_HELD not in marks.values()
        complete = law.holds and not law.missing and not law.repeated
        lost = [
            seen[ORDERS].failed_records + seen[ORDERS].sent_records - seen[ORDERS].received_records
            for seen in (before_seen, after_seen)
        ]
        if any(lost):
            print(f"\norders: {lost[0]} + {lost[1]} records not delivered")
        return 0 if held and complete and not any(lost) else 1

    def _traffic(
        self, mode: str, quotas: ConfiguredQuotas
    ) -> tuple[dict[str, TenantReport], float]:
        """Run the tenants through a gateway; return their reports and its latest mute's delay."""
        first_port = free_port_range(4)
        enforced = mode == _ENFORCED
        gateway = GatewayProcess(
            self._folder / mode,
            config=gateway_toml(
                upstream=self._kafka.sasl_bootstrap_servers,
                first_port=first_port,
                node_ids="0-2",
                enforce=dict.fromkeys(CONFIGURABLE_TYPES, enforced),
                record="record",
                kafka=WINDOW,
            ),
            quotas=dump_quotas(quotas),
            first_port=first_port,
        )
        title = (
            "Gateway: the plan in force"
            if enforced
            else "Gateway in shadow mode, first-guess quotas"
        )
        with ExitStack() as stack:
            with self._screen.step(title) as said:
                stack.enter_context(gateway)
                said.append(f"clients bootstrap at {gateway.bootstrap_servers}")
                said.append(
                    "windows of 2 x 1 s (Kafka's default of 11 lets a client run 10-14 % over in so "
                    "short a run)"
                )
            with self._screen.step(
                f"Tenants for {self._seconds:.0f} s: {', '.join(TENANTS)}"
            ) as said:
                seen = run_tenants(
                    self._folder / mode / "tenants",
                    bootstrap_servers=gateway.bootstrap_servers,
                    passwords=self._passwords,
                    seconds=self._seconds,
                )
                said.append(_what_was_seen(seen))
        return seen, gateway.mute_late_ms

    def _record(self, mode: str) -> Path:
        return self._folder / mode / "record"

    def _usage(self, spark: "SparkSession", mode: str) -> Uses:
        from kvota.pipeline.events import read_events
        from kvota.pipeline.usage import usage_total

        events = read_events(spark, self._record(mode))
        return {
            (row["user"], row["quota_type"]): Use(
                rate=row["rate_mean"],
                share_throttled=row["share_throttled"],
                throttled=row["throttled"],
                refused=row["rejected"],
                limit=row["limit_last"],
            )
            for row in usage_total(events, "user").collect()
        }

    def _replayed(self, spark: "SparkSession") -> str:
        """Replay analytics under other quotas: one replay, several candidates."""
        from kvota.pipeline.events import read_events
        from kvota.pipeline.replay import replay

        events = read_events(spark, self._record(_SHADOW))
        candidates = [2e6, 4e6, 8e6, 16e6, 32e6]
        replayed = replay(events, candidates, by="user", quota_types=["PRODUCE"])
        rows = replayed.where(replayed["user"] == ANALYTICS).orderBy("quota").collect()
        lines = [
            [
                format_byte_rate(row["quota"]),
                f"{row['share_over']:.0%}",
                f"{row['share_throttled']:.0%}",
            ]
            for row in rows
        ]
        header = ["analytics, replayed with", "requests over", "time throttled"]
        return text_table(header, lines)

    def _plan(self, spark: "SparkSession") -> "_Planned":
        from kvota.pipeline.events import read_events
        from kvota.pipeline.recommend import Wishes, recommend

        events = read_events(spark, self._record(_SHADOW))
        found = recommend(events, FIRST_GUESS, CAPACITIES, Wishes(guardrails=RELAXED))
        capacity = ", ".join(
            f"{quota_type} {_amount(quota_type, most)}" for quota_type, most in CAPACITIES.items()
        )
        lines = [f"capacity stated: {capacity}"]
        lines += [
            f"  {line.entity} {line.quota_type}: {_amount(line.quota_type, line.proposed)} "
            f"({line.reason.value}): {line.evidence}"
            for line in found.plan.lines
        ]
        return _Planned(found.new, "\n".join(lines))

    def _law(self, spark: "SparkSession") -> "LawResult":
        from kvota.pipeline.events import read_events
        from kvota.pipeline.law import law

        events = read_events(spark, self._record(_SHADOW), self._record(_ENFORCED))
        return law(events)


@dataclass(frozen=True, slots=True)
class _Planned:
    quotas: ConfiguredQuotas
    text: str


def _marks(charges: Charges, late_ms: float) -> dict[tuple[str, str], str]:
    """Mark, by (tenant, quota type), limits that held, held but for a late mute, or did not."""
    strictly = verdicts(charges, late_ms=ROUNDING_MS)
    excused = verdicts(charges, late_ms=min(late_ms, LATE_MS_MAX) + ROUNDING_MS)
    return {
        key: _HELD if verdict.holds else _LATE if excused[key].holds else _NOT_HELD
        for key, verdict in strictly.items()
    }


def _closing_table(before: Uses, after: Uses, marks: Mapping[tuple[str, str], str]) -> str:
    header = ["tenant", "quota", "rate", "would be throttled", "limit", "rate", "throttled", "held"]
    rows = []
    for key in sorted(
        before, key=lambda key: (TENANTS.index(key[0]) if key[0] in TENANTS else 9, key)
    ):
        tenant, quota_type = key
        was, now = before[key], after.get(key)
        rows.append(
            [
                tenant,
                quota_type,
                _amount(quota_type, was.rate),
                f"{was.share_throttled:.0%}",
                _amount(quota_type, now.limit if now else None),
                _amount(quota_type, now.rate if now else 0.0),
                _throttled(quota_type, now),
                marks.get(key, "-"),
            ]
        )
    text = text_table(header, rows)
    width = text.index("limit") if "limit" in text else 0
    return f"{'':<24}{'before (shadow)':<{max(1, width - 24)}}after (enforced)\n{text}"


def _throttled(quota_type: str, use: Use | None) -> str:
    if use is None:
        return "-"
    if quota_type == QuotaType.CONTROLLER_MUTATION and use.refused:
        return f"{use.refused} refused"
    return f"{use.share_throttled:.0%}"


def _amount(quota_type: str, value: float | None) -> str:
    return "unlimited" if value is None else format_quota(QuotaType(quota_type), value)


def _closing_lines(
    before: dict[str, TenantReport], after: dict[str, TenantReport], law: str, folder: Path
) -> str:
    was, now = before[ORDERS].latencies_ms, after[ORDERS].latencies_ms
    record = folder / _ENFORCED / "record"
    return "\n".join(
        [
            (
                f"orders' latency      p50 {percentile(was, 0.5):.1f} ms  p99 {percentile(was, 0.99):.0f} ms"
                f"   →   p50 {percentile(now, 0.5):.1f} ms  p99 {percentile(now, 0.99):.0f} ms"
            ),
            f"law                  {law}: recorded decisions replayed on Spark, to the millisecond",
            (
                f"next                 ./run kvota usage --events {record}   ·   "
                f"./run kvota replay --events {record} --law   ·   docs/gateway.md"
            ),
        ]
    )


def _what_was_seen(seen: dict[str, TenantReport]) -> str:
    orders, analytics, bot = seen[ORDERS], seen[ANALYTICS], seen[CI_BOT]
    return (
        f"orders {orders.received_records:,} of {orders.sent_records:,} records delivered, "
        f"analytics {analytics.sent_records:,} sent, "
        f"ci-bot {bot.created_topics} topics created, {bot.refused_topics} refused"
    )


def _prepare(folder: Path) -> None:
    """Make an empty folder of our own; somebody else's is left alone."""
    if folder.exists() and not folder.is_dir():
        msg = f'"{folder}" is a file. Name a folder: --folder DIR'
        raise UsageError(msg)
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARKER).exists():
            msg = (
                f'"{folder}" is not empty and not from an earlier demo. Name another: --folder DIR'
            )
            raise UsageError(msg)
        shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MARKER).write_text("made by kvota demo; removed by the next one\n")
    except OSError as error:
        msg = f'"{folder}" cannot be written ({error.strerror}). Name another: --folder DIR'
        raise UsageError(msg) from error


@contextmanager
def _terminated_as_interrupt() -> Iterator[None]:
    """Let SIGTERM and the terminal's end stop all that was started, as Ctrl-C does."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {
        number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    logging.getLogger("kafka").setLevel(logging.ERROR)
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
