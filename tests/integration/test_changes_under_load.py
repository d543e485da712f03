"""Quotas, the quota callback, its properties, its file, a window: changed under 200 busy connections, in every way.

By AlterClientQuotas, by IncrementalAlterConfigs, and by gateway.toml with SIGHUP. Nobody notices but by the limit: no error, no
connection closed, each request counted by what was in force when it came, many of them over their limit, and the
law holds across all of it. ``./run bench changes`` has the times, beside a broker's.
"""

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.integration.crowd import CONNECTIONS, TEAMS, Crowd
from tests.integration.law_of_record import law_of
from tests.integration.raw_client import RawClient
from tests.integration.settings_client import (
    ALLOWED,
    CLASS,
    GROUP,
    GROUPS,
    LIMIT,
    MINE,
    MODULE,
    NUM,
    OF_EVERY_TEAM,
    Settings,
    alter,
    dynamic,
)
from tests.integration.test_client_quotas import address, asked
from tests.integration.test_gateway_http import metrics_of
from tests.unit.quota_api.written import Entity, Values, alteration, altered

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka

log = logging.getLogger(__name__)

TOPIC = "changed-under-load"
STAGE_S = 1.0
# A callback of one's own is told of a quota, and asked again, beside the loop; everything else is in force when it is answered.
# That takes some milliseconds, but where the machine has other work.
TOLD_S = 60.0
# Behind each change so many requests are answered, at least.
ANSWERS_MIN = CONNECTIONS // 4
KEY = "producer_byte_rate"
SHARES = "kvota.callbacks.PartitionShareQuotaCallback"
STATIC = "kvota.callbacks.StaticQuotaCallback"
IN_FILE = {CLASS: MINE, LIMIT: 18e3}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Stage:
    """What is altered, one of the three, and how requests are counted because of it.

    Attributes:
        factor: in the file of the callback of one's own.
        told: of this limit it takes a while after the answer until it counts.
    """

    is_so: Callable[[Row], bool]
    quotas: tuple[tuple[Entity, Values], ...] = ()
    settings: Settings = field(default_factory=dict)
    file: Mapping[str, int | str | float] | None = None
    factor: int = 1
    told: float | None = None


def counted(tags: str, limit: float, samples: int = 2) -> Callable[[Row], bool]:
    return lambda row: tags in row["tags"] and row["limit"] == limit and row["samples"] == samples


def own(row: Row) -> bool:
    """Each client id has a limit of its own."""
    team = row["client_id"].removeprefix("team-")
    return row["tags"] == f"client-id=team-{team},user=" and row["limit"] == 20e3 + int(team)


def of_all(limit: float | None) -> tuple[tuple[Entity, Values], ...]:
    return (({"client-id": None}, {KEY: limit}),)


def of_user(name: str, limit: float | None) -> tuple[tuple[Entity, Values], ...]:
    return (({"user": name}, {KEY: limit}),)


EVERY_TEAM = [{"client-id": f"team-{number}"} for number in range(TEAMS)]
STAGES = {
    "as it begins": Stage(counted("user=", 20e3)),
    "lowered": Stage(counted("user=", 15e3), quotas=of_all(15e3)),
    "raised": Stage(counted("user=", 25e3), quotas=of_all(25e3)),
    "of its own each": Stage(
        own, quotas=tuple((one, {KEY: 20e3 + number}) for number, one in enumerate(EVERY_TEAM))
    ),
    "removed": Stage(counted("user=", 25e3), quotas=tuple((one, {KEY: None}) for one in EVERY_TEAM)),
    "a window": Stage(counted("user=", 25e3, 3), settings={NUM: "3"}),
    "groups": Stage(counted("group=all", 4e5), settings={CLASS: GROUPS, GROUP: "team-", NUM: None}),
    "the group lowered": Stage(counted("group=all", 3e5), quotas=of_user("group:all", 3e5)),
    "my own": Stage(counted("team=", 17e3), settings={CLASS: MINE, LIMIT: "17e3", GROUP: None}),
    "my own lowered": Stage(counted("team=", 14e3), quotas=of_user(OF_EVERY_TEAM, 14e3), told=14e3),
    "my own raised": Stage(counted("team=", 17e3), quotas=of_user(OF_EVERY_TEAM, None), told=17e3),
    "its property": Stage(counted("team=", 22e3, 3), settings={LIMIT: "22e3", NUM: "3"}),
    "Kafka's own": Stage(
        counted("user=", 25e3), settings={CLASS: None, LIMIT: None, NUM: None}
    ),
    "my own in the file": Stage(counted("team=", 18e3), file=IN_FILE),
    "its property in the file": Stage(counted("team=", 19e3), file={**IN_FILE, LIMIT: 19e3}),
    "its own file": Stage(counted("team=", 38e3), file={**IN_FILE, LIMIT: 19e3}, factor=2),
    "shares": Stage(
        counted("group=all", 3e5),
        file={CLASS: SHARES, GROUP: "team-", GROUP.replace("client.id.prefixes", "topics"): TOPIC},
    ),
    "one for all": Stage(
        counted("quota.type=PRODUCE", 4e5),
        file={CLASS: STATIC, "client.quota.callback.static.produce": 4e5},
    ),
    "Kafka's own in the file": Stage(counted("user=", 25e3), file={}),
    "lifted": Stage(counted("user=", 1e9), quotas=of_all(1e9)),
}  # fmt: skip
# So many changes of each kind, at least, are made while requests are throttled, and throttle others.
THROTTLED_MIN = 3


@dataclass
class Run:
    """What became of it: when each stage was asked for, answered and in force (Unix s), by its name."""

    crowd: Crowd
    asked_s: dict[str, float] = field(default_factory=dict)
    answered_s: dict[str, float] = field(default_factory=dict)
    in_force_s: dict[str, float] = field(default_factory=dict)


class Changing:
    """A gateway, and what is changed there."""

    def __init__(self, kafka: LocalKafka, module: Path) -> None:
        self._module = module
        self._first_port = free_port_range(4)
        self._upstream = kafka.bootstrap_servers
        self.process = GatewayProcess(module.parent, config=self._config({}), quotas="")
        self.node_1 = ("127.0.0.1", self._first_port + 2)

    def _config(self, kafka: Mapping[str, int | str | float]) -> str:
        return gateway_toml(
            upstream=self._upstream,
            first_port=self._first_port,
            node_ids="0-2",
            enforce={"PRODUCE": True},
            record="record",
            source="file",
            http_port=0,
            kafka={NUM: 2, **kafka},  # type: ignore[dict-item]
        ).replace("[quotas]", ALLOWED)

    def change(self, client: RawClient, stage: Stage) -> None:
        """Returns when it is said to be in force."""
        if stage.quotas:
            told = altered(asked(client, alteration(*stage.quotas)))
            assert {code for _, code, _ in told} == {0}, told
        if stage.settings:
            assert alter(client, stage.settings) == (0, None)
        if stage.file is not None:
            self._module.write_text(MODULE.replace("FACTOR = 1", f"FACTOR = {stage.factor}"))
            self.process.reload("", self._config(stage.file))

    def _until_told(self, limit: float) -> None:
        """Until each client id has this limit."""
        end = time.monotonic() + TOLD_S
        while True:
            limits = Counter(
                value
                for (name, _), value in metrics_of(self.process).items()
                if name == "kvota_quota_limit"
            )
            if limits[limit] == TEAMS:
                return
            assert time.monotonic() < end, limits
            time.sleep(0.02)

    async def run(self) -> Run:
        with self.process, RawClient(address(self.process)) as client:
            self.change(client, Stage(own, quotas=(*of_all(20e3), *of_user("group:all", 4e5))))
            async with Crowd(self.node_1, TOPIC) as crowd:
                done = Run(crowd)
                await crowd.everybody_answered()
                for name, stage in STAGES.items():
                    done.asked_s[name] = time.time()
                    await asyncio.to_thread(self.change, client, stage)
                    done.answered_s[name] = time.time()
                    if stage.told is not None:
                        await asyncio.to_thread(self._until_told, stage.told)
                    done.in_force_s[name] = time.time()
                    answers, throttled = sum(crowd.answers), crowd.throttled
                    await asyncio.sleep(STAGE_S)
                    await more_answers(crowd, answers + ANSWERS_MIN)
                    await throttled_too(crowd, throttled)
                # Who was told to wait goes on, too: nobody was lost on the way.
                await crowd.everybody_answered()
            assert dynamic(client) == {}
        return done


async def throttled_too(crowd: Crowd, throttled: int) -> None:
    """Until more of them were: on a slow machine that takes longer than a stage. For a while: some limits nobody reaches."""
    end = time.monotonic() + 10 * STAGE_S
    while crowd.throttled <= throttled and time.monotonic() < end:  # noqa: ASYNC110  (nothing tells)
        await asyncio.sleep(0.02)


async def more_answers(crowd: Crowd, wanted: int) -> None:
    """Until there have been so many."""
    async with asyncio.timeout(60):
        while sum(crowd.answers) < wanted:
            assert not crowd.failed, crowd.failed[:3]
            await asyncio.sleep(0.02)


def in_force_s(done: Run, name: str, before: str, until_s: float, rows: list[Row]) -> float:
    """Looks at the rows behind the change; returns when the first was counted by it, in s behind the answer."""
    stage, answered_s = STAGES[name], done.answered_s[name]
    within = [row for row in rows if done.asked_s[name] <= row["ts_us"] / 1e6 < until_s]
    old = [row for row in within if not stage.is_so(row)]
    assert len(old) < len(within), name
    # Every row is of one or the other until it is said to be in force, and all behind that are of this one.
    assert all(STAGES[before].is_so(row) for row in old), name
    assert [row for row in old if row["ts_us"] / 1e6 > done.in_force_s[name]] == [], name
    last_old_us = max((row["ts_us"] for row in old), default=0)
    first_new_us = min(row["ts_us"] for row in within if stage.is_so(row))
    return float(max(last_old_us, first_new_us) / 1e6 - answered_s)


def is_throttled(from_s: float, until_s: float, rows: list[Row]) -> bool:
    """Whether anybody was told to wait then."""
    return any(row["throttle_ms"] > 0 and from_s <= row["ts_us"] / 1e6 < until_s for row in rows)


@pytest.mark.timeout(600)
async def test_each_takes_over_at_once_and_no_client_sees_an_error(
    kafka: LocalKafka, own_module: Path, spark: SparkSession
) -> None:
    kafka.create_topic(TOPIC)
    changing = Changing(kafka, own_module)

    done = await changing.run()

    assert done.crowd.failed == []
    assert done.crowd.throttled > CONNECTIONS
    record = own_module.parent / "record"
    columns = ["ts_us", "client_id", "tags", "limit", "samples", "connection", "throttle_ms"]
    rows = pq.read_table(record, columns=columns).to_pylist()
    # Each connection is there from the first stage to behind the last one.
    first, *_, last = done.answered_s.values()
    there = [
        {row["connection"] for row in rows if is_in(row)}
        for is_in in (lambda row: row["ts_us"] / 1e6 < first, lambda row: row["ts_us"] / 1e6 > last)
    ]
    assert len(there[0] & there[1]) == CONNECTIONS
    for before, name in itertools.pairwise(STAGES):
        behind = [one for one in done.asked_s.values() if one > done.asked_s[name]]
        took_s = in_force_s(done, name, before, min(behind, default=float("inf")), rows)
        log.info("%s: all counted by it %.3f s after the answer", name, took_s)
    throttled = Counter(
        kind
        for kind in ("quotas", "settings", "file")
        for name, until_s in zip(
            STAGES, [*list(done.asked_s.values())[1:], time.time()], strict=True
        )
        if getattr(STAGES[name], kind)
        and is_throttled(done.asked_s[name] - STAGE_S, done.asked_s[name], rows)
        and is_throttled(done.answered_s[name], until_s, rows)
    )
    assert min(throttled[kind] for kind in ("quotas", "settings", "file")) >= THROTTLED_MIN, (
        throttled
    )
    # Each of one's own, of other properties and of another file, when the next one took over.
    # The gateway may write a line of its log behind the word, before its end of line.
    assert sum(line.startswith("closed") for line in changing.process.log.splitlines()) == 5
    found = law_of(spark, record)
    assert found.holds, found
    assert (found.rows, found.unjudged, found.not_replayed) == (len(rows), 0, 0)
