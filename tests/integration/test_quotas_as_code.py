"""kvota quotas on real clusters and through a gateway: what is applied is in force, what is undone is as before."""

import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import HOST
from tests.integration.kafka_configs.running import ConfigCommands
from tests.integration.raw_client import RawClient
from tests.integration.test_client_quotas import cleaned, gateway

from kvota.app.cli.main import main
from kvota.localkafka import LocalKafka
from kvota.localkafka.processes.command_line import SHORT_LIVED
from kvota.store.quotas_yaml import load_document

WANTED = """
quotas:
  - user: orders
    producer_byte_rate: 5MiB/s
    request_percentage: 20%
  - user: orders
    client_id_default: true
    consumer_byte_rate: 1MB/s
  - user_default: true
    client_id: web
    request_percentage: 12.5%
  - user_default: true
    controller_mutation_rate: 10/s
  - client_id: "7"
    producer_byte_rate: 1000
  - ip: 192.0.2.7
    connection_creation_rate: 5/s
  - ip_default: true
    connection_creation_rate: 100/s
"""
VALUES = 8
_KNOWN_S = 60.0
Kvota = Callable[..., tuple[int, str, str]]


@pytest.fixture
def kvota(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Kvota:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["quotas", *words])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture(scope="module")
def own_kafka() -> Iterator[LocalKafka]:
    """A broker of these tests' own: they prune."""
    with LocalKafka(host=HOST, java_options=SHORT_LIVED) as kafka:
        yield kafka


@pytest.fixture(params=["own_kafka", "kafka_3_9", "gateway"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param != "gateway":
        kafka: LocalKafka = request.getfixturevalue(request.param)
        with RawClient(kafka.nodes[0].address) as direct:
            cleaned(direct)  # other tests leave quotas on a broker that they share
        yield kafka.bootstrap_servers
        return
    upstream: LocalKafka = request.getfixturevalue("own_kafka")
    folder = tmp_path / "gateway"
    folder.mkdir()
    with gateway(folder, upstream.bootstrap_servers) as process:
        yield process.bootstrap_servers


def test_planned_applied_changed_and_undone(kvota: Kvota, tmp_path: Path, servers: str) -> None:
    file, at = tmp_path / "quotas.yaml", ("--bootstrap-server", servers)
    assert kvota("export", *at, "--to", "before.yaml")[0] == 0
    before = load_document(tmp_path / "before.yaml").wanted.quotas
    file.write_text(WANTED)

    code, out, _ = kvota("plan", "quotas.yaml", *at, "--plan-file", "plan.yaml")
    assert (code, out.count("none → ")) == (1, VALUES)
    code, _, err = kvota("apply", "plan.yaml", *at)
    assert (code, "--yes does it" in err) == (1, True)
    code, _, err = kvota("apply", "plan.yaml", *at, "--yes")
    assert (code, f"{VALUES} values changed" in err) == (0, True), err
    assert kvota("plan", "quotas.yaml", *at)[0] == 0
    assert kvota("apply", "quotas.yaml", *at, "--yes")[0] == 0
    code, out, _ = kvota("export", *at)
    assert code == 0
    (tmp_path / "exported.yaml").write_text(out)
    exported = load_document(tmp_path / "exported.yaml").wanted.quotas
    assert load_document(file).wanted.differences(exported) == ()

    file.write_text(WANTED.replace("5MiB/s", "4MiB/s").replace("10/s", "none"))
    code, out, _ = kvota("plan", "quotas.yaml", *at, "--output", "json")
    changes = {each["key"]: each["new_per_s"] for each in json.loads(out)["changes"]}
    assert (code, changes) == (
        1,
        {"producer_byte_rate": 4 * 2**20, "controller_mutation_rate": None},
    )
    assert kvota("apply", "quotas.yaml", *at, "--yes", "--ramp", "15%/1ms")[0] == 0
    code, _, err = kvota("apply", "plan.yaml", *at, "--yes")
    assert (code, "is stale" in err, "none → 4MiB/s" in err) == (1, True, True), err

    assert kvota("undo", "quotas.undo.yaml", *at, "--yes")[0] == 0
    assert kvota("undo", "plan.undo.yaml", *at, "--yes")[0] == 0
    assert kvota("export", *at, "--to", "after.yaml")[0] == 0
    assert load_document(tmp_path / "after.yaml").wanted.quotas == before


PAGE = (Path(__file__).parents[2] / "docs" / "quotas-as-code.md").read_text()


def test_the_page_is_so(kvota: Kvota, tmp_path: Path, own_kafka: LocalKafka) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    commands = re.findall(
        r"^    kvota quotas (.*\$SERVERS.*|schema.*|export --from.*)$", PAGE, re.MULTILINE
    )
    assert len(commands) == 10
    codes = []
    for command in commands:
        words = command.replace("$SERVERS", own_kafka.bootstrap_servers).split()
        if words[0] == "plan" and "--plan-file" in words:
            (tmp_path / "quotas.yaml").write_text(example)
        codes.append(kvota(*words)[0])
    # Planned 1, applied, planned 0, undone, ramped; the last plan finds it in force.
    assert codes == [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]

    assert kvota("undo", "quotas.undo.yaml", *words[2:4], "--yes")[0] == 0
    assert kvota("export", *words[2:4])[1].endswith("quotas: []\n")


def test_nothing_is_applied_when_one_value_is_refused(
    kvota: Kvota, tmp_path: Path, servers: str
) -> None:
    content = f"{WANTED}  - ip: no-such-host.invalid\n    connection_creation_rate: 5\n"
    (tmp_path / "quotas.yaml").write_text(content)

    for action in (["plan"], ["apply", "--yes"]):
        code, _, err = kvota(action[0], "quotas.yaml", "--bootstrap-server", servers, *action[1:])
        assert code == 2
        assert "the cluster refuses this; nothing was changed:" in err
        assert "invalid_request (42): no-such-host.invalid is not a valid IP" in err
    assert kvota("export", "--bootstrap-server", servers)[1].endswith("quotas: []\n")
    assert [each.name for each in tmp_path.glob("*.undo.yaml")] == []


def test_kafkas_tool_takes_the_lines_and_describes_the_same(
    kvota: Kvota, tmp_path: Path, own_kafka: LocalKafka
) -> None:
    at = ("--bootstrap-server", own_kafka.bootstrap_servers)
    (tmp_path / "quotas.yaml").write_text(WANTED)
    (tmp_path / "empty.yaml").write_text("quotas: []")
    code, out, _ = kvota("plan", "quotas.yaml", *at, "--format", "kafka-configs")
    assert code == 1

    with ConfigCommands("4.3.1") as tool:
        for line in out.splitlines():
            words = line.replace("'", "").split()
            assert words[0] == "kafka-configs.sh"
            words[2] = "{address}"
            ended = tool.run(words[1:], own_kafka.bootstrap_servers)
            assert ended.exit_code == 0, ended

    end = time.monotonic() + _KNOWN_S
    while (told := kvota("plan", "quotas.yaml", *at))[0]:  # the broker follows its controller
        assert time.monotonic() < end, told
    assert kvota("apply", "empty.yaml", *at, "--prune", "--force", "--yes")[0] == 0
    assert kvota("export", *at)[1].endswith("quotas: []\n")


def login(folder: Path, name: str) -> str:
    path = folder / f"{name}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{name}" password="{name}-secret";\n'
    )
    return str(path)


def test_who_may_not_is_told_which_right_is_missing(
    kvota: Kvota, tmp_path: Path, acl_kafka: LocalKafka
) -> None:
    (tmp_path / "quotas.yaml").write_text(WANTED)
    at = ("--bootstrap-server", acl_kafka.sasl_bootstrap_servers)

    code, _, err = kvota("plan", "quotas.yaml", *at, "--command-config", login(tmp_path, "alice"))
    assert (code, "DESCRIBE_CONFIGS on the cluster" in err) == (2, True), err
    operator = ("--command-config", login(tmp_path, "operator"))
    assert kvota("plan", "quotas.yaml", *at, *operator)[0] == 1
    assert "operator-secret" not in err
    wrong = login(tmp_path, "nobody")
    code, _, err = kvota("plan", "quotas.yaml", *at, "--command-config", wrong)
    assert code == 3, err
    assert "nobody-secret" not in err


def test_whom_nobody_answers_is_told(kvota: Kvota, tmp_path: Path) -> None:
    (tmp_path / "quotas.yaml").write_text(WANTED)

    code, _, err = kvota("apply", "quotas.yaml", "--bootstrap-server", "127.0.0.1:1", "--yes")
    assert (code, "127.0.0.1:1 cannot be reached" in err) == (3, True)
    assert [each.name for each in tmp_path.iterdir()] == ["quotas.yaml"]


def test_a_gateway_whose_quotas_people_write_says_so(
    kvota: Kvota, tmp_path: Path, own_kafka: LocalKafka
) -> None:
    folder = tmp_path / "gateway"
    folder.mkdir()
    (tmp_path / "quotas.yaml").write_text(WANTED)
    with gateway(folder, own_kafka.bootstrap_servers, source=None) as process:
        code, _, err = kvota(
            "apply", "quotas.yaml", "--bootstrap-server", process.bootstrap_servers
        )

    assert (code, "policy_violation (44)" in err, "quotas.toml" in err) == (2, True, True), err
