"""The demo goes once round the circle, on a real Kafka, with real clients.

Shadow mode with first-guess quotas → the record → usage, replay and a plan on Spark → the plan in force →
the same tenants again → the law and the limits, judged from the record.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kvota.app.demo import ending, tables
from kvota.app.demo.beginning import prepare, terminated_as_interrupt
from kvota.app.demo.held_ids import HeldIds, held_ids
from kvota.app.demo.screen import Screen
from kvota.app.demo.tenants import (
    ANALYTICS,
    CRASHLOOP,
    ORDERS,
    PRODUCING,
    TENANTS,
    TenantReport,
    topic_of,
)
from kvota.app.demo.traffic import run_tenants
from kvota.app.demo.verdicts import verdicts
from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.files.command_name import called
from kvota.localkafka import LocalKafka
from kvota.model.bucket_settings import BucketSettings
from kvota.model.client_quotas import PRODUCER_IDS_KEY, ClientQuotas, KeyChange
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import BYTE_RATE_TYPES, CONFIGURABLE_TYPES, Algorithm, QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.model.units import format_duration_ms
from kvota.planning.plan_line import format_quota
from kvota.store.quotas_file import dump_quotas

if TYPE_CHECKING:  # Spark is imported when the first traffic has run
    from pyspark.sql import SparkSession

    from kvota.pipeline.chunk_schema import By
    from kvota.pipeline.chunks import Chunks
    from kvota.pipeline.law_check import LawResult
    from kvota.pipeline.recommendation import Recommendation, Wishes

    Understood = Callable[[Sequence[str]], tuple[Mapping[QuotaType, float], Wishes]]

STEPS = 8
# Small, so that the rates of a run of 20 s can be compared with the limits: what a bucket lets a client
# have beside its rate is at most 3 s of its limit (15 s of debt are usual).
BUCKET = BucketSettings(burst_ms=1_000, debt_max_ms=2_000)
BUCKETS = dict.fromkeys(BYTE_RATE_TYPES, BUCKET)
# For the same reason: Kafka's default of 11 x 1 s is a burst of 11 s.
MUTATION_WINDOW = QuotaWindow(samples=2, sample_ms=1_000)
FIRST_GUESS = ConfiguredQuotas(
    {
        QuotaEntity(user=DEFAULT): {
            QuotaType.PRODUCE: 5e6,
            QuotaType.FETCH: 8e6,
            QuotaType.CONTROLLER_MUTATION: 5.0,
        }
    }
)
# The operator says how much this cluster can take, that a trial of some seconds is enough for a plan, and how
# bandwidth will be counted (BUCKET): the first guess is tried by Kafka's own algorithm.
PLAN_OPTIONS = (
    *("--capacity", "PRODUCE=10MB/s", "--capacity", "FETCH=20MB/s"),
    *("--capacity", "CONTROLLER_MUTATION=8/s"),
    *("--algorithm", Algorithm.TOKEN_BUCKET.value),
    *("--burst", "1s", "--debt-max", "2s"),
    *("--min-hours", "0", "--min-events", "1", "--allow-below-median", "--step-down", "0.25"),
)
# As well: how many producers a tenant may start in an hour, all at once if it likes.
NEW_IDS, NEW_IDS_WINDOW_S = 10.0, 3_600
PARTITIONS = 2
_SHADOW, _ENFORCED = "shadow", "enforced"


def run_demo(folder: Path, *, seconds: float, understood: "Understood") -> int:
    """Run the demo; its record and quotas stay in ``folder``. Return 1 if a promise was broken.

    Args:
        folder: is made anew.
        seconds: how long the tenants run, each time.
        understood: what words behind ``kvota recommend`` mean.

    Raises:
        KvotaError: Kafka, the gateway or a tenant failed; nothing is left running.
    """
    prepare(folder)
    screen = Screen(STEPS)
    screen.note(tables.who_they_are())
    with terminated_as_interrupt(), ExitStack() as stack:
        passwords = {name: f"{name}-secret" for name in TENANTS}
        with screen.step("Apache Kafka 4.3.1, one node") as said:
            kafka = stack.enter_context(LocalKafka(users=passwords))
            for tenant in PRODUCING:
                kafka.create_topic(topic_of(tenant), partitions=PARTITIONS)
            said.append(f"broker at {kafka.sasl_bootstrap_servers}")
        code = _Circle(screen, folder, kafka, passwords, seconds, understood).run(stack)
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
        understood: "Understood",
    ) -> None:
        self._understood = understood
        self._screen = screen
        self._folder = folder
        self._kafka = kafka
        self._passwords = passwords
        self._seconds = seconds
        self._held: dict[str, HeldIds] = {}

    def run(self, stack: ExitStack) -> int:
        screen = self._screen
        before_seen = self._traffic(_SHADOW, FIRST_GUESS)
        with screen.step("Spark: who used how much, and what other quotas would have done"):
            from kvota.pipeline.spark_session import end_session, session

            spark = session("local[2]", short=True)
            stack.callback(end_session, spark)
            before = self._usage(spark, _SHADOW)
            replayed = self._replayed(spark, before[ANALYTICS, QuotaType.PRODUCE])
        screen.show(f"\n{replayed}\n")
        with screen.step("Spark: a plan under the capacity stated"):
            found = self._recommended(spark)
        table = tables.plan_table(found.plan.lines, before, found.plan.capacities)
        command = tables.as_typed([called(), "recommend", *self._plan_words()])
        whole = f"{tables.confirmed(found.together)}\n{tables.promised(found.promised)}"
        screen.show(f"\n{command}\n\n{table}\n\n{whole}\n")
        after_seen = self._traffic(_ENFORCED, found.new)
        with screen.step("Spark: the law and the limits, judged from the record"):
            after = self._usage(spark, _ENFORCED)
            law = self._law(spark)
            end = ending.Ending(
                verdicts=verdicts(self._record(_ENFORCED), BUCKETS),
                law=_law_sentence(law),
                law_holds=law.holds and not law.missing and not law.repeated,
                before=before_seen,
                after=after_seen,
                held_ids=self._held,
                new_ids=(NEW_IDS, NEW_IDS_WINDOW_S),
                refused_orders=tables.refused(after, ORDERS, QuotaType.PRODUCER_ID),
                folder=self._folder,
            )
        print()
        screen.heading("Before and after")
        screen.show(
            f"{tables.before_and_after(before, after, end.marks)}\n\n"
            f"{ending.legend(BUCKET, MUTATION_WINDOW, NEW_IDS_WINDOW_S)}\n\n"
            f"{ending.closing_lines(end)}\n\n"
            f"{ending.outcome(end)}"
        )
        return 1 if end.broken else 0

    def _traffic(self, mode: str, quotas: ConfiguredQuotas) -> dict[str, TenantReport]:
        """Run the tenants through a gateway; return their reports."""
        enforced = mode == _ENFORCED
        gateway = GatewayProcess(
            self._folder / mode,
            config=gateway_toml(
                upstream=self._kafka.sasl_bootstrap_servers,
                node_ids="0-2",
                enforce=dict.fromkeys((*CONFIGURABLE_TYPES, QuotaType.PRODUCER_ID), enforced),
                buckets=BUCKETS if enforced else None,
                record="record",
                kafka={
                    "controller.quota.window.num": MUTATION_WINDOW.samples,
                    "controller.quota.window.size.seconds": MUTATION_WINDOW.sample_ms // 1000,
                    "producer.id.quota.window.size.seconds": NEW_IDS_WINDOW_S,
                },
            ),
            quotas=dump_quotas(_with_new_ids(quotas)),
        )
        title = (
            "Gateway: the plan in force"
            if enforced
            else "Gateway in shadow mode: it decides and records, and holds nobody back"
        )
        with ExitStack() as stack:
            with self._screen.step(title) as said:
                stack.enter_context(gateway)
                said.append(f"clients bootstrap at {gateway.bootstrap_servers}")
                said.append(_how_it_counts() if enforced else _first_guess())
            with self._screen.step(
                f"Tenants for {self._seconds:.0f} s: {', '.join(TENANTS)}"
            ) as said:
                before, began_s = self._ids(), time.monotonic()
                seen = run_tenants(
                    self._folder / mode / "tenants",
                    bootstrap_servers=gateway.bootstrap_servers,
                    passwords=self._passwords,
                    seconds=self._seconds,
                )
                after, elapsed_s = self._ids(), time.monotonic() - began_s
                self._held[mode] = HeldIds(before, after, elapsed_s)
                said.extend(tables.what_was_seen(seen))
        return seen

    def _ids(self) -> int:
        return held_ids(self._kafka.bootstrap_servers, topic_of(CRASHLOOP), PARTITIONS)

    def _record(self, mode: str) -> Path:
        return self._folder / mode / "record"

    def _usage(self, spark: "SparkSession", mode: str) -> dict[tuple[str, str], tables.Use]:
        from kvota.pipeline.usage_tables import USAGE_COLUMNS, usage_total

        chunks = self._chunks(spark, [mode], "user", further=USAGE_COLUMNS)
        return {
            (row["user"], row["quota_type"]): tables.Use(
                rate=row["rate_mean"],
                share_throttled=row["share_throttled"],
                refused=row["rejected"],
                limit=row["limit_last"],
            )
            for row in usage_total(chunks).collect()
        }

    def _replayed(self, spark: "SparkSession", used: tables.Use) -> str:
        """Replay analytics under other quotas: one replay, several candidates."""
        from kvota.pipeline.replay_tables import replay

        chunks = self._chunks(spark, [_SHADOW], "user", quota_types=["PRODUCE"])
        replayed = replay(chunks, tables.candidates(used))
        rows = replayed.where(replayed["user"] == ANALYTICS).orderBy("quota").collect()
        tried = [
            tables.Tried(row["quota"], row["events"], row["share_over"], row["share_throttled"])
            for row in rows
        ]
        return tables.replay_table(tried, used)

    def _recommended(self, spark: "SparkSession") -> "Recommendation":
        from kvota.pipeline.events import read_events
        from kvota.pipeline.recommendation import recommend
        from kvota.pipeline.usage_tables import USAGE_COLUMNS

        capacities, wishes = self._understood(self._plan_words())
        planned = [quota_type.value for quota_type in capacities]
        chunks = self._chunks(
            spark,
            [_SHADOW],
            "user",
            further=USAGE_COLUMNS,
            quota_types=planned,
            gateways_apart=True,
        )
        clients = read_events(spark, self._record(_SHADOW))
        return recommend(chunks, clients, FIRST_GUESS, capacities, wishes)

    def _plan_words(self) -> list[str]:
        """Return the words behind ``kvota recommend`` that make the same plan."""
        quotas = self._folder / _SHADOW / "quotas.toml"
        return ["--events", str(self._record(_SHADOW)), "--quotas", str(quotas), *PLAN_OPTIONS]

    def _law(self, spark: "SparkSession") -> "LawResult":
        from kvota.pipeline.law_check import LAW_COLUMNS, law

        return law(self._chunks(spark, [_SHADOW, _ENFORCED], "counter", further=LAW_COLUMNS))

    def _chunks(
        self,
        spark: "SparkSession",
        modes: Iterable[str],
        by: "By",
        *,
        further: Iterable[str] = (),
        quota_types: Iterable[str] | None = None,
        gateways_apart: bool = False,
    ) -> "Chunks":
        from kvota.pipeline.chunks import chunks_of_files
        from kvota.record.found_events import find_events

        found = find_events(self._record(mode) for mode in modes)
        return chunks_of_files(
            spark,
            found,
            by,
            further=further,
            quota_types=quota_types,
            gateways_apart=gateways_apart,
        )


def _with_new_ids(quotas: ConfiguredQuotas) -> ClientQuotas:
    """Add what the operator wants for each user beside the plan."""
    of_each = KeyChange(QuotaEntity(user=DEFAULT), PRODUCER_IDS_KEY, NEW_IDS)
    return ClientQuotas.of(quotas).with_changes([of_each])


def _first_guess() -> str:
    (first,) = FIRST_GUESS.entries().values()
    amounts = ", ".join(f"{kind} {format_quota(kind, limit)}" for kind, limit in first.items())
    return f"the first guess, for each user: {amounts}, {NEW_IDS:g} new producer ids /h"


def _how_it_counts() -> str:
    return (
        f"bandwidth is counted by token buckets: {format_duration_ms(BUCKET.burst_ms)} of the limit as a "
        f"burst; who owes more than {format_duration_ms(BUCKET.debt_max_ms)} of it waits for its turn"
    )


def _law_sentence(law: "LawResult") -> str:
    lost = f"; {law.missing:,} rows are missing" if law.missing else ""
    again = f"; {law.repeated:,} are there twice" if law.repeated else ""
    return f"{law}{lost}{again}"
