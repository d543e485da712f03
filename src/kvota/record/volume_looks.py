"""Looks at volumes are read back from a record, as the history of each volume."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kvota.model.errors import UnreachableError, UsageError
from kvota.record.period import ALWAYS, Period
from kvota.record.places import VOLUME_FOLDER, is_of_volumes, local_path
from kvota.volumes.observation import Status
from kvota.volumes.volume_history import VolumeHistory, one_per_device

_MINUTE_US = 60_000_000
_KEY = ("observer", "broker_id", "log_dir", "device")
_NUMBERS = ("ts_us", "total_bytes", "usable_bytes")
_COLUMNS = (*_KEY, *_NUMBERS, "status", "cached")

_Array = np.ndarray[Any, np.dtype[Any]]
# A volume: whose machine, or which broker, and which directory.
_Key = tuple[str, int | None, str]


@dataclass(frozen=True, slots=True)
class FoundLooks:
    """The looks of a record.

    Attributes:
        histories: of each device, one look a minute at most.
        bad: what is wrong with files that were left out, one sentence each.
        files: how many were read.
    """

    histories: Sequence[VolumeHistory]
    bad: Sequence[str]
    files: int


def find_looks(places: Sequence[Path | str], period: Period = ALWAYS) -> FoundLooks:
    """Read the looks at volumes that lie in folders of a record.

    Of what two gateways have seen of one broker there is one history.

    Raises:
        UsageError: a folder is not there, or not on this machine.
    """
    pieces: dict[_Key, list[tuple[_Array, ...]]] = {}
    devices: dict[_Key, str | None] = {}
    bad: list[str] = []
    files = 0
    for path in look_files(places):
        try:
            table = pq.read_table(path, columns=list(_COLUMNS), partitioning=None)
        except (OSError, KeyError, ValueError, pa.ArrowException) as error:
            if not path.exists():  # removed by the gateway meanwhile, because it was old
                continue
            bad.append(left_out(path, error))
            continue
        files += 1
        for key, device, numbers in _volumes(table, period):
            pieces.setdefault(key, []).append(numbers)
            devices[key] = device or devices.get(key)
    histories = [_history(key, devices[key], of_key) for key, of_key in pieces.items()]
    return FoundLooks(one_per_device(histories), bad, files)


def left_out(path: Path, error: Exception) -> str:
    """Say why a file was left out."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return f"{path}: cannot be read ({reason}); left out"


def look_files(places: Sequence[Path | str]) -> Iterator[Path]:
    """Name the files of looks in folders of a record.

    Raises:
        UsageError: a folder is not there, or not on this machine.
        UnreachableError: it cannot be looked into.
    """
    for place in dict.fromkeys(places):
        folder = local_path(place)
        if folder is None:
            msg = f'"{place}" is not on this machine, and looks at volumes are read from folders only; copy its {VOLUME_FOLDER}'
            raise UsageError(msg)
        if not folder.is_dir():
            msg = f"{folder}: there is no such folder. Name the one that the gateway records into ([record] folder)"
            raise UsageError(msg)
        looks = folder if folder.name == VOLUME_FOLDER else folder / VOLUME_FOLDER
        try:
            names = (
                sorted(path for path in looks.iterdir() if is_of_volumes(path.name))
                if looks.is_dir()
                else []
            )
        except OSError as error:
            msg = f"{looks}: {error.strerror}"
            raise UnreachableError(msg) from error
        yield from names


def _volumes(
    table: pa.Table, period: Period
) -> Iterator[tuple[_Key, str | None, tuple[_Array, ...]]]:
    """The last look of each minute at each volume that was seen."""
    seen = pc.and_kleene(
        pc.equal(table["status"], Status.SUCCESS.value), pc.invert(table["cached"])
    )
    inside = pc.and_(
        pc.greater_equal(table["ts_us"], period.since_us),
        pc.less_equal(table["ts_us"], period.until_us - 1),
    )
    has_size = pc.and_(pc.is_valid(table["log_dir"]), pc.greater(table["total_bytes"], 0))
    rows = table.filter(pc.and_kleene(pc.and_kleene(seen, inside), has_size))
    rows = rows.filter(pc.is_valid(rows["usable_bytes"]))
    names = zip(*(rows[name].to_pylist() for name in _KEY), strict=True)
    keys = [
        ((observer if broker_id is None else "", broker_id, log_dir), device)
        for observer, broker_id, log_dir, device in names
    ]
    places: dict[_Key, list[int]] = {}
    device_of: dict[_Key, str | None] = {}
    for place, (key, device) in enumerate(keys):
        places.setdefault(key, []).append(place)
        device_of[key] = device
    columns = [rows[name].to_numpy() for name in _NUMBERS]
    for key, of_key in places.items():
        yield key, device_of[key], _last_of_minutes([column[of_key] for column in columns])


def _last_of_minutes(columns: Sequence[_Array]) -> tuple[_Array, ...]:
    order = np.argsort(columns[0], kind="stable")
    times = columns[0][order]
    is_last = np.append(np.diff(times // _MINUTE_US) > 0, [True])
    return tuple(column[order][is_last] for column in columns)


def _history(key: _Key, device: str | None, pieces: Sequence[tuple[_Array, ...]]) -> VolumeHistory:
    observer, broker_id, log_dir = key
    joined = [np.concatenate(column) for column in zip(*pieces, strict=True)]
    ts_us, total, usable = _last_of_minutes(joined)
    return VolumeHistory(
        observer=observer,
        broker_id=broker_id,
        log_dirs=(log_dir,),
        device=device,
        ts_us=ts_us,
        total_bytes=total,
        usable_bytes=usable,
    )
