"""SIGHUP and the quota callback: another one, other properties, another file; or none of it, and why."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvota.app.gateway_process import GatewayProcess, free_port_range, gateway_toml

pytestmark = pytest.mark.timeout(150)

MODULE = """\
from kvota.callbacks import ClientQuotaCallback

class Own(ClientQuotaCallback):
    def configure(self, properties):
        print("configured", dict(properties), flush=True)
    def quota_metric_tags(self, quota_type, user, client_id):
        return {}
    def quota_limit(self, quota_type, tags):
        return 5.0
    def update_quota(self, quota_type, entity, limit):
        print("told", quota_type, entity, limit, flush=True)
    def remove_quota(self, quota_type, entity):
        pass
    def quota_reset_required(self, quota_type):
        return False
    def close(self):
        print("closed", flush=True)
"""
QUOTAS = '[[quota]]\nuser = "a"\nproducer_byte_rate = 1000\n'
CLASS = "client.quota.callback.class"


def config(first_port: int, **kafka: str) -> str:
    return gateway_toml(upstream="127.0.0.2:9", first_port=first_port, node_ids="1", kafka=kafka)


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GatewayProcess]:
    (tmp_path / "reloaded_quotas.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    port = free_port_range(3)
    process = GatewayProcess(tmp_path, config=config(port), quotas=QUOTAS)
    process.port = port  # type: ignore[attr-defined]
    with process:
        yield process


def change(gateway: GatewayProcess, **kafka: str) -> str:
    """Reload with these settings; returns what was logged for it."""
    before = len(gateway.log)
    gateway.reload(QUOTAS, config(gateway.port, **kafka))  # type: ignore[attr-defined]
    return gateway.log[before:]


def closings(gateway: GatewayProcess, at_least: int) -> int:
    """How often ``close`` has been called: a thread of the callback's does it after the reload."""
    end = time.monotonic() + 30
    while gateway.log.count("closed") < at_least and time.monotonic() < end:
        time.sleep(0.02)
    return gateway.log.count("closed")


def test_another_class_other_properties_and_another_file_are_taken_over(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    own = {CLASS: "reloaded_quotas.Own"}

    said = change(gateway, **own)
    assert "SIGHUP: quota callback: kvota.callbacks.DefaultQuotaCallback -> reloaded_quotas.Own" in said  # fmt: skip
    assert "the quota callback is reloaded_quotas.Own now" in said
    assert "configured {}" in said
    assert "told PRODUCE user-principal 'a' 1000.0" in said

    assert "SIGHUP: nothing has changed" in change(gateway, **own)

    said = change(gateway, **own, **{"client.quota.callback.my.secret": "s3cret"})
    assert "reloaded_quotas.Own has other properties: client.quota.callback.my.secret" in said
    assert "s3cret" not in said.replace("configured {'client.quota.callback.my.secret': 's3cret'}", "")  # fmt: skip
    assert closings(gateway, 1) == 1

    (tmp_path / "reloaded_quotas.py").write_text(MODULE.replace('"configured"', '"made anew"'))
    said = change(gateway, **own, **{"client.quota.callback.my.secret": "s3cret"})
    assert "quota callback: the file of reloaded_quotas.Own was read again" in said
    assert "made anew" in said
    assert closings(gateway, 2) == 2

    assert gateway.stop() == 0
    assert gateway.log.count("closed") == 3


def test_one_that_cannot_be_had_leaves_everything_as_it_is_and_is_said_with_its_line(
    gateway: GatewayProcess,
) -> None:
    before = len(gateway.log)
    bad = config(gateway.port, **{CLASS: "reloaded_quotas.Owm"})  # type: ignore[attr-defined]

    gateway.reload("", bad)

    said = gateway.log[before:]
    line = bad.splitlines().index(f'"{CLASS}" = "reloaded_quotas.Owm"') + 1
    assert f"SIGHUP: what is in force stays as it is. gateway.toml:{line}: kafka." in said
    assert "reloaded_quotas has no Owm" in said
    assert "none" not in said  # the quotas of the same reload are not taken over either
    assert gateway.running
