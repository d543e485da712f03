"""A plan made from a run in shadow mode holds when the same tenants come again under it; brokers' own logs give the same plan."""

import io
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.endurance.findings import Findings
from tests.integration.conftest import HOST
from tests.integration.live_plan.circle import (
    LATE_S_MAX,
    MISSES,
    USERS,
    Said,
    Trial,
    judged,
    make_topic,
    recommended,
    recorded,
)
from tests.integration.live_plan.demand import CAPACITY, Demand

from kvota.app.cli.main import main
from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED

# Two brokers, two runs of 15 s, each tried several times, and two plans, where the machine has other work, too.
pytestmark = pytest.mark.timeout(800)
LOG4J = Path(__file__).with_name("request_log.log4j2.properties")
# Of twelve seconds one proves nothing, as where a plan is judged; ``bench/live_plan`` has enough of them.
TRIAL = Trial(demand=Demand(seconds=15.0, day_s=5.0, gateways=1), capacity=CAPACITY, over_max_s=1)
# Of what is needed, and of what is planned. The broker's clock reads a request some milliseconds after the gateway's: at either end of a
# window, one request at a time may count in the one and not in the other, which is more than that for who sends a few small ones.
WITHIN, WINDOW_S = 0.02, 10


def kvota(*words: str) -> Said:
    """The command, on the session of these tests."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(list(words))
    return Said(code, out.getvalue(), err.getvalue())


@dataclass(frozen=True)
class Seen:
    """What came of it.

    Attributes:
        of_record: the plan from the gateway's record, as JSON.
        of_log: from the brokers' request logs.
        under_plan: what came of the second run.
        late_s: how late the demand came, in the later one of the two runs.
    """

    of_record: dict[str, Any]
    of_log: dict[str, Any]
    under_plan: Findings
    late_s: float


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    """Two brokers, each of which writes its request log where it writes its others: a file of its own."""
    options = (
        *SHORT_LIVED,
        f"-Dlog4j2.configurationFile={LOG4J}",
        "-Dkvota.request.log=/dev/stdout",
    )
    with LocalKafka(nodes=2, host=HOST, users=USERS, java_options=options) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def seen(kafka: LocalKafka, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    assert spark is not None
    folder = tmp_path_factory.mktemp("live-plan")
    make_topic(kafka)
    for number in range(
        MISSES
    ):  # brokers stand still with the machine, too, and write their lines late
        of_try = folder / str(number)
        shadow = recorded(TRIAL, kafka, of_try / "shadow")
        plan = of_try / "plan.yaml"
        of_record = dict(recommended(TRIAL, ["--events", *map(str, shadow.records)], plan, kvota))
        place = ["--request-log", str(_logs(kafka, of_try / "logs"))]
        place += ["--log-zone", "UTC", "--since", shadow.since]
        of_log = dict(recommended(TRIAL, place, of_try / "of-log.yaml", kvota))
        if not apart(of_record, of_log):
            break
    under_plan = judged(TRIAL, kafka, folder / "enforced", plan, kvota)
    (second,) = under_plan.figures["runs"].values()  # type: ignore[attr-defined]
    late_s = max(shadow.late_s, second["late_s"])
    return Seen(of_record, of_log, under_plan, late_s)


def _logs(kafka: LocalKafka, folder: Path) -> Path:
    """Each broker's request log as it is now, in a folder of its own."""
    for node in kafka.nodes:
        log = folder / f"broker-{node.node_id}" / "kafka-request.log"
        log.parent.mkdir(parents=True)
        lines = node.log_path.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(line for line in lines if b"(kafka.request.logger)" in line))
    return folder


def apart(of_record: dict[str, Any], of_log: dict[str, Any]) -> list[str]:
    """In what the two plans differ by more than they may."""
    by_record, by_log = (
        {line["user"]: line for line in plan["lines"]} for plan in (of_record, of_log)
    )
    if by_record.keys() != by_log.keys():
        return [f"{sorted(by_record)} and {sorted(by_log)}"]
    largest = {tenant.name: tenant.largest_bytes for tenant in TRIAL.demand.tenants}
    found = []
    for user, line in by_record.items():
        for name in ("need_per_s", "proposed_per_s"):
            one_request = largest[user] / WINDOW_S * line[name] / line["need_per_s"]
            within = max(WITHIN * line[name], one_request)
            if abs(by_log[user][name] - line[name]) > within:
                found.append(f"{user}: {name} {line[name]} and {by_log[user][name]}")
    return found


def test_the_plan_holds_when_the_same_tenants_come_again_under_it(seen: Seen) -> None:
    if seen.late_s > LATE_S_MAX:
        pytest.skip(f"no demand came in time, the last one up to {seen.late_s} s late")
    assert seen.under_plan.missed == []


def test_the_brokers_own_logs_give_the_same_plan(seen: Seen) -> None:
    assert apart(seen.of_record, seen.of_log) == []
