"""Disks of a stated size for real brokers, and somebody else who takes room on them."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvota.files.log_dirs import observe_local


@contextlib.contextmanager
def small_disks(folder: Path, nodes: int, size_bytes: int) -> Iterator[list[Path]]:
    """The data folders of so many nodes, each a file system of its own; skips where none may be mounted."""
    disks = [folder / f"node-{node_id}" / "data" for node_id in range(1, nodes + 1)]
    with contextlib.ExitStack() as stack:
        for disk in disks:
            disk.mkdir(parents=True)
            mounted = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(disk)],
                capture_output=True,
                text=True,
                check=False,
            )
            if mounted.returncode:
                pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
            stack.callback(_unmount, disk)
        yield disks


def _unmount(disk: Path) -> None:
    subprocess.run(["umount", "--lazy", str(disk)], check=True)
    shutil.rmtree(disk, ignore_errors=True)


def available(disk: Path) -> int:
    """Bytes that are still to be had."""
    return observe_local([str(disk)]).volumes[0].available_bytes


@contextlib.contextmanager
def taken_by_others(disk: Path, leaving_bytes: int) -> Iterator[None]:
    """Somebody else's file takes all but so much of a disk, until the block ends."""
    file = disk.parent / "data" / "somebody-elses.bin"
    with file.open("wb") as out:
        block = bytes(1 << 20)
        while (left := available(disk) - leaving_bytes) > 0:
            out.write(block[:left])
            out.flush()
    try:
        yield
    finally:
        file.unlink()
