"""``kvota gateway --check --connect``: each broker that the cluster names is asked, not only those of gateway.toml."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.client.log_dir_brokers import LogDirBrokers, served

from kvota.app.check_brokers import Answers, ask_brokers
from kvota.app.config import load_files
from kvota.app.gateway_process import gateway_toml

PATIENT_MS = 3_000


async def asked(brokers: LogDirBrokers, folder: Path, *, first: int = 1) -> Answers:
    """What is said where only one of the brokers is in gateway.toml."""
    async with served(brokers):
        host, port = brokers.addresses[first]
        text = gateway_toml(upstream=f"{host}:{port}", first_port=9192)
        timeout = f'connect_timeout = "{PATIENT_MS}ms"\n'
        path = folder / "gateway.toml"
        path.write_text(text.replace("[upstream]\n", f"[upstream]\n{timeout}"))
        (folder / "quotas.toml").write_text("")
        config, _ = load_files(path)
        return await asyncio.to_thread(ask_brokers, config)


async def test_all_brokers_answer(tmp_path: Path) -> None:
    brokers = LogDirBrokers({1: (), 2: (), 3: ()})

    answers = await asked(brokers, tmp_path)

    assert answers == Answers([], "all 3 brokers of the cluster answer")
    assert brokers.connections == 1 + 3  # a knock, and each broker once


async def test_a_broker_that_only_the_cluster_names_is_named_with_what_to_do(
    tmp_path: Path,
) -> None:
    brokers = LogDirBrokers({1: (), 2: ()}, named=(1, 2, 7))  # nobody is at the address of 7

    answers = await asked(brokers, tmp_path)

    (said,) = answers.missing
    assert said.startswith("broker 7 of the cluster, 127.0.0.1:1, does not answer: ")
    assert "refused" in said
    assert said.endswith("must reach each broker where its advertised.listeners say")


async def test_a_broker_that_takes_connections_and_says_nothing_does_not_answer(
    tmp_path: Path,
) -> None:
    answers = await asked(LogDirBrokers({1: (), 2: ()}, silent={2}), tmp_path)

    (said,) = answers.missing
    assert said.startswith("broker 2 of the cluster, 127.0.0.1:")
    assert f"does not answer: no answer in {PATIENT_MS} ms" in said


@pytest.mark.parametrize("metadata", ["leaves", "garbage", "hangs"])
async def test_it_is_said_where_brokers_could_not_be_asked_for_the_others(
    metadata: str, tmp_path: Path
) -> None:
    """As where clients have to log in, and the gateway has no login of its own."""
    answers = await asked(LogDirBrokers({1: (), 2: ()}, metadata=metadata), tmp_path)

    assert answers.missing == []
    assert answers.note.startswith("only upstream.bootstrap_servers were tried: ")
    assert "client.quota.callback.static.kafka.admin.* of [kafka] tell how" in answers.note
