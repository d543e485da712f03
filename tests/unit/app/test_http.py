"""The HTTP port of a gateway process, and the commands that ask it."""

import json
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml
from kvota.model.errors import UnreachableError

pytestmark = pytest.mark.timeout(240)

NOWHERE = "127.0.0.2:9"
QUOTAS = '[[quota]]\nuser = "a"\nproducer_byte_rate = "1MB/s"\n'


def process(
    folder: Path, *, http_port: int | None = 0, more: str = "", enforced: bool = True
) -> GatewayProcess:
    config = gateway_toml(
        upstream=NOWHERE,
        node_ids="1",
        enforce={"PRODUCE": enforced},
        http_port=http_port,
    )
    return GatewayProcess(folder, config=config + more, quotas=QUOTAS)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with process(tmp_path_factory.mktemp("gateway")) as running:
        yield running


def kvota(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kvota.app.cli.main", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def get(gateway: GatewayProcess, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(gateway.http_url + path, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_it_is_not_ready_where_no_broker_can_be_reached_and_says_so(
    gateway: GatewayProcess,
) -> None:
    status, body = get(gateway, "/readyz")

    assert status == 503
    assert body["reasons"] == [f"no broker can be reached: {NOWHERE}"]


def test_it_is_live(gateway: GatewayProcess) -> None:
    with urllib.request.urlopen(gateway.http_url + "/livez", timeout=60) as answer:
        assert answer.status == 200


def test_metrics_of_a_gateway_without_a_record(gateway: GatewayProcess) -> None:
    with urllib.request.urlopen(gateway.http_url + "/metrics", timeout=60) as answer:
        text = answer.read().decode()

    assert 'kvota_quotas_enforced{quota_type="PRODUCE"} 1' in text
    assert "kvota_quotas_entities 1" in text
    assert "kvota_recording" not in text


def test_status_of_a_gateway_nobody_uses(gateway: GatewayProcess) -> None:
    done = kvota("status", "--url", gateway.http_url, folder=gateway.folder)

    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("kvota at ")
    assert "0 held back, 0 connections; enforces PRODUCE" in first
    assert second == "nobody has produced, fetched or changed topics yet"


def test_explain_names_the_level_the_file_and_the_line(gateway: GatewayProcess) -> None:
    done = kvota("explain", "--user", "a", "--url", gateway.http_url, folder=gateway.folder)

    assert done.returncode == 0, done.stderr
    assert "PRODUCE  passes" in done.stdout
    assert "> level 3  user-principal 'a'" in done.stdout
    assert "quotas.toml:1" in done.stdout
    assert done.stdout.endswith(
        "\n\nFETCH, REQUEST, CONTROLLER_MUTATION, PRODUCER_ID: nobody has a quota\n"
    )


def test_nobody_is_told_to_limit_all_who_have_not_logged_in(gateway: GatewayProcess) -> None:
    def change(query: str) -> str:
        (produce, *_) = get(gateway, f"/v1/explain?{query}")[1]["quotas"]
        text: str = produce["change"]
        return text

    assert '[[quota]] client_id = "app" producer_byte_rate' in change("client_id=app")
    assert '[[quota]] user = "b" producer_byte_rate' in change("user=b&client_id=app")
    assert '[[quota]] user = "ANONYMOUS" producer_byte_rate' in change("")


def test_what_explain_says_to_reload_can_be_typed_anywhere(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    explained = kvota("explain", "--user", "a", "--url", gateway.http_url, folder=tmp_path)
    _, command = explained.stdout.split(", then kvota ", 1)

    done = kvota(*shlex.split(command.splitlines()[0]), folder=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("nothing has changed")


def test_json_is_what_the_port_serves(gateway: GatewayProcess) -> None:
    done = kvota("explain", "--output", "json", "--url", gateway.http_url, folder=gateway.folder)

    served = get(gateway, "/v1/explain")[1]
    printed = json.loads(done.stdout)
    assert printed | {"at_ms": 0} == served | {"at_ms": 0}


def test_a_reload_moves_the_lines_and_the_version(tmp_path: Path) -> None:
    with process(tmp_path) as gateway:
        gateway.reload('\n\n[[quota]]\nuser = "b"\nproducer_byte_rate = "2MB/s"\n')

        (produce, *_) = get(gateway, "/v1/explain?user=b")[1]["quotas"]

        assert produce["limit_from"] == "quotas.toml:3"
        with urllib.request.urlopen(gateway.http_url + "/metrics", timeout=60) as answer:
            text = answer.read().decode()
        assert "kvota_quotas_version 2" in text
        assert 'kvota_reloads_total{result="done"} 1' in text


# ------------------------------------------------------------------ who cannot be asked


def test_nobody_there_is_said_with_what_to_do(tmp_path: Path) -> None:
    port = free_port_range(1)

    done = kvota("status", "--url", f"http://127.0.0.1:{port}", folder=tmp_path)

    assert done.returncode == 3
    assert f"no gateway answers at http://127.0.0.1:{port}: Connection refused" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("url", ["127.0.0.1:9180", "https://x", "http://", "http://x:y"])
def test_what_is_no_url_is_refused(tmp_path: Path, url: str) -> None:
    done = kvota("status", "--url", url, folder=tmp_path)

    assert done.returncode == 2
    assert f'"{url}" is no URL of a gateway' in done.stderr


def test_a_watch_goes_on_while_the_gateway_is_restarted(tmp_path: Path) -> None:
    port = free_port_range(1)
    command = [sys.executable, "-m", "kvota.app.cli.main", "status", "--watch", "--every", "100ms"]
    with process(tmp_path / "first", http_port=port) as gateway:
        watch = subprocess.Popen(
            [*command, "--url", gateway.http_url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert watch.stdout is not None
        assert watch.stderr is not None
        assert "0 held back" in watch.stdout.readline()
    try:
        # It ends, and answers 503, or is gone.
        said = watch.stderr.readline()
        assert "answers 503" in said or "Connection re" in said or "closed connection" in said, said
        assert "Looking again; Ctrl-C ends it" in said
        with process(tmp_path / "second", http_port=port, enforced=False):
            while "enforces nothing" not in watch.stdout.readline():
                assert watch.poll() is None
    finally:
        watch.send_signal(signal.SIGINT)
        watch.communicate(timeout=20)
    assert watch.returncode == 130


def test_without_http_in_the_file_it_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_text(
        '[upstream]\nbootstrap_servers = ["a:1"]\n[http]\nenabled = false\n'
    )
    (tmp_path / "quotas.toml").write_text("")

    done = kvota("status", folder=tmp_path)

    assert done.returncode == 2
    assert "http.enabled is false" in done.stderr


# ------------------------------------------------------------------ the port


def test_a_port_that_the_file_names_and_that_is_taken_is_an_error(
    tmp_path: Path, gateway: GatewayProcess
) -> None:
    port = int(gateway.http_url.rpartition(":")[2])

    with pytest.raises(UnreachableError, match=rf"cannot listen on 127.0.0.1:{port} \(HTTP\)"):
        process(tmp_path, http_port=port).__enter__()


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ("port = 70000", "70000 is not a port (1 to 65535, or 0 for any that is free)"),
        ('host = "a b"', "host name"),
        ('names = "x"', "a list of host names"),
        ('names = ["a..b"]', "empty label"),
        ("prot = 1", 'Did you mean "port"?'),
    ],
)
def test_faults_of_the_table_are_named(tmp_path: Path, table: str, fault: str) -> None:
    (tmp_path / "gateway.toml").write_text(
        f'[upstream]\nbootstrap_servers = ["a:1"]\n[http]\n{table}\n'
    )
    (tmp_path / "quotas.toml").write_text("")

    done = kvota("gateway", "--check", folder=tmp_path)

    assert done.returncode == 2
    assert "gateway.toml:4: http." in done.stderr
    assert fault in done.stderr
