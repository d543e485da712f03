"""The sources of docs/volume-sources.md, as they are written there, in gateways before a real broker."""

import asyncio
import contextlib
import http.server
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.test_volumes import FALLBACKS, IS_FALLBACK, metric

from kvota.app.cli.main import main
from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.volumes.settings import FACTOR_SOURCE, PREFIX, SOURCE

PAGE = (Path(__file__).parents[2] / "docs" / "volume-sources.md").read_text()
FROM_FILE, BY_HTTP, OF_DISKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SETTINGS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
TOPIC = "sourced"
PATIENCE_S = 60.0
QUICK: dict[str, int | str] = {
    f"{PREFIX}.storage.check-interval": 1,
    f"{PREFIX}.throttle.factor.fallback": 0.5,
    # Longer than a machine stands still: no look is so late.
    f"{PREFIX}.throttle.factor.validity.duration": "PT8S",
}


@pytest.fixture
def folder(kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the page's modules lie; a gateway finds them there."""
    (tmp_path / "my_factor.py").write_text(FROM_FILE)
    (tmp_path / "my_http.py").write_text(BY_HTTP)
    (tmp_path / "my_disks.py").write_text(OF_DISKS)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    with contextlib.suppress(Exception):  # of the test before
        kafka.create_topic(TOPIC)
    return tmp_path


def gateway(kafka: LocalKafka, folder: Path, **settings: str) -> GatewayProcess:
    """Nobody has a quota; what is not said here is as on the page, but quicker."""
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        node_ids="1-1",
        enforce={"PRODUCE": True},
        kafka=QUICK | settings,
        http_port=0,
    )
    return GatewayProcess(folder / "gw", config=config, quotas="")


async def until(is_so: Callable[[], bool], one: GatewayProcess) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0.05)


def is_taken(one: GatewayProcess, within_s: float) -> bool:
    """Whether a record of somebody without any quota is acknowledged."""
    producer = Producer({"bootstrap.servers": one.bootstrap_servers, "log_level": 0})
    acknowledged: list[bool] = []
    producer.produce(TOPIC, b"v", on_delivery=lambda error, _: acknowledged.append(error is None))
    producer.flush(within_s)
    producer.purge()
    producer.flush(1)
    return acknowledged[:1] == [True]


def replace(file: Path, text: str) -> None:
    """In one step: a reader never sees half of it."""
    beside = file.with_suffix(".new")
    beside.write_text(text)
    beside.rename(file)


async def test_a_factor_from_a_file_stops_even_those_without_a_quota(
    kafka: LocalKafka, folder: Path
) -> None:
    file = folder / "factor"
    replace(file, "1.0\n")
    settings = {FACTOR_SOURCE: "my_factor.FactorFromFile", f"{FACTOR_SOURCE}.file": str(file)}
    with gateway(kafka, folder, **settings) as one:
        assert await asyncio.to_thread(is_taken, one, 60)
        replace(file, "0")
        await until(lambda: "produce factor 1.00 -> 0.00" in one.log, one)
        assert not await asyncio.to_thread(is_taken, one, 2)

        file.unlink()
        await until(lambda: "-> 0.50: the fallback" in one.log, one)
        gone = "EXCEPTION: my_factor.FactorFromFile raises FileNotFoundError"
        await until(lambda: gone in one.log, one)
        assert f"{folder / 'my_factor.py'}:" in one.log
        assert metric(one, FALLBACKS) == 1
        assert metric(one, IS_FALLBACK) == 1
        assert await asyncio.to_thread(is_taken, one, 60)

        replace(file, "1")
        await until(lambda: metric(one, IS_FALLBACK) == 0, one)
        assert "volumes: they can be looked at again" in one.log


@contextlib.contextmanager
def server(told: dict[str, str]) -> Iterator[str]:
    """Answers with what is told now; "" hangs until there is something else."""
    changed = threading.Condition()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with changed:
                changed.wait_for(lambda: told["now"], 20)
            body = told["now"].encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{serving.server_port}/factor"
        finally:
            told["now"] = told["now"] or "1"
            with changed:
                changed.notify_all()
            serving.shutdown()


async def test_a_factor_by_http_that_hangs_and_answers_nonsense(
    kafka: LocalKafka, folder: Path
) -> None:
    told = {"now": "0.75"}
    with server(told) as url:
        settings = {FACTOR_SOURCE: "my_http.FactorByHttp", f"{FACTOR_SOURCE}.url": url}
        with gateway(kafka, folder, **settings) as one:
            await until(lambda: metric(one, "kvota_produce_factor") == 0.75, one)
            told["now"] = ""
            await until(lambda: "SAFETY_TIMEOUT: my_http.FactorByHttp has not" in one.log, one)
            await until(lambda: "-> 0.50: the fallback" in one.log, one)
            assert await asyncio.to_thread(is_taken, one, 60)
            told["now"] = "1.5"
            await until(lambda: metric_of(one, "EXCEPTION") > 0, one)
            assert metric(one, "kvota_produce_factor") == 0.5
            told["now"] = "1"
            await until(lambda: metric(one, "kvota_produce_factor") == 1, one)


def metric_of(one: GatewayProcess, status: str) -> float:
    return metric(one, f'kvota_volume_looks_total{{status="{status}"}}')


async def test_volumes_that_a_file_tells_are_judged_by_the_limits(
    kafka: LocalKafka, folder: Path
) -> None:
    file = folder / "disks.json"

    def tell(free: int) -> None:
        replace(file, json.dumps([{"broker": 1, "dir": "/data", "total": 1000, "free": free}]))

    tell(500)
    ratio = f"{PREFIX}.storage.perVolumeLimit.availableRatioBelow"
    settings = {SOURCE: "my_disks.VolumesFromFile", f"{SOURCE}.file": str(file)}
    settings |= {f"{ratio}.hard": "0.05", f"{ratio}.soft": "0.25"}
    with gateway(kafka, folder, **settings) as one:
        await until(lambda: metric_of(one, "SUCCESS") > 0, one)
        tell(150)
        await until(lambda: "-> 0.50: broker 1 /data has 150 of 1000 bytes" in one.log, one)
        tell(50)
        await until(lambda: "-> 0.00: broker 1 /data has 50 of 1000 bytes" in one.log, one)
        assert not await asyncio.to_thread(is_taken, one, 2)


def test_the_settings_on_the_page_are_read(
    folder: Path, kafka: LocalKafka, capfd: pytest.CaptureFixture[str]
) -> None:
    sys.path.insert(0, str(folder))
    try:
        for number, text in enumerate(SETTINGS):
            file = folder / f"gateway-{number}.toml"
            file.write_text(
                f'[upstream]\nbootstrap_servers = ["{kafka.bootstrap_servers}"]\n'
                f'[quotas]\nfile = "gw.toml"\n[quotas.PRODUCE]\nenforce = true\n{text}'
            )
            (folder / "gw.toml").write_text("")
            assert main(["gateway", "-c", str(file), "--check"]) == 0
            said = capfd.readouterr().out
            assert "volumes: asked once, and EXCEPTION: my_" in said
    finally:
        sys.path.remove(str(folder))
