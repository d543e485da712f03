"""Another quota callback, other properties, another file, under 200 connections: nobody notices but by the limit."""

import asyncio
import itertools
import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.integration.bandwidth_frames import produce_frame, produce_result

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka

log = logging.getLogger(__name__)

TOPIC = "changed-callbacks"
CONNECTIONS, TEAMS = 200, 20
PACE_S = 0.1
STAGE_S = 1.0
QUOTAS = """
[[quota]]
client_id_default = true
producer_byte_rate = "10MB/s"
[[quota]]
user = "group:all"
producer_byte_rate = "200MB/s"
"""
MODULE = """
from kvota.callbacks import ClientQuotaCallback

class ByTeam(ClientQuotaCallback):
    def configure(self, properties):
        self.limit = float(properties["client.quota.callback.my.limit"])
    def quota_metric_tags(self, quota_type, user, client_id):
        return {"team": client_id}
    def quota_limit(self, quota_type, tags):
        return self.limit * FACTOR
    def update_quota(self, quota_type, entity, limit):
        pass
    def remove_quota(self, quota_type, entity):
        pass
    def quota_reset_required(self, quota_type):
        return False
    def close(self):
        print("closed", flush=True)

FACTOR = 1
"""
CLASS = "client.quota.callback.class"
OF_ALL = {"client.quota.callback.group.all.client.id.prefixes": "team-"}
MINE = {CLASS: "changed_quotas.ByTeam"}
MY_LIMIT = "client.quota.callback.my.limit"
Is = Callable[[str, float], bool]


@dataclass(frozen=True)
class Stage:
    """What gateway.toml says, and which counters requests are charged on because of it."""

    kafka: dict[str, int | str]
    is_so: Is
    factor: int = 1


def of_team(limit: float) -> Is:
    return lambda tags, found: tags.startswith("team=") and found == limit


STAGES = {
    "Kafka's own": Stage({}, lambda tags, limit: tags.endswith(",user=") and limit == 1e7),
    "groups": Stage({CLASS: "kvota.callbacks.GroupQuotaCallback", **OF_ALL}, lambda tags, limit: tags == "group=all" and limit == 2e8),
    "my own": Stage({**MINE, MY_LIMIT: 2e7}, of_team(2e7)),
    "its property": Stage({**MINE, MY_LIMIT: 3e7}, of_team(3e7)),
    "its file": Stage({**MINE, MY_LIMIT: 3e7}, of_team(6e7), factor=2),
    "shares": Stage({CLASS: "kvota.callbacks.PartitionShareQuotaCallback", **OF_ALL, "client.quota.callback.group.all.topics": TOPIC}, lambda tags, limit: tags == "group=all" and limit == 2e8),
    "one for all": Stage({CLASS: "kvota.callbacks.StaticQuotaCallback", "client.quota.callback.static.produce": 3e8}, lambda tags, limit: tags == "quota.type=PRODUCE" and limit == 3e8),
    "Kafka's own again": Stage({}, lambda tags, limit: tags.endswith(",user=") and limit == 1e7),
}  # fmt: skip


@dataclass
class Crowd:
    """Connections that produce one request after the other until they are stopped."""

    port: int
    topic: str = TOPIC
    answers: int = 0
    failed: list[str] = field(default_factory=list)
    longest_s: float = 0.0
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def connection(self, number: int) -> None:
        frame = produce_frame(self.topic, client_id=f"team-{number % TEAMS}")
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            while not self.stopping.is_set():
                began_s = time.monotonic()
                writer.write(frame)
                size = int.from_bytes(await reader.readexactly(4), "big")
                error, throttle_ms = produce_result(await reader.readexactly(size), self.topic)
                self.answers += 1
                self.longest_s = max(self.longest_s, time.monotonic() - began_s)
                if error or throttle_ms:
                    self.failed.append(f"error {error}, throttled {throttle_ms} ms")
                await asyncio.sleep(PACE_S)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            self.failed.append(repr(error))
        finally:
            writer.transport.abort()


@dataclass
class Run:
    """What became of it: when each stage was asked for and said to be in force (Unix s), by its name."""

    record: Path
    log: str
    crowd: Crowd
    asked_s: dict[str, float] = field(default_factory=dict)
    said_s: dict[str, float] = field(default_factory=dict)


async def run(kafka: LocalKafka, folder: Path) -> Run:
    first_port = free_port_range(4)

    def config(stage: Stage) -> str:
        return gateway_toml(
            upstream=kafka.bootstrap_servers,
            first_port=first_port,
            node_ids="0-2",
            enforce={"PRODUCE": True},
            record="record",
            kafka=stage.kafka,
        )

    first, *others = STAGES
    (folder / "changed_quotas.py").write_text(MODULE)
    gateway = GatewayProcess(
        folder, config=config(STAGES[first]), quotas=QUOTAS, first_port=first_port
    )
    with gateway:
        crowd = Crowd(first_port + 2)  # node 1
        async with asyncio.TaskGroup() as tasks:
            for number in range(CONNECTIONS):
                tasks.create_task(crowd.connection(number))
            done = Run(folder / "record", "", crowd)
            await asyncio.sleep(STAGE_S)
            for name in others:
                stage = STAGES[name]
                (folder / "changed_quotas.py").write_text(
                    MODULE.replace("FACTOR = 1", f"FACTOR = {stage.factor}")
                )
                done.asked_s[name] = time.time()
                await asyncio.to_thread(gateway.reload, QUOTAS, config(stage))
                done.said_s[name] = time.time()
                await asyncio.sleep(STAGE_S)
            crowd.stopping.set()
    done.log = gateway.log
    return done


@pytest.mark.timeout(180)
async def test_each_takes_over_at_once_and_no_client_sees_an_error(
    kafka: LocalKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kafka.create_topic(TOPIC)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")

    done = await run(kafka, tmp_path)

    assert done.crowd.failed == []
    assert done.crowd.answers > CONNECTIONS * len(STAGES)
    rows = pq.read_table(done.record, columns=["ts_us", "tags", "limit", "connection"]).to_pylist()
    rows.sort(key=lambda row: row["ts_us"])
    names = list(STAGES)
    for before, name in itertools.pairwise(names):
        # Every row is of one or the other until it is said to be in force, and all behind that are of this one.
        until_s = done.asked_s[names[names.index(name) + 1]] if name != names[-1] else float("inf")
        within = [row for row in rows if done.asked_s[name] <= row["ts_us"] / 1e6 < until_s]
        kinds = [
            (row, STAGES[name].is_so(row["tags"], row["limit"]), STAGES[before].is_so(row["tags"], row["limit"]))
            for row in within
        ]  # fmt: skip
        assert all(is_new or is_old for _, is_new, is_old in kinds), name
        late = [row for row, is_new, _ in kinds if not is_new and row["ts_us"] / 1e6 > done.said_s[name]]  # fmt: skip
        assert late == [], name
        # No connection was closed: the same ones go on.
        assert {row["connection"] for row in within} == {row["connection"] for row in rows}, name
        last_old_us = max((row["ts_us"] for row, is_new, _ in kinds if not is_new), default=0)
        first_new_us = min(row["ts_us"] for row, is_new, _ in kinds if is_new)
        in_force_s = max(last_old_us, first_new_us) / 1e6 - done.asked_s[name]
        log.info("%s: in force %.3f s after SIGHUP", name, in_force_s)
    log.info("%d answers; the longest took %.3f s", done.crowd.answers, done.crowd.longest_s)
    assert Counter(done.log.split())["closed"] == 3  # mine, mine with other properties, mine anew
    law = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "kvota.app.cli.main", "replay", "--law", "--events", str(done.record)],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )  # fmt: skip
    assert law.returncode == 0, law.stdout + law.stderr
    assert "all equal" in law.stdout
