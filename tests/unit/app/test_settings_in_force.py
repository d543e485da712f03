"""Settings that are stored and cannot be in force: said once, tried again, and in force as soon as they can be."""

import asyncio
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.unit.gateway.world import World, until

from kvota.app import settings_in_force as module
from kvota.app.cli.main import main
from kvota.app.config import read_config
from kvota.app.settings_in_force import SettingsInForce, begin_with
from kvota.callbacks import own_module
from kvota.gateway import callback_loading
from kvota.model.broker_settings import Settings
from kvota.model.errors import ConfigurationError
from kvota.store.file_store import FileStore
from kvota.store.quota_document import QuotaDocument

CLASS, NUM = "client.quota.callback.class", "quota.window.num"
MINE = "kept_quotas.Mine"
STORED: Settings = {CLASS: MINE, NUM: "5"}
GOOD = """
import threading
from kvota.callbacks import ClientQuotaCallback
GATE = threading.Event()

class Mine(ClientQuotaCallback):
    def configure(self, properties):
        pass  # here
    def quota_metric_tags(self, quota_type, user, client_id):
        return {}
    def quota_limit(self, quota_type, tags):
        return 5.0
    def update_quota(self, quota_type, entity, limit):
        pass
    def remove_quota(self, quota_type, entity):
        pass
    def quota_reset_required(self, quota_type):
        return False
"""
FAILS = GOOD.replace("pass  # here", 'raise OSError("no directory")')
HANGS = GOOD.replace("pass  # here", "GATE.wait(60)  # here")
NOT_IN_FORCE = "the settings that are set dynamically are not in force: "
log = logging.getLogger(__name__)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(module, "_RETRY_S", 0.02)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "gateway.toml").write_text(
        '[upstream]\nbootstrap_servers = ["127.0.0.1:9"]\n[http]\nenabled = false\n'
        f'[quotas]\nsource = "file"\ncallback_classes = ["{MINE}"]\n'
    )
    (tmp_path / "quotas.json").write_bytes(QuotaDocument(settings=STORED).content())
    yield tmp_path
    loaded = sys.modules.get("kept_quotas")
    if loaded is not None:
        loaded.GATE.set()
    for thread in threading.enumerate():
        if thread.name == "kvota-callback-load":  # the next test has another module of this name
            thread.join(10)
    sys.modules.pop("kept_quotas", None)
    own_module._imported.pop("kept_quotas", None)


@asynccontextmanager
async def following(folder: Path, settings: list[SettingsInForce]):  # type: ignore[no-untyped-def]
    """A gateway that has begun with what is stored, as far as it could, and follows it."""
    config, faults = read_config(folder / "gateway.toml")
    assert faults == []
    store = FileStore(folder / "quotas.json")
    running, callback = begin_with(config, store)
    async with World(callback=callback) as world:
        settings.append(SettingsInForce(running, world.gateway, store))
        task = asyncio.ensure_future(settings[0].follow())
        try:
            yield world
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await store.end()


def in_force(world: World) -> str:
    return type(world.gateway.quota_callback.callback).__name__


@pytest.mark.parametrize("begins_with", ["", FAILS, "1 / 0", "raise SystemExit(3)", HANGS])
async def test_what_could_not_be_in_force_is_tried_again_and_said_once(
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    begins_with: str,
) -> None:
    caplog.set_level("INFO")
    if begins_with == HANGS:
        monkeypatch.setattr(callback_loading, "LOAD_S", 1.5)
    path = folder / "kept_quotas.py"
    if begins_with:
        path.write_text(begins_with)
    async with following(folder, []) as world:
        assert in_force(world) == "DefaultQuotaCallback"
        await asyncio.sleep(0.3)
        assert in_force(world) == "DefaultQuotaCallback"
        before = [text for text in caplog.messages if text.startswith(NOT_IN_FORCE)]

        path.write_text(GOOD)
        if begins_with == HANGS:  # nobody tries while one hangs
            sys.modules["kept_quotas"].GATE.set()

        await until(lambda: in_force(world) == "Mine")
    assert len(before) == 1
    assert "They are tried again" in before[0]
    assert f"other settings are in force now: {CLASS}, {NUM}" in caplog.messages


async def test_nobody_tries_while_one_hangs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callback_loading, "LOAD_S", 0.6)
    (folder / "kept_quotas.py").write_text(HANGS)
    settings: list[SettingsInForce] = []
    async with following(folder, settings) as world:
        quota_callback = world.gateway.quota_callback
        await until(lambda: quota_callback.is_loading)
        await asyncio.sleep(0.9)  # longer than it is waited for
        hanging = quota_callback._loading
        await asyncio.sleep(0.3)

        assert quota_callback._loading is hanging
        # Nor does anybody wait for it who wants something else.
        async with asyncio.timeout(0.1):
            await quota_callback.changing.acquire()
        quota_callback.changing.release()


async def test_another_cause_is_said_too(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = folder / "kept_quotas.py"
    path.write_text(FAILS)
    async with following(folder, []):
        # In one step: half a file would be a third cause.
        (folder / "other.py").write_text(FAILS.replace("directory", "network"))
        (folder / "other.py").replace(path)

        await until(lambda: "no network" in caplog.text)
        await asyncio.sleep(0.1)

    said = [text for text in caplog.messages if text.startswith(NOT_IN_FORCE)]
    assert len(said) == 2


async def test_a_file_whose_callback_hangs_is_said_with_its_lines_and_the_gateway_does_not_run(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback_loading, "LOAD_S", 1.5)
    path = folder / "gateway.toml"
    path.write_text(path.read_text() + f'[kafka]\n"{CLASS}" = "{MINE}"\n')
    (folder / "kept_quotas.py").write_text(HANGS)
    config, _ = read_config(path)
    store = FileStore(folder / "quotas.json")

    with pytest.raises(ConfigurationError, match=f"{MINE} has not been made and configured within"):
        begin_with(config, store)
    await store.end()
    assert main(["gateway", "-c", str(path), "--check"]) == 2

    line = HANGS.splitlines().index("        GATE.wait(60)  # here") + 1
    said = f"kept_quotas.py:{line}: {MINE} has not been made and configured within"
    assert said in capsys.readouterr().err
