"""The disks of this machine while one of them has lost its server: a look ends, and takes no further thread."""

import asyncio
import os
import threading
from pathlib import Path

import pytest

from kvota.app.local_disks import LocalDisks
from kvota.files import log_dirs
from kvota.volumes import Status

# Long enough that the thread has begun, on any machine.
_PATIENT_S = 30.0


class Lost:
    """A file system that answers when its server is back, in place of ``os.statvfs``."""

    def __init__(self) -> None:
        self.looks = 0
        self.is_back = threading.Event()

    def statvfs(self, path: str) -> os.statvfs_result:
        self.looks += 1
        assert self.is_back.wait(_PATIENT_S)
        return _statvfs(path)


_statvfs = os.statvfs


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> Lost:
    one = Lost()
    monkeypatch.setattr(log_dirs.os, "statvfs", one.statvfs)
    return one


async def test_a_file_system_that_hangs_fails_looks_and_takes_one_thread(
    lost: Lost, tmp_path: Path
) -> None:
    disks = LocalDisks([str(tmp_path)])
    threads = threading.active_count()

    # The first one waits until the thread is there.
    failed = [await disks.observe(seconds) for seconds in (1.0, 0.05, 0.05, 0.05, 0.05)]

    assert {one.status for one in failed} == {Status.SAFETY_TIMEOUT}
    assert f"{tmp_path}: its file system has not answered for " in failed[-1].reason
    assert threading.active_count() <= threads  # another test's may have ended
    assert lost.looks == 1

    lost.is_back.set()
    while not (found := await disks.observe(_PATIENT_S)).succeeded:  # noqa: ASYNC110  (the one that hung may be ending)
        await asyncio.sleep(0.01)
    assert [one.log_dir for one in found.volumes] == [str(tmp_path)]
    assert lost.looks == 2  # none has waited behind the one that hung
    disks.close()


async def test_the_end_waits_for_none_that_hangs(lost: Lost, tmp_path: Path) -> None:
    disks = LocalDisks([str(tmp_path)])
    await disks.observe(0.01)

    disks.close()

    (thread,) = [one for one in threading.enumerate() if one.name == "kvota-log-dirs"]
    assert thread.daemon
    lost.is_back.set()
    thread.join(_PATIENT_S)
    assert not thread.is_alive()


async def test_whatever_it_raises_is_a_look_that_has_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def raising(path: str) -> os.statvfs_result:
        raise RuntimeError(path)

    monkeypatch.setattr(log_dirs.os, "statvfs", raising)
    disks = LocalDisks([str(tmp_path)])

    found = await disks.observe(_PATIENT_S)

    assert (found.status, str(tmp_path) in found.reason) == (Status.LOCAL_ERROR, True)
    disks.close()
