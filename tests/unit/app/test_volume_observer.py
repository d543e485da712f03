"""Who looks at volumes, and for how long: the disks of this machine, and how long an answer is waited for."""

import os
from pathlib import Path

import pytest

from kvota.app.config import load_files
from kvota.app.gateway_process import gateway_toml
from kvota.app.volume_observer import VolumeObserver
from kvota.files.log_dirs import observe_local
from kvota.volumes import Observation, Status
from kvota.volumes.settings import CHECK_INTERVAL, FACTOR_SOURCE


class Patient:
    """Notes for how long it is waited for."""

    waited_s = 0.0

    async def observe(self, timeout_s: float) -> Observation:
        self.waited_s = timeout_s
        return Observation(status=Status.SUCCESS, factor=1.0)


@pytest.mark.parametrize(("interval_s", "timeout_s"), [(1, 5.0), (5, 5.0), (6, 5.0), (60, 59.0)])
async def test_an_answer_is_waited_for(interval_s: int, timeout_s: float, tmp_path: Path) -> None:
    (tmp_path / "quotas.toml").write_text("")
    kafka: dict[str, int | str] = {CHECK_INTERVAL: interval_s, FACTOR_SOURCE: "my.Factor"}
    (tmp_path / "gateway.toml").write_text(gateway_toml(upstream="127.0.0.1:1", kafka=kafka))
    config, _ = load_files(tmp_path / "gateway.toml")
    patient = Patient()

    await VolumeObserver(config, patient).observe()  # type: ignore[arg-type]

    assert patient.waited_s == timeout_s


def test_a_file_system_counts_once_however_many_log_directories_it_holds(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()

    found = observe_local([str(tmp_path / name) for name in ("a", "b", "missing")])

    (one,) = found.volumes
    assert (found.status, found.dropped, one.log_dir) == (Status.SUCCESS, 1, str(tmp_path / "a"))
    sizes = os.statvfs(tmp_path)
    # What an ordinary user may take: the reserve of root counts as used. Others write to this disk, too.
    assert one.total_bytes == sizes.f_blocks * sizes.f_frsize
    if sizes.f_bavail != sizes.f_bfree:
        reserve_bytes = (sizes.f_bfree - sizes.f_bavail) * sizes.f_frsize
        assert one.available_bytes < sizes.f_bfree * sizes.f_frsize - reserve_bytes / 2


def test_no_log_directory_at_all_is_a_look_that_has_failed(tmp_path: Path) -> None:
    found = observe_local([str(tmp_path / "missing")])

    assert (found.status, found.volumes) == (Status.LOCAL_ERROR, ())
