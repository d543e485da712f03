"""Quotas of each type, in a topic that two gateways share, altered at either while one has 200 busy connections.

Half of the connections produce, half of them fetch, all are held to their share of the gateway's time. Nobody notices but by the
limit: no error, no connection closed, all counted by the new limit when the busy gateway has answered, within a second
where the other one has; and the law holds across all of it. ``./run bench changes`` has the times.
"""

import asyncio
import itertools
import logging
import time
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
from tests.integration.test_quota_topic import said
from tests.unit.quota_api.written import Values, alteration, altered

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka

log = logging.getLogger(__name__)

TOPIC = "changed-in-a-topic"
STAGE_S = 0.6
# As is promised for what another gateway has answered.
ELSEWHERE_S = 1.0
KEYS = {"PRODUCE": "producer_byte_rate", "FETCH": "consumer_byte_rate", "REQUEST": "request_percentage"}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """The limit of each client id from now on; ``elsewhere``: altered at the other gateway."""

    quota_type: str
    limit: float
    elsewhere: bool = False

    @property
    def values(self) -> Values:
        return {KEYS[self.quota_type]: self.limit}


BEGIN = (Change("PRODUCE", 10e3), Change("FETCH", 10e3), Change("REQUEST", 0.8))
# Of each type lowered, raised and lifted, at either gateway.
CHANGES = (
    Change("FETCH", 7e3),
    Change("PRODUCE", 7e3, elsewhere=True),
    Change("REQUEST", 0.5),
    Change("FETCH", 12e3, elsewhere=True),
    Change("PRODUCE", 12e3),
    Change("REQUEST", 0.7, elsewhere=True),
    Change("REQUEST", 1_000.0),
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
        kafka={NUM: 2},
    ).replace("[quotas]", '[quotas]\ntopic = "quotas-of-a-crowd"')
    return GatewayProcess(folder, config=config, quotas="")


def alter(client: RawClient, *changes: Change) -> None:
    values: dict[str, float | None] = {}
    for change in changes:
        values |= change.values
    ((_, code, words),) = altered(asked(client, alteration(({"client-id": None}, values))))
    assert code == 0, words


def took_s(
    change: Change, before: Change, at_s: tuple[float, float], until_s: float, rows: list[Row]
) -> float:
    """Looks at the rows of its type; returns when all were counted by it, in s behind the answer."""
    asked_s, answered_s = at_s
    within = [row for row in rows if asked_s <= row["ts_us"] / 1e6 < until_s]
    old = [row for row in within if row["limit"] != change.limit]
    assert {row["limit"] for row in old} <= {before.limit}, change
    assert len(old) < len(within), change
    last_s = answered_s + ELSEWHERE_S * change.elsewhere
    assert [row for row in old if row["ts_us"] / 1e6 > last_s] == [], change
    return float(max((row["ts_us"] / 1e6 for row in old), default=answered_s) - answered_s)


@pytest.mark.timeout(180)
async def test_each_takes_over_at_once_and_no_client_sees_an_error(
    kafka: LocalKafka, tmp_path: Path, spark: SparkSession
) -> None:
    kafka.create_topic(TOPIC)
    times: list[tuple[float, float]] = []
    with ExitStack() as stack:
        clients = []
        for name in ("busy", "other"):
            process = stack.enter_context(sharing(tmp_path / name, kafka))
            await asyncio.to_thread(said, process, "has been read: quotas of")
            clients.append(stack.enter_context(RawClient(address(process))))
        host, port = clients[0].socket.getpeername()
        alter(clients[0], *BEGIN)
        async with Crowd((host, port + 2), TOPIC, fetching=True) as crowd:
            await crowd.everybody_answered()
            await asyncio.sleep(STAGE_S)
            for change in CHANGES:
                asked_s = time.time()
                await asyncio.to_thread(alter, clients[change.elsewhere], change)
                times.append((asked_s, time.time()))
                await asyncio.sleep(STAGE_S)
            await crowd.everybody_answered()

    assert crowd.failed == []
    assert crowd.throttled > CONNECTIONS
    record = tmp_path / "busy" / "record"
    columns = ["ts_us", "quota_type", "limit", "connection", "throttle_ms"]
    rows = pq.read_table(record, columns=columns).to_pylist()
    # Each connection is there from before the first change to behind the last one.
    first, last = times[0][0], times[-1][1]
    there = [
        {row["connection"] for row in rows if is_in(row["ts_us"] / 1e6)}
        for is_in in (lambda at_s: at_s < first, lambda at_s: at_s > last)
    ]
    assert len(there[0] & there[1]) == CONNECTIONS
    for begin in BEGIN:
        of_type = [row for row in rows if row["quota_type"] == begin.quota_type]
        mine = [
            (change, at_s)
            for change, at_s in zip(CHANGES, times, strict=True)
            if change.quota_type == begin.quota_type
        ]
        ends = [asked_s for _, (asked_s, _) in mine[1:]] + [float("inf")]
        for (before, _), (change, at_s), until_s in zip([(begin, None), *mine], mine, ends, strict=False):  # fmt: skip
            seconds = took_s(change, before, at_s, until_s, of_type)
            log.info("%s: all counted by it %.3f s after the answer", change, seconds)
        # Under every limit but the last one somebody is told to wait.
        begins = [0.0, *(answered_s for _, (_, answered_s) in mine)]
        for from_s, to_s in itertools.pairwise(begins):
            assert is_throttled(from_s, to_s, of_type), (begin.quota_type, from_s, to_s)
    found = law_of(spark, record)
    assert found.holds, found
    assert (found.rows, found.unjudged, found.not_replayed) == (len(rows), 0, 0)
