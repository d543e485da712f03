"""Quotas of each type, in a topic that two gateways share, altered at either while one has 200 busy connections.

Half of the connections produce, half of them fetch, all are held to their share of the gateway's time. Nobody notices but by the
limit: no error, no connection closed, all counted by the new limit when the busy gateway has answered, and as soon as it describes it
where the other one has; and the law holds across all of it. ``./run bench changes`` has the times.
"""

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.integration.crowd import CONNECTIONS, Crowd
from tests.integration.law_of_record import law_of
from tests.integration.raw_client import RawClient
from tests.integration.settings_client import NUM
from tests.integration.test_changes_under_load import Row, is_throttled
from tests.integration.test_client_quotas import address, asked
from tests.integration.test_gateway_http import metrics_of
from tests.integration.test_quota_topic import said
from tests.unit.quota_api.written import Values, alteration, altered, described, description

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka

log = logging.getLogger(__name__)

TOPIC = "changed-in-a-topic"
STAGE_S = 0.6
# A second is promised for what another gateway has answered; here the machine may have other work.
ELSEWHERE_S = 60.0
SEEN_S = 60.0
LIFTED = (1_000.0, 1e9)
KEYS = {"PRODUCE": "producer_byte_rate", "FETCH": "consumer_byte_rate", "REQUEST": "request_percentage"}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """The limit of each client id from now on; ``elsewhere``: altered at the other gateway."""

    quota_type: str
    limit: float
    elsewhere: bool = False

    @property
    def throttles(self) -> Sequence[str]:
        """The types of which somebody is told to wait once it is in force."""
        if self.limit not in LIFTED:
            return [self.quota_type]
        return ["PRODUCE", "FETCH"] if self.quota_type == "REQUEST" else []

    @property
    def values(self) -> Values:
        return {KEYS[self.quota_type]: self.limit}


# So low that some are over each of them on any machine.
BEGIN = (Change("PRODUCE", 3e3), Change("FETCH", 3e3), Change("REQUEST", 0.1))
# Of each type lowered, raised and lifted, at either gateway. First REQUEST: who is told to wait by it fetches nothing, and where
# the machine has other work that is everybody.
CHANGES = (
    Change("REQUEST", 0.06),
    Change("REQUEST", 0.09, elsewhere=True),
    Change("REQUEST", 1_000.0),
    Change("FETCH", 2e3),
    Change("PRODUCE", 2e3, elsewhere=True),
    Change("FETCH", 4e3, elsewhere=True),
    Change("PRODUCE", 4e3),
    Change("PRODUCE", 1e9, elsewhere=True),
    Change("FETCH", 1e9),
)


def sharing(folder: Path, kafka: LocalKafka) -> GatewayProcess:
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        node_ids="0-2",
        enforce=dict.fromkeys(KEYS, True),
        record="record",
        source="topic",
        http_port=0,
        kafka={NUM: 2},
    ).replace("[quotas]", '[quotas]\ntopic = "quotas-of-a-crowd"')
    return GatewayProcess(folder, config=config, quotas="")


def alter(process: GatewayProcess, *changes: Change) -> None:
    values: dict[str, float | None] = {}
    for change in changes:
        values |= change.values
    with RawClient(address(process)) as client:
        ((_, code, words),) = altered(asked(client, alteration(({"client-id": None}, values))))
    assert code == 0, words


def until_described(process: GatewayProcess, change: Change) -> None:
    """Until this gateway, too, says that it is in force."""
    end = time.monotonic() + ELSEWHERE_S
    key = KEYS[change.quota_type]
    with RawClient(address(process)) as client:
        while True:
            found = described(asked(client, description(("client-id", 1, None))))
            (values,) = found.values()
            if values[key] == change.limit:
                return
            assert time.monotonic() < end, (change, values)
            time.sleep(0.005)


# How many requests have been counted, and for how long they have been told to wait.
DECIDED, THROTTLED_S = "kvota_decisions_total", "kvota_quota_throttle_seconds_total"


def sums(process: GatewayProcess, metric: str) -> Counter[str]:
    """What a metric says so far, by quota type."""
    found: Counter[str] = Counter()
    for (name, labels), value in metrics_of(process).items():
        if name == metric:
            found[dict(labels)["quota_type"]] += value  # type: ignore[assignment]
    return found


def until_more(
    process: GatewayProcess, metric: str, before: Counter[str], types: Sequence[str]
) -> None:
    """Until a metric has grown for each of these types."""
    end = time.monotonic() + SEEN_S
    while missing := [one for one in types if sums(process, metric)[one] <= before[one]]:
        assert time.monotonic() < end, (metric, missing)
        time.sleep(0.05)


@dataclass(frozen=True)
class At:
    """When a change was asked for, answered, and in force at the busy gateway (Unix s)."""

    asked_s: float
    answered_s: float
    in_force_s: float


def took_s(change: Change, before: Change, at: At, until_s: float, rows: list[Row]) -> float:
    """Looks at the rows of its type; returns when all were counted by it, in s behind the answer."""
    within = [row for row in rows if at.asked_s <= row["ts_us"] / 1e6 < until_s]
    old = [row for row in within if row["limit"] != change.limit]
    assert {row["limit"] for row in old} <= {before.limit}, change
    assert len(old) < len(within), change
    assert [row for row in old if row["ts_us"] / 1e6 > at.in_force_s] == [], change
    return float(max((row["ts_us"] / 1e6 for row in old), default=at.answered_s) - at.answered_s)


async def changed(kafka: LocalKafka, folder: Path) -> tuple[Crowd, list[At]]:
    """Make the changes while a crowd is there."""
    times: list[At] = []
    with ExitStack() as stack:
        processes = []
        for name in ("busy", "other"):
            processes.append(stack.enter_context(sharing(folder / name, kafka)))
            await asyncio.to_thread(said, processes[-1], "has been read: quotas of")
        busy = processes[0]
        host, port = address(busy)
        alter(busy, *BEGIN)
        async with Crowd((host, port + 2), TOPIC, fetching=True) as crowd:
            await crowd.everybody_answered()
            await asyncio.sleep(STAGE_S)
            await asyncio.to_thread(until_more, busy, THROTTLED_S, Counter(), ["REQUEST"])
            for change in CHANGES:
                asked_s = time.time()
                await asyncio.to_thread(alter, processes[change.elsewhere], change)
                answered_s = in_force_s = time.time()
                if change.elsewhere:
                    await asyncio.to_thread(until_described, busy, change)
                    in_force_s = time.time()
                times.append(At(asked_s, answered_s, in_force_s))
                throttled = await asyncio.to_thread(sums, busy, THROTTLED_S)
                decided = await asyncio.to_thread(sums, busy, DECIDED)
                await asyncio.sleep(STAGE_S)
                await asyncio.to_thread(until_more, busy, DECIDED, decided, [change.quota_type])
                await asyncio.to_thread(until_more, busy, THROTTLED_S, throttled, change.throttles)
            await crowd.everybody_answered()
    return crowd, times


@pytest.mark.timeout(400)
async def test_each_takes_over_at_once_and_no_client_sees_an_error(
    kafka: LocalKafka, tmp_path: Path, spark: SparkSession
) -> None:
    kafka.create_topic(TOPIC)
    crowd, times = await changed(kafka, tmp_path)

    assert crowd.failed == []
    assert crowd.throttled > CONNECTIONS
    record = tmp_path / "busy" / "record"
    columns = ["ts_us", "quota_type", "limit", "connection", "throttle_ms"]
    rows = pq.read_table(record, columns=columns).to_pylist()
    # Each connection is there from before the first change to behind the last one.
    first, last = times[0].asked_s, times[-1].answered_s
    there = [
        {row["connection"] for row in rows if is_in(row["ts_us"] / 1e6)}
        for is_in in (lambda at_s: at_s < first, lambda at_s: at_s > last)
    ]
    assert len(there[0] & there[1]) == CONNECTIONS
    for begin in BEGIN:
        of_type = [row for row in rows if row["quota_type"] == begin.quota_type]
        mine = [
            (change, at)
            for change, at in zip(CHANGES, times, strict=True)
            if change.quota_type == begin.quota_type
        ]
        ends = [at.asked_s for _, at in mine[1:]] + [float("inf")]
        for (earlier, _), (change, at), until_s in zip([(begin, None), *mine], mine, ends, strict=False):  # fmt: skip
            seconds = took_s(change, earlier, at, until_s, of_type)
            log.info("%s: all counted by it %.3f s after the answer", change, seconds)
        # Under every limit but the last one somebody is told to wait.
        begins = [0.0, *(at.answered_s for _, at in mine)]
        for from_s, to_s in itertools.pairwise(begins):
            assert is_throttled(from_s, to_s, of_type), (begin.quota_type, from_s, to_s)
    found = law_of(spark, record)
    assert found.holds, found
    assert (found.rows, found.unjudged, found.not_replayed) == (len(rows), 0, 0)
