"""The disks under log directories of this machine."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from kvota.volumes import Observation, Status, Volume


def _nobody(_log_dir: str) -> None: ...


def observe_local(
    log_dirs: Iterable[str], *, broker_id: int = -1, begins: Callable[[str], None] = _nobody
) -> Observation:
    """Look at each file system under these directories, once, however many of them it holds.

    A directory that is not there is counted in ``dropped``, as Strimzi's first generation skips it. A file system that
    has lost its server may have this wait for ever; ``begins`` is told each directory before it is looked at.
    """
    volumes: list[Volume] = []
    seen: set[int] = set()
    dropped = 0
    for log_dir in log_dirs:
        begins(log_dir)
        try:
            device = Path(log_dir).stat().st_dev
            sizes = os.statvfs(log_dir)
        except FileNotFoundError:
            dropped += 1
            continue
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            reason = f"{log_dir}: {getattr(error, 'strerror', None) or error}"
            return Observation(status=Status.LOCAL_ERROR, dropped=dropped, reason=reason)
        if device in seen:
            continue
        seen.add(device)
        volumes.append(
            Volume(
                broker_id=broker_id,
                log_dir=log_dir,
                total_bytes=sizes.f_blocks * sizes.f_frsize,
                available_bytes=sizes.f_bavail * sizes.f_frsize,
                device=f"{os.major(device)}:{os.minor(device)}",
            )
        )
    if not volumes:
        return Observation(
            status=Status.LOCAL_ERROR,
            dropped=dropped,
            reason="none of the log directories is there",
        )
    return Observation(status=Status.SUCCESS, volumes=tuple(volumes), dropped=dropped)
