"""The wheel in an empty environment: a gateway needs nothing but its extra, and no Spark."""

import os
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from tests.integration.wheelhouse import build_wheel, install, pack_installed

from kvota.app.gateway_process import free_port_range, gateway_toml
from kvota.localkafka import LocalKafka

QUOTAS = '[[quota]]\nuser_default = true\nproducer_byte_rate = "1GB/s"\n'


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with ``pip install "kvota[gateway]"`` from the wheel, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    wheels = folder / "wheels"
    wheels.mkdir()
    wheel = build_wheel(wheels)
    needed = set(pack_installed("gateway", wheels))
    assert needed >= {"uvloop", "pyarrow", "numpy"}
    assert needed.isdisjoint({"pyspark", "pandas", "numba", "kio"})
    install(folder / "environment", wheels, f"kvota[gateway] @ {wheel.as_uri()}")
    return folder / "environment"


def kvota(environment: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(environment / "bin" / "kvota"), *arguments],
        cwd=folder,
        env=_own_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _own_environment() -> dict[str, str]:
    """Without what leads to the clone."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONPATH", "KVOTA_CALLED", "VIRTUAL_ENV"}
    }


def test_a_gateway_runs_records_and_reloads(
    environment: Path, kafka: LocalKafka, tmp_path: Path
) -> None:
    first_port = free_port_range(4)
    config = gateway_toml(
        upstream=kafka.bootstrap_servers, first_port=first_port, node_ids="1-2", record="record"
    )
    (tmp_path / "gateway.toml").write_text(config)
    (tmp_path / "quotas.toml").write_text(QUOTAS)
    kafka.create_topic("from-a-wheel")
    assert kvota(environment, "--version", folder=tmp_path).stdout == "kvota 0.1.0\n"
    checked = kvota(environment, "gateway", "--check", "--connect", folder=tmp_path)
    assert checked.returncode == 0, checked.stderr

    with subprocess.Popen(
        [str(environment / "bin" / "kvota"), "gateway"],
        cwd=tmp_path,
        env=_own_environment(),
        stderr=subprocess.PIPE,
        text=True,
    ) as gateway:
        assert gateway.stderr is not None
        lines = iter(gateway.stderr.readline, "")
        assert any("ready: clients bootstrap at" in line for line in lines)
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{first_port}"})
        producer.produce("from-a-wheel", b"x")
        assert producer.flush(60) == 0
        reloaded = kvota(environment, "gateway", "reload", folder=tmp_path)
        gateway.terminate()
        rest = gateway.stderr.read()

    assert gateway.returncode == 0, rest
    assert reloaded.stdout.startswith("nothing has changed\n"), reloaded.stderr
    (file,) = (tmp_path / "record").glob("*.parquet")
    assert pq.read_table(file)["quota_type"].to_pylist() == ["PRODUCE"]


def test_a_gateway_that_looks_at_volumes_names_its_extra(environment: Path, tmp_path: Path) -> None:
    static = "client.quota.callback.static"
    config = gateway_toml(
        upstream="127.0.0.2:9",
        first_port=free_port_range(3),
        node_ids="1",
        kafka={
            f"{static}.kafka.admin.bootstrap.servers": "127.0.0.2:9",
            f"{static}.storage.check-interval": 10,
            f"{static}.storage.perVolumeLimit.availableRatioBelow.hard": "0.05",
        },
    )
    (tmp_path / "gateway.toml").write_text(config)
    (tmp_path / "quotas.toml").touch()

    done = kvota(environment, "gateway", folder=tmp_path)

    assert done.returncode == 2
    assert "pip install 'kvota[client]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("usage", "--events", "."), "spark"),
        (("replay", "--events", ".", "--law"), "spark"),
        (("recommend", "--events", ".", "--capacity", "PRODUCE=1MB/s"), "spark"),
        (("kafka", "up"), "localkafka"),
        (("kafka", "tool", "topics", "--list"), "localkafka"),
        (("demo",), "demo"),
    ],
)
def test_a_command_that_needs_more_names_its_extra(
    environment: Path, tmp_path: Path, arguments: tuple[str, ...], extra: str
) -> None:
    (tmp_path / "events.parquet").touch()

    done = kvota(environment, *arguments, folder=tmp_path)

    assert done.returncode == 2
    assert f"pip install 'kvota[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr
