"""Sources of one's own: what they answer, and that nothing they do reaches the gateway."""

import asyncio
import sys
import threading
from pathlib import Path

import pytest

from kvota.app import own_source
from kvota.app.own_source import OwnSource, load_own_source
from kvota.model.errors import ConfigurationError
from kvota.volumes import Observation, Status, Volume
from kvota.volumes.settings import FACTOR_SOURCE, SOURCE, read_volume_settings

HARD = "client.quota.callback.static.storage.perVolumeLimit.availableBytesBelow.hard"
MODULE = """
import threading
from kvota.volumes import Volume

GATE = threading.Event()
CLOSED = []
CALLS = []

class Good:
    def configure(self, properties):
        self.told = float(properties.get("told", "0.5"))
    def factor(self):
        return self.told
    def close(self):
        CLOSED.append(threading.current_thread().name)

class Bare:
    def factor(self):
        return 1

class Raises:
    def factor(self):
        raise OSError("no such host")  # of raising

class Leaves:
    def factor(self):
        raise SystemExit(3)

class Hangs:
    def factor(self):
        CALLS.append(1)
        GATE.wait(60)  # of hanging
        return 0.25

class Told:
    def factor(self):
        return ANSWER

class Disks:
    def volumes(self):
        return DISKS

class Endless:
    def volumes(self):
        number = 0
        while True:
            number += 1
            yield Volume(broker_id=1, log_dir=f"/{number}", total_bytes=9, available_bytes=9)

class FailsHalfway:
    def volumes(self):
        yield Volume(broker_id=1, log_dir="/d", total_bytes=9, available_bytes=9)
        raise KeyError("dir")

class NoMethod:
    pass

class Unmade:
    def __init__(self):
        raise RuntimeError("not today")  # of making
    def factor(self):
        return 1

class Unconfigured(Good):
    def configure(self, properties):
        raise ValueError("told: is no number")

class Slow(Good):
    def configure(self, properties):
        GATE.wait(60)  # of configuring
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Its module, imported as anybody's."""
    (tmp_path / "own_of_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("own_of_test", None)
    return __import__("own_of_test")


def load(name: str, **further: str) -> OwnSource:
    properties = {FACTOR_SOURCE: f"own_of_test.{name}"}
    properties |= {f"{FACTOR_SOURCE}.{key}": value for key, value in further.items()}
    settings, faults = read_volume_settings(properties)
    assert faults == []
    return load_own_source(settings)


def load_disks(name: str) -> OwnSource:
    settings, faults = read_volume_settings({SOURCE: f"own_of_test.{name}", HARD: "5"})
    assert faults == []
    return load_own_source(settings)


async def looked(source: OwnSource, timeout_s: float = 20.0) -> Observation:
    try:
        return await source.observe(timeout_s)
    finally:
        await source.close()


@pytest.mark.parametrize(("name", "told", "factor"), [("Good", "0.25", 0.25), ("Bare", "x", 1.0)])
async def test_a_factor_is_told(module: object, name: str, told: str, factor: float) -> None:
    assert await looked(load(name, told=told)) == Observation(status=Status.SUCCESS, factor=factor)


async def test_it_is_closed_on_its_own_thread(module: object) -> None:
    await looked(load("Good"))

    assert module.CLOSED == ["kvota-own-source"]  # type: ignore[attr-defined]


async def test_what_it_raises_is_a_look_that_failed_with_its_line(
    module: object, tmp_path: Path
) -> None:
    line = 1 + MODULE.splitlines().index('        raise OSError("no such host")  # of raising')

    found = await looked(load("Raises"))

    assert found.status is Status.EXCEPTION
    assert found.reason == (
        f"own_of_test.Raises raises OSError: no such host ({tmp_path / 'own_of_test.py'}:{line})"
    )


async def test_it_cannot_end_the_process(module: object) -> None:
    found = await looked(load("Leaves"))

    assert (found.status, "SystemExit" in found.reason) == (Status.EXCEPTION, True)


async def test_zero_has_no_sign(module: object) -> None:
    module.ANSWER = -0.0  # type: ignore[attr-defined]

    assert str((await looked(load("Told"))).factor) == "0.0"


@pytest.mark.parametrize("answer", ["-0.1", "1.1", "float('nan')", "True", "None", "'1'", "1e400"])
async def test_what_is_no_factor(module: object, answer: str) -> None:
    module.ANSWER = eval(answer)  # type: ignore[attr-defined]

    found = await looked(load("Told"))

    assert found.status is Status.EXCEPTION
    assert "not a number from 0 to 1" in found.reason


def disks(**other: object) -> list[object]:
    given: dict[str, object] = {"broker_id": 1, "log_dir": "/d", "total_bytes": 9}
    return [Volume(**({"available_bytes": 3} | given | other))]  # type: ignore[arg-type]


SIZES = "0 <= available_bytes <= total_bytes"
A_VOLUME = "a kvota.volumes.Volume"


NO_VOLUMES = {
    "less than nothing is available": (disks(available_bytes=-1), SIZES),
    "more than there is": (disks(available_bytes=10), SIZES),
    "a size beyond a long": (disks(total_bytes=2**63), SIZES),
    "half a byte": (disks(total_bytes=9.5), SIZES),
    "a broker below -1": (disks(broker_id=-2), A_VOLUME),
    "a broker's id as text": (disks(broker_id="1"), A_VOLUME),
    "a path of 5,000 characters": (disks(log_dir="/" * 5_000), A_VOLUME),
    "half a surrogate pair": (disks(log_dir="\ud800"), A_VOLUME),
    "one twice": (disks() * 2, "each log directory of a broker once"),
    "none": ([], "at least one volume"),
    "a number": (5, "not volumes"),
    "a text": (["/d"], A_VOLUME),
}


@pytest.mark.parametrize(("told", "said"), NO_VOLUMES.values(), ids=NO_VOLUMES)
async def test_what_are_no_volumes(module: object, told: object, said: str) -> None:
    module.DISKS = told  # type: ignore[attr-defined]

    found = await looked(load_disks("Disks"))

    assert (found.status, found.volumes) == (Status.EXCEPTION, ())
    assert said in found.reason
    assert len(found.reason) < 500


@pytest.mark.parametrize(
    ("name", "said"), [("Endless", "at most 10000 volumes"), ("FailsHalfway", "KeyError: 'dir'")]
)
async def test_volumes_that_come_one_by_one(module: object, name: str, said: str) -> None:
    assert said in (await looked(load_disks(name))).reason


async def test_volumes_are_looked_at(module: object) -> None:
    module.DISKS = disks()  # type: ignore[attr-defined]

    found = await looked(load_disks("Disks"))

    assert (found.status, found.volumes, found.broker_ids) == (
        Status.SUCCESS,
        tuple(module.DISKS),  # type: ignore[attr-defined]
        [1],
    )


async def test_one_that_hangs_takes_one_thread_and_recovers(module: object, tmp_path: Path) -> None:
    source = load("Hangs")
    threads = threading.active_count()
    line = 1 + MODULE.splitlines().index("        GATE.wait(60)  # of hanging")

    # The first look is long enough for the thread to be where it hangs.
    found = [await source.observe(seconds) for seconds in (1.0, 0.05, 0.05, 0.05, 0.05)]

    assert {each.status for each in found} == {Status.SAFETY_TIMEOUT}
    assert found[-1].reason.endswith(f"({tmp_path / 'own_of_test.py'}:{line})")
    assert len(module.CALLS) == 1  # type: ignore[attr-defined]
    assert threading.active_count() <= threads
    module.GATE.set()  # type: ignore[attr-defined]
    async with asyncio.timeout(20):
        while not (found_now := await source.observe(5)).succeeded:
            pass
    assert found_now.factor == 0.25
    assert len(module.CALLS) == 2  # type: ignore[attr-defined]  # the late answer was of no look
    await source.close()


@pytest.mark.parametrize(
    ("name", "place", "said"),
    [
        ("NoMethod", FACTOR_SOURCE, "own_of_test.NoMethod has no method factor"),
        ("Nobody", FACTOR_SOURCE, "own_of_test has no class Nobody"),
        ("Unmade", "own_of_test.py:", "own_of_test.Unmade() fails: RuntimeError: not today"),
        ("Unconfigured", f"{FACTOR_SOURCE}.told", "is no number"),
        ("Slow", "own_of_test.py:", "has not been made and configured within 1.5 s"),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_its_place(
    module: object, monkeypatch: pytest.MonkeyPatch, name: str, place: str, said: str
) -> None:
    if name == "Slow":
        monkeypatch.setattr(own_source, "LOAD_S", 1.5)

    with pytest.raises(ConfigurationError) as refused:
        load(name, told="1")

    (fault,) = refused.value.faults
    assert place in fault.place
    assert said in fault.problem
    module.GATE.set()  # type: ignore[attr-defined]


def test_a_module_that_is_not_there_is_refused() -> None:
    settings, _ = read_volume_settings({FACTOR_SOURCE: "no_such_module_at_all.Factor"})

    with pytest.raises(ConfigurationError, match="be on PYTHONPATH"):
        load_own_source(settings)
