"""What a gateway tells who has started it (sd_notify), and its log as JSON: a real process, no broker behind it."""

import json
import os
import socket
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.app.service_manager import ServiceManager

JSON_LOG = '\n[log]\nformat = "json"\n'


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Listens as systemd does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(20)
        yield listening


def told(manager: socket.socket, beginning: str) -> str:
    """The next message that begins so; whatever else is told before it is dropped."""
    while True:
        message = manager.recv(4_096).decode()
        if message.startswith(beginning):
            return message


@pytest.mark.timeout(90)
def test_a_gateway_tells_that_it_is_ready_reloads_turns_and_stops(
    tmp_path: Path, manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    config = gateway_toml(upstream="127.0.0.1:9") + JSON_LOG
    with GatewayProcess(tmp_path / "gw", config=config, quotas="") as gateway:
        assert told(manager, "READY=1") == "READY=1"
        for _ in range(3):
            assert told(manager, "WATCHDOG=1") == "WATCHDOG=1"
        before_us = time.monotonic_ns() // 1_000
        gateway.reload('[[quota]]\nuser = "a"\nproducer_byte_rate = "1MB/s"\n')
        _, _, at_us = told(manager, "RELOADING=1").partition("\nMONOTONIC_USEC=")
        assert before_us <= int(at_us) <= time.monotonic_ns() // 1_000
        told(manager, "READY=1")
        gateway.stop()
        told(manager, "STOPPING=1")
        lines = [json.loads(line) for line in gateway.log.splitlines()]

    assert any(line["message"].startswith("ready: clients bootstrap") for line in lines)
    for line in lines:
        assert set(line) == {"time", "level", "logger", "message"}
        assert line["level"] in {"info", "warning", "error"}
        assert datetime.fromisoformat(line["time"]).tzinfo is not None


async def test_a_watchdog_of_another_process_is_not_ours(
    tmp_path: Path, manager: socket.socket
) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000"}

    await ServiceManager({**environment, "WATCHDOG_PID": str(os.getpid() + 1)}).watch()
    ServiceManager(environment).ready()

    assert manager.recv(100) == b"READY=1"


def test_abstract_names_are_understood_and_nobody_need_listen(
    caplog: pytest.LogCaptureFixture,
) -> None:
    name = f"kvota-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).stopping()
        assert listening.recv(100) == b"STOPPING=1"

    ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).stopping()
    ServiceManager({}).stopping()

    (warning,) = caplog.messages
    assert warning.startswith("the service manager cannot be told STOPPING=1: ")
