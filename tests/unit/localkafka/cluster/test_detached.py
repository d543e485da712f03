import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvota.localkafka.cluster.detached import running_detached, stop_detached
from kvota.model.errors import CorruptDataError, KvotaError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVOTA_CACHE", str(tmp_path))
    folder = tmp_path / "kafka"
    folder.mkdir()
    return folder


@pytest.fixture
def sleeper(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that, like a node, names the cluster's folder in its command line."""
    program = "import time; print('runs', flush=True); time.sleep(60)"
    command = [sys.executable, "-I", "-c", program, str(home / "cluster-a")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"runs\n"
        yield process
        process.kill()


def remember(home: Path, pid: int, folder: str) -> None:
    (home / folder).mkdir()
    node = {
        "node_id": 1,
        "host": "127.0.0.1",
        "port": 9092,
        "sasl_port": None,
        "pid": pid,
        "log_path": "node.log",
    }
    known = {
        "version": "4.3.1",
        "bootstrap_servers": "127.0.0.1:9092",
        "sasl_bootstrap_servers": None,
        "users": [],
        "folder": str(home / folder),
        "nodes": [node],
    }
    (home / "running.json").write_text(json.dumps(known))


def test_down_ends_the_process_and_removes_its_folder(
    home: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    remember(home, sleeper.pid, "cluster-a")
    before = running_detached()

    ended = stop_detached()

    assert before == ended
    assert sleeper.wait(10) < 0
    assert running_detached() is None
    assert [path.name for path in home.iterdir()] == [".lock"]


def test_down_leaves_a_process_alone_that_only_has_the_same_pid(
    home: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    remember(home, sleeper.pid, "cluster-b")

    with pytest.raises(KvotaError, match="had ended by itself"):
        stop_detached()

    assert sleeper.poll() is None
    assert not (home / "cluster-b").exists()


def test_down_without_anything_to_end_says_so(home: Path) -> None:
    with pytest.raises(KvotaError, match="no Kafka runs"):
        stop_detached()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nodes": []}', '{"nodes": 1}'])
def test_a_file_that_is_not_ours_is_named(home: Path, text: str) -> None:
    (home / "running.json").write_text(text)

    with pytest.raises(CorruptDataError, match=r"kafka/running\.json: not what kvota wrote"):
        running_detached()
