"""The gateway's settings by Kafka's own API: kept, followed by others, refused."""

from pathlib import Path
from typing import Any

import pytest
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
    SIZE,
    Settings,
    alter,
    content,
    dynamic,
)
from tests.integration.test_client_quotas import address, as_user, gateway
from tests.integration.test_quota_topic import sharing, until

from kvota.app.gateway_process import GatewayProcess
from kvota.localkafka import LocalKafka
from kvota.wire.apis import ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS

THREADS = "background.threads"


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
            until(lambda: dynamic(other) == dynamic(one), second)
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
