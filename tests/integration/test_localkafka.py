"""The real thing: clusters that start, answer, break, come back and leave nothing behind."""

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from kvota.app.cli.kafka import VERSIONS
from kvota.files.cache import cache_folder
from kvota.java.find import java_command
from kvota.localkafka import LocalKafka
from kvota.localkafka.cluster import admin
from kvota.localkafka.cluster.awaiting import await_so
from kvota.localkafka.cluster.ports import free_ports
from kvota.localkafka.jars.class_path import kafka_classpath
from kvota.localkafka.jars.compile_java import compile_java
from kvota.localkafka.jars.trust_store import PASSWORD, machine_certificates, write_trust_store
from kvota.localkafka.processes.command_line import SHORT_LIVED
from kvota.localkafka.processes.tools import CLASS_OF_TOOL, tool_command
from kvota.model.errors import UnreachableError, UsageError

HOST = "127.0.0.2"
KVOTA = [sys.executable, "-m", "kvota.app.cli.main", "kafka"]
TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"


def await_true(is_so: Callable[[], bool]) -> bool:
    for _ in range(1_200):  # a minute
        if is_so():
            return True
        threading.Event().wait(0.05)
    return False


def lives(pid: int) -> bool:
    # A zombie that nobody has waited for yet has no command line any more.
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


def kept_log(error: UnreachableError) -> Path:
    return Path(str(error).partition("From its log ")[2].partition(":\n")[0])


@pytest.fixture
def own_cache(tmp_path: Path) -> Path:
    """A cache that has all that was fetched, but knows of no cluster a person left running."""
    cache = tmp_path / "cache"
    cache.mkdir()
    for name in ("jars", "archives", "format"):
        shared = cache_folder() / name
        shared.mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to(shared)
    return cache


@pytest.fixture
def foreground(own_cache: Path) -> Iterator[subprocess.Popen[str]]:
    """``kvota kafka up``, ready."""
    process = subprocess.Popen(
        [*KVOTA, "up", "--host", HOST, "--output", "json"],
        env=os.environ | {"KVOTA_CACHE": str(own_cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        yield process
        process.kill()


def read_json(process: subprocess.Popen[str]) -> dict[str, object]:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line == "}\n":
            break
    answer = json.loads("".join(lines))
    assert isinstance(answer, dict)
    return answer


def test_a_java_tool_sees_a_topic_made_without_one(kafka: LocalKafka) -> None:
    kafka.create_topic("made-without-java", partitions=2)

    told = kafka.run_tool(
        TOPIC_COMMAND,
        *("--bootstrap-server", kafka.bootstrap_servers),
        *("--describe", "--topic", "made-without-java"),
    )

    assert told.returncode == 0, told.stderr
    assert "PartitionCount: 2" in told.stdout
    assert told.stderr == ""


@pytest.mark.parametrize(("arguments", "code"), [(("--list",), 0), (("--nonsense",), 1)])
def test_kafkas_own_tool_has_the_terminal_and_the_exit_code(
    kafka: LocalKafka, arguments: tuple[str, ...], code: int
) -> None:
    topic = f"seen-where-the-code-is-{code}"
    kafka.create_topic(topic, partitions=1)

    done = subprocess.run(
        [*KVOTA, "tool", "topics", "--bootstrap-server", kafka.bootstrap_servers, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == code
    assert (topic in done.stdout) == (code == 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_class_of_each_of_kafkas_tools_is_in_its_jars(version: str) -> None:
    ours = [jar for jar in kafka_classpath(version).split(os.pathsep) if "kafka" in Path(jar).name]
    classes = {name for jar in ours for name in ZipFile(jar).namelist()}

    main_classes = {tool: tool_command(tool, version, [])[-1] for tool in CLASS_OF_TOOL}

    assert {
        tool: name
        for tool, name in main_classes.items()
        if f"{name.replace('.', '/')}.class" not in classes
    } == {}


def test_a_topic_that_kafka_refuses_is_an_error_with_kafkas_words(kafka: LocalKafka) -> None:
    with pytest.raises(UsageError, match=r"invalid_replication_factor \(38\)"):
        kafka.create_topic("too-many-replicas", replication_factor=5)


def test_a_tool_that_does_not_end_is_ended(kafka: LocalKafka) -> None:
    with pytest.raises(UnreachableError, match=r"did not end in 0\.2 s"):
        kafka.run_tool(TOPIC_COMMAND, "--bootstrap-server", "192.0.2.1:9", "--list", timeout_s=0.2)


def test_every_node_of_three_knows_the_others_and_their_addresses(kafka3: LocalKafka) -> None:
    kafka3.create_topic("on-three", partitions=3, replication_factor=3)

    # Nodes that another test has had away are known again by and by.
    for node in kafka3.nodes:
        await_so(
            f"node {node.node_id} knows all",
            lambda of=node: admin.live_broker_ids(of.address) == {1, 2, 3},  # type: ignore[misc]
            kafka3.nodes,
        )
    assert {node.host for node in kafka3.nodes} == {HOST}
    assert len(set(kafka3.bootstrap_servers.split(","))) == 3


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["alice", "bob"])
def test_users_get_in_with_their_secret(sasl_kafka: LocalKafka, user: str, mechanism: str) -> None:
    client = KafkaAdminClient(
        bootstrap_servers=sasl_kafka.sasl_bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=user,
        sasl_plain_password=f"{user}-secret",
    )

    told = client.describe_cluster()

    client.close()
    assert [broker["broker_id"] for broker in told["brokers"]] == [1]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_secret_is_refused(sasl_kafka: LocalKafka, mechanism: str) -> None:
    errors: list[KafkaError] = []
    client = AdminClient(
        {
            "bootstrap.servers": sasl_kafka.sasl_bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": "bob-secret",
            "error_cb": errors.append,
            "log_level": 0,
        }
    )

    with pytest.raises(KafkaException):
        client.list_topics(timeout=3)

    # A broker that cannot be reached would be another error.
    end = time.monotonic() + 60
    while KafkaError._AUTHENTICATION not in {error.code() for error in errors}:
        assert time.monotonic() < end, errors
        client.poll(0.1)


def test_a_killed_node_comes_back_on_its_port_with_its_data() -> None:
    with LocalKafka(host=HOST, java_options=SHORT_LIVED) as kafka:
        kafka.create_topic("survivor")
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers, acks="all")
        producer.send("survivor", b"still here").get(timeout=60)
        producer.close()
        address, first_pid = kafka.bootstrap_servers, kafka.nodes[0].pid

        kafka.kill(1)
        gone = not lives(first_pid)
        kafka.start_node(1)

        consumer = KafkaConsumer(
            "survivor",
            bootstrap_servers=address,
            auto_offset_reset="earliest",
            consumer_timeout_ms=60_000,
        )
        values = [next(consumer).value]
        consumer.close()
        second_pid, folder = kafka.nodes[0].pid, kafka.folder
    assert gone
    assert values == [b"still here"]
    assert second_pid != first_pid
    assert not folder.exists()
    assert not lives(second_pid)


def test_nodes_die_when_the_process_that_started_them_is_killed(
    foreground: subprocess.Popen[str],
) -> None:
    (node,) = read_json(foreground)["nodes"]
    pid = node["pid"]
    lived = lives(pid)

    foreground.kill()

    assert lived
    assert await_true(lambda: not lives(pid))


def test_ctrl_c_ends_the_nodes_and_removes_their_folder(foreground: subprocess.Popen[str]) -> None:
    told = read_json(foreground)

    foreground.send_signal(signal.SIGINT)
    exit_code = foreground.wait(90)

    (node,) = told["nodes"]
    assert exit_code == 130
    assert not lives(node["pid"])
    assert not Path(str(told["folder"])).exists()


def test_up_detached_runs_on_until_down(own_cache: Path) -> None:
    def kvota(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*KVOTA, *arguments],
            env=os.environ | {"KVOTA_CACHE": str(own_cache)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    before = kvota("down")
    user = ("--user", "carol=carol-secret")
    further = ("--tls", "--oauth", "--racks", "zone-a")
    up = kvota("up", "--detach", "--host", HOST, *user, *further, "--output", "json")
    running = json.loads(up.stdout)
    host, port = running["bootstrap_servers"].split(":")
    answered = admin.live_broker_ids((host, int(port)))
    settings = (Path(running["folder"]) / "node-1" / "server.properties").read_text()
    topics = subprocess.run(
        [
            *(
                *KVOTA[:-1],
                "topics",
                "list",
                "--bootstrap-server",
                running["tls_bootstrap_servers"],
            ),
            *("--command-config", running["client_properties"]),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    again = kvota("up", "--detach")
    status = kvota("status", "--output", "json")
    down = kvota("down")
    after = kvota("status")

    assert (before.returncode, up.returncode, again.returncode) == (1, 0, 1)
    assert (status.returncode, down.returncode, after.returncode) == (0, 0, 1)
    assert "no Kafka runs" in before.stderr
    assert running["bootstrap_servers"] in again.stderr
    assert json.loads(status.stdout) == running
    assert answered == {1}
    assert topics.returncode == 0, topics.stderr
    assert running["oauth"] is True
    assert settings.count("broker.rack=zone-a\n") == 1
    assert "OAUTHBEARER" in settings
    assert not lives(running["nodes"][0]["pid"])
    assert not Path(running["folder"]).exists()


def test_kafka_3_9_starts_and_takes_topics() -> None:
    with LocalKafka(version="3.9.2", host=HOST, java_options=SHORT_LIVED) as kafka:
        kafka.create_topic("old")

        ids = admin.live_broker_ids(kafka.nodes[0].address)

    assert ids == {1}


def test_a_node_that_cannot_start_is_quoted_and_its_log_is_kept(
    capfd: pytest.CaptureFixture[str],
) -> None:
    kafka = LocalKafka(host=HOST, properties={"num.io.threads": "none"})

    with pytest.raises(UnreachableError) as caught:
        kafka.start()

    log = kept_log(caught.value)
    assert "Invalid value none for configuration num.io.threads" in str(caught.value)
    assert "num.io.threads" in log.read_text()
    assert f"logs are kept in {log.parent.parent}" in capfd.readouterr().err
    assert not kafka.nodes[0].data_path.exists()
    shutil.rmtree(log.parent.parent)


def test_a_port_that_somebody_takes_at_the_last_moment_is_told_as_the_cause() -> None:
    controller = f"{HOST}:{free_ports(HOST, 1)[0]}"
    with socket.create_server((HOST, 0)) as listener:
        taken = f"{HOST}:{listener.getsockname()[1]}"
        settings = {
            "listeners": f"PLAINTEXT://{taken},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{taken}",
            "controller.quorum.voters": f"1@{controller}",
        }
        kafka = LocalKafka(
            host=HOST,
            first_port=free_ports(HOST, 1)[0],  # so that no second port is tried
            properties=settings,
            java_options=SHORT_LIVED,
        )

        with pytest.raises(UnreachableError, match=f"{taken}: Address already in use") as caught:
            kafka.start()

    shutil.rmtree(kept_log(caught.value).parent.parent)


def test_java_compiles_against_the_brokers_own_classes_once(tmp_path: Path) -> None:
    source = tmp_path / "Asks.java"
    source.write_text(
        "import org.apache.kafka.server.quota.ClientQuotaManager;\n"
        "class Asks { Class<?> it = ClientQuotaManager.class; }\n"
    )

    first = compile_java([source], classpath=kafka_classpath())
    written_ns = (first / "Asks.class").stat().st_mtime_ns
    second = compile_java([source], classpath=kafka_classpath())

    assert second == first
    assert (second / "Asks.class").stat().st_mtime_ns == written_ns


def test_java_that_does_not_compile_is_told_with_the_compilers_words(tmp_path: Path) -> None:
    source = tmp_path / "Wrong.java"
    source.write_text('class Wrong { int one = "1"; }')

    with pytest.raises(UsageError, match="Type mismatch: cannot convert from String to int"):
        compile_java([source], classpath="")


def test_java_reads_the_trust_store_that_python_wrote(tmp_path: Path) -> None:
    source = tmp_path / "Counts.java"
    source.write_text(
        "class Counts { public static void main(String[] args) throws Exception {\n"
        '  var store = java.security.KeyStore.getInstance("JKS");\n'
        "  store.load(new java.io.FileInputStream(args[0]), args[1].toCharArray());\n"
        "  System.out.print(store.size()); } }\n"
    )
    authority = Path(__file__).parents[1] / "unit/localkafka/jars/authority.pem"
    certificates = [*machine_certificates(), ssl.PEM_cert_to_DER_cert(authority.read_text())]
    store = tmp_path / "machine.jks"
    write_trust_store(certificates, store)
    classes = compile_java([source], classpath="")

    told = subprocess.run(
        [java_command(), "-cp", str(classes), "Counts", str(store), PASSWORD],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (told.stdout, told.stderr) == (str(len(certificates)), "")
