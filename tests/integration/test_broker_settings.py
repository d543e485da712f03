"""The gateway's settings by Kafka's own API: changed under load, kept, followed by others, refused."""

import asyncio
import itertools
import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.integration.raw_client import RawClient
from tests.integration.test_callback_changes import CONNECTIONS, MODULE, Crowd
from tests.integration.test_client_quotas import address, as_user, asked, gateway
from tests.integration.test_quota_topic import sharing, until
from tests.unit.quota_api.written import alteration

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.testing.frames import DESCRIBE_CONFIGS, decoded, parts, request
from kvota.wire.apis import ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS

log = logging.getLogger(__name__)

TOPIC = "changed-settings"
STAGE_S = 1.0
BROKER = 4
NUM, SIZE = "quota.window.num", "quota.window.size.seconds"
CLASS = "client.quota.callback.class"
MINE, LIMIT = "dynamic_quotas.ByTeam", "client.quota.callback.my.limit"
GROUP = "client.quota.callback.group.all.client.id.prefixes"
GROUPS = "kvota.callbacks.GroupQuotaCallback"
THREADS = "background.threads"
Settings = Mapping[str, str | None]


def content(settings: Settings, *, name: str = "", validate_only: bool = False) -> dict[str, Any]:
    configs = [
        {"name": each, "value": value, "config_operation": int(value is None)}
        for each, value in settings.items()
    ]
    resource = {"resource_type": BROKER, "resource_name": name, "configs": configs}
    return {"resources": [resource], "validate_only": validate_only}


def alteration_of(settings: Settings, *, name: str = "", validate_only: bool = False) -> bytes:
    """None: it is deleted."""
    ((resource,), _) = content(settings, name=name).values()
    configs = parts(
        INCREMENTAL_ALTER_CONFIGS, 1, "request", "AlterableConfig", *resource["configs"]
    )
    row = resource | {"configs": configs}
    resources = parts(INCREMENTAL_ALTER_CONFIGS, 1, "request", "AlterConfigsResource", row)
    return request(INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=validate_only)


def alter(client: RawClient, settings: Settings, **more: Any) -> tuple[int, str | None]:
    told = decoded(asked(client, alteration_of(settings, **more)), INCREMENTAL_ALTER_CONFIGS, 1)
    (result,) = told.responses
    return int(result.error_code), result.error_message


def dynamic(client: RawClient) -> dict[str, str | None]:
    """What is set for all brokers."""
    wanted = {"resource_type": BROKER, "resource_name": "", "configuration_keys": None}
    resources = parts(DESCRIBE_CONFIGS, 4, "request", "DescribeConfigsResource", wanted)
    options = {"include_synonyms": True, "include_documentation": False}
    told = client.ask(request(DESCRIBE_CONFIGS, 4, resources=resources, **options))
    (result,) = told.results
    assert int(result.error_code) == 0, result.error_message
    # A broker of Kafka 4.3 always has this one.
    return {each.name: each.value for each in result.configs if each.name != "min.insync.replicas"}


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A callback of somebody's own, which gateways can import."""
    path = tmp_path / "dynamic_quotas.py"
    path.write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    return path


ALLOWED = f'[quotas]\ncallback_classes = ["{MINE}"]'


# ------------------------------------------------------------------ under load


@dataclass(frozen=True)
class Stage:
    """What is altered, and how requests are counted because of it."""

    settings: Settings
    is_so: Callable[[Mapping[str, Any]], bool]


def counted(tags: str, limit: float, samples: int) -> Callable[[Mapping[str, Any]], bool]:
    return lambda row: tags in row["tags"] and row["limit"] == limit and row["samples"] == samples


STAGES = {
    "as it begins": Stage({}, counted("user=", 1e7, 11)),
    "a window": Stage({NUM: "5"}, counted("user=", 1e7, 5)),
    "groups": Stage({CLASS: GROUPS, GROUP: "team-"}, counted("group=all", 2e8, 5)),
    "my own": Stage({CLASS: MINE, LIMIT: "2e7", GROUP: None}, counted("team=", 2e7, 5)),
    "its property": Stage({LIMIT: "3e7", NUM: "7"}, counted("team=", 3e7, 7)),
    "as it began": Stage({CLASS: None, LIMIT: None, NUM: None}, counted("user=", 1e7, 11)),
}


@dataclass
class Run:
    """What became of it: when each stage was asked for and answered (Unix s), by its name."""

    crowd: Crowd
    asked_s: dict[str, float] = field(default_factory=dict)
    answered_s: dict[str, float] = field(default_factory=dict)


async def run(process: GatewayProcess, port: int) -> Run:
    done = Run(Crowd(port, TOPIC))
    with RawClient(address(process)) as client:
        quotas = (
            ({"client-id": None}, {"producer_byte_rate": 1e7}),
            ({"user": "group:all"}, {"producer_byte_rate": 2e8}),
        )
        asked(client, alteration(*quotas))
        async with asyncio.TaskGroup() as tasks:
            for number in range(CONNECTIONS):
                tasks.create_task(done.crowd.connection(number))
            await asyncio.sleep(STAGE_S)
            for name, stage in itertools.islice(STAGES.items(), 1, None):
                done.asked_s[name] = time.time()
                assert await asyncio.to_thread(alter, client, stage.settings) == (0, None)
                done.answered_s[name] = time.time()
                await asyncio.sleep(STAGE_S)
            done.crowd.stopping.set()
        assert dynamic(client) == {}
    return done


@pytest.mark.timeout(180)
async def test_each_takes_over_at_once_and_no_client_sees_an_error(
    kafka: LocalKafka, own_module: Path
) -> None:
    kafka.create_topic(TOPIC)
    folder, first_port = own_module.parent, free_port_range(4)
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        first_port=first_port,
        node_ids="0-2",
        enforce={"PRODUCE": True},
        record="record",
        source="file",
    ).replace("[quotas]", ALLOWED)

    process = GatewayProcess(folder, config=config, quotas="", first_port=first_port)
    with process:
        done = await run(process, first_port + 2)  # node 1

    assert done.crowd.failed == []
    assert done.crowd.answers > CONNECTIONS * len(STAGES)
    columns = ["ts_us", "tags", "limit", "samples", "connection"]
    rows = pq.read_table(folder / "record", columns=columns).to_pylist()
    rows.sort(key=lambda row: row["ts_us"])
    names = list(STAGES)
    for before, name in itertools.pairwise(names):
        # Every row is of one or the other until it is answered, and all behind that are of this one.
        until_s = done.asked_s[names[names.index(name) + 1]] if name != names[-1] else float("inf")
        within = [row for row in rows if done.asked_s[name] <= row["ts_us"] / 1e6 < until_s]
        old = [row for row in within if not STAGES[name].is_so(row)]
        assert len(old) < len(within), name
        assert all(STAGES[before].is_so(row) for row in old), name
        assert [row for row in old if row["ts_us"] / 1e6 > done.answered_s[name]] == [], name
        # No connection was closed: the same ones go on.
        assert {row["connection"] for row in within} == {row["connection"] for row in rows}, name
        last_old_us = max((row["ts_us"] for row in old), default=0)
        first_new_us = min(row["ts_us"] for row in within if STAGES[name].is_so(row))
        in_force_s = max(last_old_us, first_new_us) / 1e6 - done.asked_s[name]
        log.info("%s: in force %.3f s after it was asked for", name, in_force_s)
    log.info("%d answers; the longest took %.3f s", done.crowd.answers, done.crowd.longest_s)
    assert Counter(process.log.split())["closed"] == 2  # mine, and mine with other properties
    law = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "kvota.app.cli.main", "replay", "--law", "--events", str(folder / "record")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )  # fmt: skip
    assert law.returncode == 0, law.stdout + law.stderr
    assert "all equal" in law.stdout


# ------------------------------------------------------------------ kept, followed


def test_a_killed_gateway_comes_back_with_its_settings(kafka: LocalKafka, own_module: Path) -> None:
    mine = {CLASS: MINE, LIMIT: "2e7", NUM: "5"}
    process = gateway(own_module.parent, kafka.bootstrap_servers)
    path = own_module.parent / "gateway.toml"
    path.write_text(path.read_text().replace("[quotas]", ALLOWED))
    with process:
        with RawClient(address(process)) as client:
            assert alter(client, mine) == (0, None)
        process.kill()
        process.start()
        assert "PRODUCE sampled_rate (5 x 1000 ms)" in process.log.rpartition("counted by")[2]
        with RawClient(address(process)) as client:
            # The values of what a class of one's own has are nobody's business.
            assert dynamic(client) == {**mine, LIMIT: None}
        process.stop()
        # Without its permission, and without its module, the file is in force, and that is said.
        path.write_text(path.read_text().replace(MINE, "other.Class"))
        process.start()
        assert "the settings that are set dynamically are not in force" in process.log
        with RawClient(address(process)) as client:
            assert dynamic(client) == {}
            assert alter(client, {CLASS: None, LIMIT: None}) == (0, None)
            assert dynamic(client) == {NUM: "5"}


@pytest.mark.timeout(120)
def test_gateways_of_one_topic_follow_each_other(kafka3: LocalKafka, own_module: Path) -> None:
    topic, folder = "shared-settings", own_module.parent
    with (
        sharing(folder, kafka3, topic) as first,
        sharing(folder / "b", kafka3, topic) as second,
        RawClient(address(first)) as one,
        RawClient(address(second)) as other,
    ):
        for process in (first, second):
            until(lambda process=process: "has been read: quotas" in process.log, process)  # type: ignore[misc]
        for settings in ({NUM: "5"}, {CLASS: GROUPS, GROUP: "team-"}, {NUM: None}):
            assert alter(one, settings) == (0, None)
            began_s = time.monotonic()
            until(lambda: dynamic(other) == dynamic(one), second)
            log.info("followed %.3f s after the answer", time.monotonic() - began_s)
        assert dynamic(other) == {CLASS: GROUPS, GROUP: "team-"}
        # What one sets that the other one has not heard of yet, or has: the last one counts.
        for client, value in ((one, "3"), (other, None), (one, "3"), (other, "3"), (one, None)):
            assert alter(client, {SIZE: value}) == (0, None)
        until(lambda: dynamic(other) == dynamic(one) == {CLASS: GROUPS, GROUP: "team-"}, second)
        assert "the quota callback is kvota.callbacks.grouped.GroupQuotaCallback now" in second.log

        # Where a class is not allowed it is not imported, whoever has stored it.
        path = folder / "gateway.toml"
        path.write_text(path.read_text().replace("[quotas]", ALLOWED))
        first.reload("")
        assert alter(one, {CLASS: MINE, LIMIT: "2e7", GROUP: None}) == (0, None)
        until(lambda: "are not in force: Invalid value dynamic_quotas.ByTeam" in second.log, second)
        assert dynamic(other) == {CLASS: GROUPS, GROUP: "team-"}
        assert dynamic(one) == {CLASS: MINE, LIMIT: None}


# ------------------------------------------------------------------ refused


def test_what_is_refused_changes_nothing(kafka: LocalKafka, own_module: Path) -> None:
    own_module.write_text("print('imported', flush=True)\n" + MODULE)
    node = kafka.nodes[0].node_id
    with (
        gateway(own_module.parent, kafka.bootstrap_servers) as process,
        RawClient(process_node(process, node)) as client,
        RawClient(kafka.nodes[0].address) as direct,
    ):
        assert alter(client, {NUM: "5"}) == (0, None)
        before = dynamic(direct)

        def refused(settings: Settings, code: int, words: str, **more: Any) -> None:
            found, said = alter(client, settings, **more)
            assert (found, words in (said or "")) == (code, True), (settings, said)

        refused({NUM: "6", THREADS: "12"}, 42, "Nothing is altered")
        refused({NUM: "6", SIZE: "0"}, 42, "Value must be at least 1")
        refused({NUM: "6"}, 42, "--entity-default", name=str(node))
        refused({CLASS: MINE}, 40, "quotas.callback_classes")
        refused({CLASS: "os.system"}, 40, "it is none of kvota.callbacks.DefaultQuotaCallback")
        refused({GROUP: "a"}, 40, "is no property of kvota.callbacks.DefaultQuotaCallback")
        refused({CLASS: GROUPS}, 40, "there is no group")
        refused({CLASS: GROUPS, GROUP: ""}, 40, GROUP)
        assert alter(client, {NUM: "6"}, validate_only=True) == (0, None)
        assert alter(client, {SIZE: None}) == (0, None)  # it is not set

        assert dynamic(client) == {NUM: "5", **before}
        assert dynamic(direct) == before
        assert "imported" not in process.log
        assert " ERROR " not in process.log


def process_node(process: GatewayProcess, node: int) -> tuple[str, int]:
    """Where the gateway stands for this broker."""
    host, port = address(process)
    return host, port + 1 + node


def test_what_people_write_is_altered_by_them(kafka: LocalKafka, tmp_path: Path) -> None:
    with (
        gateway(tmp_path, kafka.bootstrap_servers, source=None) as process,
        RawClient(address(process)) as client,
    ):
        code, words = alter(client, {NUM: "5"})
        assert (code, "written in gateway.toml" in (words or "")) == (44, True), words
        assert alter(client, {THREADS: "9"}, validate_only=True) == (0, None)
        assert dynamic(client) == {}


@pytest.mark.parametrize("key", [ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS])
async def test_the_clusters_authorizer_decides(
    acl_kafka: LocalKafka, tmp_path: Path, key: int
) -> None:
    def settings(value: str) -> dict[str, Any]:
        made = content({NUM: value})
        if key == ALTER_CONFIGS:
            del made["resources"][0]["configs"][0]["config_operation"]
            # All that a broker of Kafka 4.3 has by itself has to stay.
            stays = {"name": "min.insync.replicas", "value": "1"}
            made["resources"][0]["configs"].append(stays)
        return made

    with gateway(tmp_path, acl_kafka.sasl_bootstrap_servers) as process:
        refused = await as_user(process, "alice", key, settings("5"))
        before = (tmp_path / "quotas.json").exists()
        done = await as_user(process, "operator", key, settings("5"))
        log_ = process.log

    ((code, words),) = [(int(each.error_code), each.error_message) for each in refused.responses]
    assert (code, words) == (31, "Cluster authorization failed.")
    assert not before
    assert [(int(each.error_code), each.error_message) for each in done.responses] == [(0, None)]
    assert f"settings altered by operator from 127.0.0.1: {NUM}" in log_
