"""A callback that fails or hangs before it is one: nobody waits for ever, and the line is said."""

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.gateway.world import until

from kvota.callbacks import ChosenCallback, ClientQuotaCallback, own_module
from kvota.gateway import callback_loading
from kvota.gateway.callback_loading import CallbackLoading
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import ConfigurationError
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType

QUOTAS = ConfiguredQuotas({QuotaEntity(user="alice"): {QuotaType.PRODUCE: 1000.0}})
# Each class has one line where it does what ``trouble`` does.
MODULE = """
import threading
from kvota.callbacks import ClientQuotaCallback, DefaultQuotaCallback
GATE, BEGUN, CLOSED = threading.Event(), threading.Event(), []

class Unspeakable(Exception):
    def __str__(self):
        raise RecursionError
    __repr__ = __str__

def hangs():
    BEGUN.set(); GATE.wait(60)  # hangs
def exits():
    raise SystemExit(0)
def interrupts():
    raise KeyboardInterrupt
def unspeakable():
    raise Unspeakable

class Good(ClientQuotaCallback):
    def configure(self, properties):
        self.taken = [properties.popitem() for _ in list(properties)]
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
    def close(self):
        CLOSED.append(type(self).__name__)

class Made(Good):
    def __init__(self):
        trouble()  # Made
class Derived(DefaultQuotaCallback):
    def __init__(self, quotas):
        trouble()  # Derived
class Configured(Good):
    def configure(self, properties):
        trouble()  # Configured
class Told(Good):
    def update_quota(self, quota_type, entity, limit):
        trouble()  # Told
class BadlyClosed(Configured):
    def close(self):
        super().close()
        raise SystemExit("enough")
"""
AT_IMPORT = MODULE + "trouble()  # Imported\nclass Imported(Good):\n    pass\n"
# What fails has so long to say so; and what hangs, once it does.
LOAD_S, HANGING_S = 60.0, 0.2
NAMES = ("Imported", "Made", "Derived", "Configured", "Told")
TROUBLES = ("hangs", "exits", "interrupts", "unspeakable")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(callback_loading, "LOAD_S", LOAD_S)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    module = sys.modules.get("loaded_quotas")
    if module is not None:
        module.GATE.set()
    for thread in threading.enumerate():
        if thread.name == "kvota-callback-load":  # the next test has another module of this name
            thread.join(10)
    sys.modules.pop("loaded_quotas", None)
    own_module._imported.pop("loaded_quotas", None)


def loading(folder: Path, name: str, trouble: str) -> CallbackLoading:
    text = AT_IMPORT if name == "Imported" else MODULE
    (folder / "loaded_quotas.py").write_text(text.replace("trouble()", f"{trouble}()"))
    return CallbackLoading(ChosenCallback(f"loaded_quotas.{name}"), QUOTAS)


def hanging(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> CallbackLoading:
    """The same, in the line that hangs; it is not waited for much longer."""
    loading_one = loading(folder, name, "hangs")
    until_s = time.monotonic() + 10
    while "BEGUN" not in vars(sys.modules.get("loaded_quotas", object)):
        assert time.monotonic() < until_s
        time.sleep(0.005)
    assert sys.modules["loaded_quotas"].BEGUN.wait(10)
    monkeypatch.setattr(callback_loading, "LOAD_S", HANGING_S)
    return loading_one


def line_of(name: str, comment: str) -> str:
    text = AT_IMPORT if name == "Imported" else MODULE
    numbers = [n for n, line in enumerate(text.splitlines(), 1) if line.endswith(f"# {comment}")]
    return f"loaded_quotas.py:{numbers[0]}"


@pytest.mark.parametrize("name", NAMES)
def test_what_hangs_is_a_fault_with_its_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        hanging(folder, name, monkeypatch).result()

    (fault,) = refused.value.faults
    assert fault.place.endswith(line_of(name, "hangs"))
    assert f"has not been made and configured within {HANGING_S:g} s" in fault.problem


@pytest.mark.parametrize("trouble", TROUBLES[1:])
@pytest.mark.parametrize("name", NAMES)
def test_whatever_goes_wrong_is_a_fault_with_its_line(
    folder: Path, name: str, trouble: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        loading(folder, name, trouble).result()

    (fault,) = refused.value.faults
    words = {"exits": "SystemExit: 0", "interrupts": "KeyboardInterrupt: "}
    expected = words.get(trouble, "its text cannot be had: RecursionError")
    assert expected in fault.problem
    assert "loaded_quotas.py:" in fault.place


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_loop_goes_on_meanwhile(
    folder: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    hangs = trouble == "hangs"
    made = hanging(folder, "Told", monkeypatch) if hangs else loading(folder, "Told", trouble)
    waiting = asyncio.ensure_future(made.wait())
    turns = 0
    while not waiting.done():
        turns += 1
        await asyncio.sleep(0)

    assert isinstance(waiting.exception(), ConfigurationError)
    assert turns > 1


@pytest.mark.parametrize("name", ["Configured", "BadlyClosed"])
async def test_one_that_comes_too_late_is_closed(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    late = hanging(folder, name, monkeypatch)
    with pytest.raises(ConfigurationError):
        await late.wait()
    assert late.is_running

    module = sys.modules["loaded_quotas"]
    module.GATE.set()

    await until(lambda: not late.is_running)
    assert list(module.CLOSED) == [name]
    said = "the quota callback BadlyClosed failed in close"
    assert (said in caplog.text) == (name == "BadlyClosed")


async def test_who_is_not_waited_for_any_more_is_closed(folder: Path) -> None:
    late = loading(folder, "Configured", "hangs")
    waiting = asyncio.ensure_future(late.wait())
    await asyncio.sleep(0)  # it waits
    await until(lambda: hasattr(sys.modules.get("loaded_quotas"), "Configured"))
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    module = sys.modules["loaded_quotas"]
    module.GATE.set()

    await until(lambda: module.CLOSED == ["Configured"])


def test_one_that_takes_its_properties_apart_changes_nobodys(folder: Path) -> None:
    properties = {"client.quota.callback.a": "1", "client.quota.callback.b": "2"}
    chosen = ChosenCallback("loaded_quotas.Good", properties)
    (folder / "loaded_quotas.py").write_text(MODULE)

    callback: ClientQuotaCallback = CallbackLoading(chosen, QUOTAS).result()

    assert dict(callback.taken) == properties  # type: ignore[attr-defined]
    assert len(chosen.properties) == 2
