"""``kvota gateway`` as a process: checking, signals, exit codes. No broker is needed to start."""

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.documented_files import not_of_a_gateway

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.model.errors import UnreachableError
from kvota.testing.frames import HEARTBEAT, request
from kvota.web.settings import DEFAULT_PORT as HTTP_PORT

pytestmark = pytest.mark.timeout(150)

QUOTAS = '[[quota]]\nuser = "a"\nproducer_byte_rate = "1MB/s"\n'
NOWHERE = "127.0.0.2:9"


def kvota(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kvota.app.cli.main", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def files(tmp_path: Path) -> Callable[[str, str], Path]:
    def write(config: str, quotas: str = QUOTAS) -> Path:
        (tmp_path / "gateway.toml").write_text(config)
        (tmp_path / "quotas.toml").write_text(quotas)
        return tmp_path

    return write


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    config = gateway_toml(upstream=NOWHERE, node_ids="1")
    process = GatewayProcess(tmp_path, config=config, quotas=QUOTAS)
    with process:
        yield process


def connect(gateway: GatewayProcess) -> socket.socket:
    host, port = gateway.bootstrap_servers.split(":")
    return socket.create_connection((host, int(port)), timeout=20)


# ------------------------------------------------------------------ --check


def test_check_tells_what_would_run_and_starts_nothing(files: Callable[..., Path]) -> None:
    folder = files(gateway_toml(upstream="kafka-1:9092", first_port=9192, enforce={"FETCH": True}))

    done = kvota("gateway", "--check", folder=folder)

    assert done.returncode == 0, done.stderr
    assert "enforces FETCH; in shadow mode: PRODUCE, REQUEST, CONTROLLER_MUTATION" in done.stdout
    assert "quotas of 1 entities from quotas.toml" in done.stdout
    assert "upstream kafka-1:9092" in done.stdout
    assert "no fault found" in done.stdout


def test_check_names_a_record_folder_that_cannot_be_written(files: Callable[..., Path]) -> None:
    config = gateway_toml(upstream="kafka-1:9092", first_port=9192, record="quotas.toml/record")
    folder = files(config)

    done = kvota("gateway", "--check", folder=folder)

    assert done.returncode == 2
    assert "record.folder: quotas.toml/record cannot be used" in done.stderr
    assert "quotas.toml is no folder" in done.stderr
    assert "no fault found" not in done.stdout


def test_check_shows_everything_where_the_record_folder_and_the_brokers_are_bad_too(
    files: Callable[..., Path],
) -> None:
    """The gateway's own login, too."""
    config = gateway_toml(
        upstream=NOWHERE,
        first_port=9192,
        enforce={"FETCH": True},
        record="quotas.toml/record",
        kafka={"client.quota.callback.static.kafka.admin.sasl.mechanism": "PLAIN"},
    )
    folder = files(config, '[[quota]]\nuser = "User:a"\nproducer_byte_rate = 1000\n')

    done = kvota("gateway", "--check", "--connect", folder=folder)

    assert done.returncode == 2
    unreachable, of_login, of_record = done.stderr.splitlines()
    assert f"{NOWHERE} cannot be reached" in unreachable
    assert of_login.startswith("kvota: gateway.toml:")
    assert "sasl.mechanism" in of_login
    assert of_record.startswith("record.folder: quotas.toml/record cannot be used: ")
    warnings = [line for line in done.stdout.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 2
    assert "quotas.FETCH: enforce = true, and quotas.toml has no" in warnings[0]
    assert 'write user = "a"' in warnings[1]
    assert "enforces FETCH" in done.stdout
    assert "no fault found" not in done.stdout


def test_check_makes_no_folder(files: Callable[..., Path]) -> None:
    folder = files(gateway_toml(upstream="kafka-1:9092", first_port=9192, record="to/come"))

    assert kvota("gateway", "--check", folder=folder).returncode == 0
    assert not (folder / "to").exists()


def test_check_warns_of_what_is_allowed_and_probably_not_meant(files: Callable[..., Path]) -> None:
    folder = files(
        gateway_toml(upstream="kafka-1:9092", first_port=9192, enforce={"FETCH": True}),
        '[[quota]]\nuser = "User:a"\nproducer_byte_rate = 1000\n'
        '[[quota]]\nclient_id = "<default>"\nproducer_byte_rate = 1000\n',
    )

    done = kvota("gateway", "--check", folder=folder)

    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stdout.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 3
    assert "quotas.FETCH: enforce = true, and quotas.toml has no consumer_byte_rate" in warnings[0]
    assert 'write user = "a"' in warnings[1]
    assert "write client_id_default = true" in warnings[2]


STATIC = "client.quota.callback.static"


@pytest.mark.parametrize(
    ("kafka", "quotas", "warnings"),
    [
        (
            {"client.quota.callback.class": "kvota.callbacks.StaticQuotaCallback", f"{STATIC}.produce": 5},
            "",
            [],
        ),
        (
            {"client.quota.callback.class": "kvota.callbacks.StaticQuotaCallback"},
            QUOTAS,
            ["StaticQuotaCallback has no such limit", "StaticQuotaCallback uses none of its quotas"],
        ),
        ({f"{STATIC}.produce": 5}, QUOTAS, ["is used by StaticQuotaCallback only"]),
        (
            {
                "client.quota.callback.class": "kvota.callbacks.GroupQuotaCallback",
                "client.quota.callback.group.batch.users": "a",
            },
            '[[quota]]\nuser = "group:bach"\nproducer_byte_rate = 1000\n',
            ['user = "group:bach": there is no group of this name', "batch: the group has no limit"],
        ),
        ({f"{STATIC}.storage.hard": 5, "log.dirs": "/"}, QUOTAS, ["the volumes' limits are never looked at"]),
    ],
    ids=["static", "static-without", "static-alone", "groups", "volumes"],
)  # fmt: skip
def test_check_warns_of_callbacks_and_volumes_that_do_nothing(
    files: Callable[..., Path], kafka: dict[str, int | str], quotas: str, warnings: list[str]
) -> None:
    enforce = {"PRODUCE": True}
    folder = files(
        gateway_toml(upstream=NOWHERE, first_port=9192, enforce=enforce, kafka=kafka), quotas
    )

    done = kvota("gateway", "--check", folder=folder)

    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("warning: ")]
    assert len(said) == len(warnings), said
    for line, words in zip(said, warnings, strict=True):
        assert words in line


def test_check_with_connect_names_each_broker_that_does_not_answer(
    files: Callable[..., Path],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as here:
        port = here.getsockname()[1]
        folder = files(gateway_toml(upstream=f"127.0.0.1:{port},{NOWHERE}", first_port=9192))

        done = kvota("gateway", "--check", "--connect", folder=folder)

    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        f"upstream.bootstrap_servers: {NOWHERE} cannot be reached: Connection refused"
    ]


def test_connect_without_check_is_wrong_use(files: Callable[..., Path]) -> None:
    folder = files(gateway_toml(upstream=NOWHERE, first_port=9192))

    done = kvota("gateway", "--connect", folder=folder)

    assert done.returncode == 2
    assert "--connect belongs to --check" in done.stderr


def test_check_names_three_faults_with_their_places(files: Callable[..., Path]) -> None:
    folder = files(
        '[gateway]\nbootstrap_port = "x"\n[upstream]\nbootstrap_servers = ["kafka"]\n',
        '[[quota]]\nuser = "a"\nproducer_byte_rate = "lots"\n',
    )

    done = kvota("gateway", "--check", folder=folder)

    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith('kvota: gateway.toml:2: gateway.bootstrap_port: "x" is not a port')
    assert lines[1].startswith("gateway.toml:4: upstream.bootstrap_servers: ")
    assert lines[2].startswith('quotas.toml:3: quota[0].producer_byte_rate: "lots" is not a byte rate')  # fmt: skip
    assert done.stdout == ""


def test_a_faulty_configuration_does_not_start_a_gateway(files: Callable[..., Path]) -> None:
    folder = files("[upstream]\n")

    done = kvota("gateway", folder=folder)

    assert done.returncode == 2
    assert "upstream.bootstrap_servers: missing" in done.stderr


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = kvota("gateway", "-c", "elsewhere.toml", folder=tmp_path)

    assert done.returncode == 2
    assert "elsewhere.toml: there is no such file" in done.stderr


def test_an_upstream_that_cannot_be_reached_is_said_at_the_start(gateway: GatewayProcess) -> None:
    end = time.monotonic() + 20
    while "cannot be reached" not in gateway.log and time.monotonic() < end:
        time.sleep(0.05)

    assert f"broker {NOWHERE} cannot be reached: Connection refused" in gateway.log
    assert gateway.running


def test_it_does_not_outlive_who_started_it(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from kvota.app.gateway_process import GatewayProcess, gateway_toml\n"
        f"config = gateway_toml(upstream={NOWHERE!r}, node_ids='1')\n"
        f"folder = Path({str(tmp_path)!r})\n"
        f"with GatewayProcess(folder, config=config, quotas='') as it:\n"
        "    print(it.pid, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        pid = int(holder.stdout.readline())
        holder.kill()

    end = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


# ------------------------------------------------------------------ ports and descriptors


@pytest.mark.parametrize(("offset", "what"), [(0, "the bootstrap port"), (2, "node 1's port")])
def test_a_taken_port_ends_it_with_a_message(
    files: Callable[..., Path], offset: int, what: str
) -> None:
    first_port = free_port_range(3)
    config = gateway_toml(
        upstream=NOWHERE, first_port=first_port, node_ids="0-1", http_port=0, record="record"
    )
    config = config.replace("[record]", '[record]\ntopic = "kvota-record"')
    # As of a second gateway that somebody starts by mistake: the default port of HTTP is taken, too.
    http_host = f"127.0.0.{10 + offset}"
    folder = files(with_http_at_the_default_port(config, http_host))
    with (
        socket.create_server((http_host, HTTP_PORT)),
        socket.create_server(("127.0.0.1", first_port + offset)),
    ):
        done = kvota("gateway", folder=folder)

    assert done.returncode == 3
    assert f"cannot listen on 127.0.0.1:{first_port + offset} ({what}): Address already in use" in done.stderr  # fmt: skip
    setting = "gateway.bootstrap_port" if offset == 0 else "gateway.node_port_base"
    assert f"choose another: {setting}" in done.stderr
    assert len(done.stderr.splitlines()) == 1  # nothing stands before the fault, or behind it


def with_http_at_the_default_port(config: str, host: str) -> str:
    """Another host for each test: one of them takes its port."""
    assert "port = 0\n" in config
    return config.replace("port = 0\n", f'host = "{host}"\n')


def test_too_few_open_files_and_no_http_are_warned_about(files: Callable[..., Path]) -> None:
    config = gateway_toml(upstream=NOWHERE, node_ids="0", http_port=0)
    http_host = "127.0.0.20"
    folder = files(with_http_at_the_default_port(config, http_host))
    log_path = folder / "gateway.log"
    script = (
        "import resource, os, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'kvota.app.cli.main', 'gateway'])\n"
    )
    with log_path.open("wb") as log, socket.create_server((http_host, HTTP_PORT)):
        process = subprocess.Popen([sys.executable, "-c", script], cwd=folder, stderr=log)
        try:
            wait_for(log_path, "ready:", process)
        finally:
            process.terminate()
            process.wait(20)

    log_text = log_path.read_text()
    assert "the limit of open files is 300, 2000 connections need 5066" in log_text
    assert f"WARNING no HTTP: cannot listen on {http_host}:{HTTP_PORT} (HTTP): Addr" in log_text
    assert "HTTP at" not in log_text


def test_the_limit_of_open_files_is_raised_where_it_may_be(gateway: GatewayProcess) -> None:
    soft, _hard = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)

    assert soft >= 2 * 2_000
    assert "limit of open files" not in gateway.log


def wait_for(path: Path, text: str, process: subprocess.Popen[bytes]) -> None:
    while text not in path.read_text():
        assert process.poll() is None, path.read_text()


# ------------------------------------------------------------------ signals


def test_the_first_lines_say_what_is_enforced_and_where_to_connect(gateway: GatewayProcess) -> None:
    assert (
        "enforces nothing; in shadow mode: PRODUCE, FETCH, REQUEST, CONTROLLER_MUTATION"
        in gateway.log
    )
    assert f"ready: clients bootstrap at {gateway.bootstrap_servers}" in gateway.log


def test_sigterm_ends_it_in_order(gateway: GatewayProcess) -> None:
    with closing(connect(gateway)) as client:
        assert gateway.stop() == 0
        assert client.recv(1) == b""

    assert "draining" in gateway.log
    assert "Traceback" not in gateway.log


def test_sighup_puts_other_quotas_in_force(gateway: GatewayProcess) -> None:
    gateway.reload(QUOTAS + '[[quota]]\nuser = "b"\nproducer_byte_rate = 5\n')

    assert "SIGHUP: + user-principal 'b' PRODUCE none -> 5 B/s" in gateway.log
    assert "SIGHUP: enforces nothing; in shadow mode: PRODUCE, FETCH" in gateway.log
    assert "quotas of 2 entities from quotas.toml" in gateway.log
    assert gateway.running


def test_sighup_takes_over_what_is_enforced_and_by_which_algorithm(gateway: GatewayProcess) -> None:
    path = gateway.folder / "gateway.toml"
    more = '[quotas.PRODUCE]\nenforce = true\nalgorithm = "token_bucket"\nburst = "2s"\n'
    path.write_text(path.read_text() + more)
    gateway.reload(QUOTAS)

    assert "SIGHUP: PRODUCE: shadow mode -> enforced" in gateway.log
    assert (
        "SIGHUP: PRODUCE: sampled_rate (11 x 1000 ms) -> token_bucket (burst 2 s, debt_max 15 s)"
        in gateway.log
    )
    assert (
        "SIGHUP: enforces PRODUCE; in shadow mode: FETCH, REQUEST, CONTROLLER_MUTATION"
        in gateway.log
    )


def test_sighup_says_what_needs_a_restart_and_what_has_not_changed(gateway: GatewayProcess) -> None:
    path = gateway.folder / "gateway.toml"
    text = path.read_text()
    path.write_text(text + '[limits]\nmute_time_max = "9s"\n')
    gateway.reload(QUOTAS)
    path.write_text(text)
    gateway.reload(QUOTAS)

    assert "SIGHUP: limits is another one now; it needs a restart" in gateway.log
    assert gateway.log.count("SIGHUP: nothing has changed") == 1


def test_sighup_with_a_faulty_gateway_toml_changes_nothing(gateway: GatewayProcess) -> None:
    path = gateway.folder / "gateway.toml"
    path.write_text(path.read_text() + '[quotas.PRODUCE]\nalgorithm = "leaky"\n')
    gateway.reload(QUOTAS + '[[quota]]\nuser = "b"\nproducer_byte_rate = 5\n')

    assert 'quotas.PRODUCE.algorithm: "leaky" is not an algorithm' in gateway.log
    assert "user-principal 'b'" not in gateway.log


def test_sighup_with_a_faulty_file_keeps_the_quotas_and_says_why(gateway: GatewayProcess) -> None:
    gateway.reload('[[quota]]\nuser = "b"\nproducer_byte_rate = "lots"\n')

    assert "SIGHUP: what is in force stays as it is. quotas.toml:3: quota[0]" in gateway.log
    assert "entities from quotas.toml" not in gateway.log.split("SIGHUP", 1)[1]
    assert gateway.running


# ------------------------------------------------------------------ reload, and one gateway at a time


def test_reload_needs_no_process_id_and_says_what_is_in_force(gateway: GatewayProcess) -> None:
    (gateway.folder / "quotas.toml").write_text(
        QUOTAS + '[[quota]]\nuser = "b"\nproducer_byte_rate = 5\n'
    )

    done = kvota("gateway", "reload", folder=gateway.folder)
    again = kvota("gateway", "reload", "-c", "gateway.toml", folder=gateway.folder)

    assert done.returncode == again.returncode == 0, done.stderr + again.stderr
    in_force = (
        "enforces nothing; in shadow mode: PRODUCE, FETCH, REQUEST, CONTROLLER_MUTATION, PRODUCER_ID, "
        "connection_creation_rate; quotas of 2 entities from quotas.toml"
    )
    assert done.stdout.splitlines() == ["+ user-principal 'b' PRODUCE none -> 5 B/s", in_force]
    assert again.stdout.splitlines() == ["nothing has changed", in_force]
    assert f"SIGHUP: {in_force}" in gateway.log


def test_reload_warns_of_what_is_probably_not_meant(gateway: GatewayProcess) -> None:
    (gateway.folder / "quotas.toml").write_text(
        '[[quota]]\nuser = "User:b"\nproducer_byte_rate = 5\n'
    )

    done = kvota("gateway", "reload", folder=gateway.folder)

    assert done.returncode == 0, done.stderr
    meant = 'quotas.toml: user = "User:b" is the name of nobody who logs in as b; write user = "b"'
    assert done.stdout.splitlines()[-1] == f"warning: {meant}"
    assert f"WARNING SIGHUP: {meant}" in gateway.log


def test_reload_finds_faults_before_anything_is_sent(gateway: GatewayProcess) -> None:
    (gateway.folder / "quotas.toml").write_text("[[quota]]\n")

    done = kvota("gateway", "reload", folder=gateway.folder)

    assert done.returncode == 2
    assert "quotas.toml:1: quota[0]" in done.stderr
    assert "SIGHUP" not in gateway.log


def test_reload_says_what_only_the_gateway_finds(gateway: GatewayProcess) -> None:
    path = gateway.folder / "gateway.toml"
    path.write_text(
        path.read_text() + '[kafka]\n"client.quota.callback.class" = "nowhere.Callback"\n'
    )

    done = kvota("gateway", "reload", folder=gateway.folder)

    assert done.returncode == 2
    assert 'kafka."client.quota.callback.class"' in done.stderr
    assert done.stderr.endswith("kvota: refused; what was in force stays as it is\n")
    assert done.stdout == ""


def test_reload_of_a_gateway_that_does_not_run_says_so(gateway: GatewayProcess) -> None:
    gateway.stop()
    assert not (gateway.folder / "gateway.pid").exists()

    done = kvota("gateway", "reload", folder=gateway.folder)

    assert done.returncode == 3
    assert "no gateway runs with gateway.toml (nobody holds gateway.pid)" in done.stderr


def test_a_killed_gateways_file_is_stale(gateway: GatewayProcess) -> None:
    os.kill(gateway.pid, signal.SIGKILL)
    end = time.monotonic() + 20
    while gateway.running and time.monotonic() < end:
        time.sleep(0.02)
    assert (gateway.folder / "gateway.pid").read_text() == f"{gateway.pid}\n"

    done = kvota("gateway", "reload", folder=gateway.folder)

    assert done.returncode == 3
    assert "nobody holds gateway.pid" in done.stderr
    gateway.stop()
    with gateway:
        assert kvota("gateway", "reload", folder=gateway.folder).returncode == 0


def test_a_second_gateway_with_the_same_file_refuses(gateway: GatewayProcess) -> None:
    done = kvota("gateway", folder=gateway.folder)

    assert done.returncode == 2
    assert f"a gateway with gateway.toml runs already (process {gateway.pid}" in done.stderr
    assert f"kvota gateway reload -c {gateway.folder}/gateway.toml" in done.stderr
    assert gateway.running


def test_a_second_gateway_of_the_same_name_and_record_folder_refuses(tmp_path: Path) -> None:
    """What the first one writes meanwhile is documented."""
    first_port = free_port_range(6)
    one_folder = tmp_path / "one"
    record = str(one_folder / "record")
    disks = {f"{STATIC}.storage.soft": 800, f"{STATIC}.storage.hard": 900}
    disks |= {f"{STATIC}.storage.check-interval": 5}
    one, two = (
        gateway_toml(
            upstream=NOWHERE,
            first_port=port,
            node_ids="1",
            record=record,
            kafka={**disks, "log.dirs": str(tmp_path)},
        )
        for port in (first_port, first_port + 3)
    )
    second = tmp_path / "second"
    second.mkdir()
    (second / "quotas.toml").write_text("")
    (second / "gateway.toml").write_text(two)
    quotas = '[[quota]]\nuser = "a"\nproducer_ids_rate = 1\n'
    with GatewayProcess(one_folder, config=one, quotas=quotas) as first:
        done = kvota("gateway", folder=second)
        (second / "quotas.toml").write_text(QUOTAS.replace('"a"', '"User:a"'))
        checked = kvota("gateway", "--check", folder=second)

        (second / "gateway.toml").write_text(two.replace("[gateway]", '[gateway]\nname = "two"'))
        with_another_name = kvota("gateway", "--check", folder=second)

        own = {one_folder / name for name in ("gateway.toml", "quotas.toml", "gateway.log")}
        written = {file for file in one_folder.rglob("*") if file.is_file()} - own
    written |= {file for file in one_folder.rglob("*") if file.is_file()} - own
    names = {file.name.partition("-")[0] for file in written}
    assert names == {"gateway.pid", ".kvota.lock", "gateway.producer", "volumes"}
    assert not_of_a_gateway(sorted(written), one_folder) == []

    said = f'another gateway with the name "kvota" (process {first.pid}) records into {record}'
    assert done.returncode == checked.returncode == 2
    assert said in done.stderr
    assert said in checked.stderr
    assert 'write user = "a"' in checked.stdout
    assert with_another_name.returncode == 0, with_another_name.stderr


def test_the_pid_file_may_be_elsewhere(files: Callable[..., Path]) -> None:
    config = gateway_toml(upstream=NOWHERE, node_ids="1")
    config = config.replace("[gateway]", '[gateway]\npid_file = "run/it.pid"')
    folder = files(config)

    without_its_folder = kvota("gateway", folder=folder)
    (folder / "run").mkdir()
    with GatewayProcess(folder, config=config, quotas="") as gateway:
        held = (folder / "run" / "it.pid").read_text()
        reloaded = kvota("gateway", "reload", folder=folder)

    assert without_its_folder.returncode == 2
    assert (
        "gateway.pid_file: run/it.pid cannot be written: No such file" in without_its_folder.stderr
    )
    assert held == f"{gateway.pid}\n"
    assert reloaded.returncode == 0


def test_an_upstream_that_is_down_is_said_once_and_clients_are_disconnected(
    gateway: GatewayProcess,
) -> None:
    for _ in range(3):
        with closing(connect(gateway)) as client:
            client.sendall(request(HEARTBEAT, 4))
            assert client.recv(1) == b""

    assert gateway.log.count(f"broker {NOWHERE} cannot be reached: Connection refused") == 1
    assert "will try again" in gateway.log
    assert gateway.running


def test_a_gateway_that_does_not_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    process = GatewayProcess(tmp_path, config="[upstream]\n", quotas="")

    with pytest.raises(UnreachableError, match=r"bootstrap_servers: missing"):
        process.__enter__()
