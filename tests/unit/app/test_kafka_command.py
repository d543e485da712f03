"""What ``kvota kafka up`` and ``status`` show of a cluster that runs."""

import pytest

from kvota.app.cli.kafka import _show
from kvota.localkafka.cluster.detached import RunningKafka, RunningNode

NODE = RunningNode(
    node_id=1, host="127.0.0.1", port=9001, sasl_port=9002, pid=7, log_path="/tmp/k/node-1.log"
)


def shown(capsys: pytest.CaptureFixture[str], *users: str) -> list[str]:
    running = RunningKafka(
        version="4.3.1",
        bootstrap_servers="127.0.0.1:9001,127.0.0.1:9003",
        sasl_bootstrap_servers="127.0.0.1:9002,127.0.0.1:9004" if users else None,
        users=users,
        folder="/tmp/k",
        nodes=(NODE,),
    )
    _show(running, "table", "Ctrl-C ends it")
    return capsys.readouterr().out.splitlines()


def test_users_are_sent_to_the_port_where_they_have_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KVOTA_CALLED", raising=False)

    assert shown(capsys, "alice", "bob") == [
        "Kafka           4.3.1",
        "PLAINTEXT       127.0.0.1:9001,127.0.0.1:9003",
        "SASL_PLAINTEXT  127.0.0.1:9002,127.0.0.1:9004  users alice, bob",
        "                users have names at SASL_PLAINTEXT; at PLAINTEXT all are ANONYMOUS",
        "logs            /tmp/k/node-1.log",
        'next            in gateway.toml: [upstream] bootstrap_servers = ["127.0.0.1:9002", "127.0.0.1:9004"]',
        "                then: kvota gateway -c gateway.toml",
        "end             Ctrl-C ends it",
    ]


def test_without_users_there_is_one_port(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys)

    assert not any("SASL" in line or "ANONYMOUS" in line for line in lines)
    assert 'bootstrap_servers = ["127.0.0.1:9001", "127.0.0.1:9003"]' in lines[3]
