"""Looks at the volumes of a gateway: validity is judged by time that has passed, whatever the wall clock says."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from kvota.app.config import load_files
from kvota.app.gateway_process import gateway_toml
from kvota.app.watch_volumes import watch_volumes
from kvota.testing.stage import Cluster
from kvota.volumes import Status, VolumeThrottle
from kvota.volumes.settings import (
    CHECK_INTERVAL_ISO,
    FALLBACK,
    HARD_USED,
    LOG_DIRS,
    VALIDITY,
)

DAY_NS = 86_400 * 10**9
PATIENCE_S = 20.0


@contextlib.asynccontextmanager
async def watched(folder: Path, validity: str) -> AsyncIterator[VolumeThrottle]:
    """What full disks make of the limits of a gateway that looks at its own, 50 times a second."""
    file = folder / "gateway.toml"
    (folder / "quotas.toml").write_text("")
    (folder / "data").mkdir()
    kafka: dict[str, int | str] = {
        LOG_DIRS: str(folder / "data"),
        HARD_USED: 2**62,
        CHECK_INTERVAL_ISO: "PT0.02S",
        VALIDITY: validity,
        FALLBACK[0]: "0.25",
    }
    file.write_text(
        gateway_toml(
            upstream="127.0.0.1:1", enforce={"PRODUCE": True}, kafka=kafka, record="record"
        )
    )
    config, _ = load_files(file)
    gateway: Any = SimpleNamespace(
        shared=Cluster().shared, look_again_at_paused=lambda: None, volume_throttle=None
    )
    started = asyncio.Event()
    started.set()
    task = asyncio.create_task(watch_volumes(config, gateway, "run", None, started))
    try:
        async with asyncio.timeout(PATIENCE_S):
            while gateway.volume_throttle is None or not gateway.volume_throttle.volumes:  # noqa: ASYNC110  (nothing tells)
                await asyncio.sleep(0.01)
        yield cast("VolumeThrottle", gateway.volume_throttle)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until_failed(throttle: VolumeThrottle, more: int) -> None:
    looks = throttle.looks[Status.LOCAL_ERROR]
    async with asyncio.timeout(PATIENCE_S):
        while throttle.looks[Status.LOCAL_ERROR] < looks + more:  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0.01)


def step(monkeypatch: pytest.MonkeyPatch, by_ns: int) -> None:
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + by_ns)


async def test_a_clock_that_is_set_forth_throws_no_good_factor_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(tmp_path, "PT5M") as throttle:
        step(monkeypatch, DAY_NS)
        (tmp_path / "data").rmdir()
        await until_failed(throttle, 3)

        assert (throttle.is_fallback, throttle.factor, throttle.remembered) == (False, 1.0, 1)


async def test_a_clock_that_is_set_back_keeps_no_stale_factor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched(tmp_path, "PT0.3S") as throttle:
        step(monkeypatch, -DAY_NS)
        (tmp_path / "data").rmdir()
        async with asyncio.timeout(PATIENCE_S):
            while not throttle.is_fallback:  # noqa: ASYNC110  (nothing tells)
                await asyncio.sleep(0.01)

        assert (throttle.factor, throttle.remembered) == (0.25, 0)
    # The record has the wall clock's time, as all records.
    (*_, last) = sorted((tmp_path / "record" / "_volumes").glob("*.parquet"))
    assert pq.read_table(last).num_rows
