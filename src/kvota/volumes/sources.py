"""What others may write: where volumes are looked at, and who says how much may be produced.

Source: the volume source and the throttle-factor source of Strimzi's proposal. Its quota source is
``client.quota.callback.class`` (``kvota.callbacks``).
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Protocol

from kvota.model.errors import CallbackError
from kvota.volumes.volume import Volume

# More volumes than any cluster has, and a longer path than any file system takes.
VOLUMES_MAX = 10_000
LOG_DIR_CHARS_MAX = 4_096
_BYTES_MAX = 2**63 - 1
_BROKER_ID_MAX = 2**31 - 1


class _Source(Protocol):
    """All methods are called on one thread, one after the other; it may wait, and must end by itself."""

    def configure(self, properties: Mapping[str, str]) -> None:
        """Take its own properties, without their prefix; once, before everything else. Need not be there.

        Raises:
            ValueError: they cannot be used; a text that begins with a property's name is told with its place.
        """

    def close(self) -> None:
        """Free what it holds; once, after everything else. Need not be there."""


class VolumeSource(_Source, Protocol):
    """Where volumes are looked at: ``client.quota.callback.static.storage.volume.source``."""

    @abstractmethod
    def volumes(self) -> Iterable[Volume]:
        """Look once: all volumes that count, one at least. An error, or no answer in time, is a look that has failed."""
        ...


class ThrottleFactorSource(_Source, Protocol):
    """Who says how much may be produced: ``client.quota.callback.static.throttle.factor.source``."""

    @abstractmethod
    def factor(self) -> float:
        """What produce limits are multiplied by now: 0.0 (nothing is produced) to 1.0 (as without).

        An error, or no answer in time, is a look that has failed.
        """
        ...


def checked_factor(source: object, told: object) -> float:
    """The factor that a source has told.

    Raises:
        CallbackError: it is none.
    """
    if isinstance(told, int | float) and type(told) is not bool and 0 <= told <= 1:  # NaN is not
        return abs(float(told))  # 0 has a sign, and who reads -0.0 looks for a fault
    raise CallbackError(source, "factor", told, "a number from 0 to 1")


def checked_volumes(source: object, told: object) -> tuple[Volume, ...]:
    """The volumes that a source has told.

    Raises:
        CallbackError: something else is among them, or one that cannot be.
        Exception: whatever comes up while they are gone through.
    """
    if not isinstance(told, Iterable):
        raise CallbackError(source, "volumes", told, "volumes")
    volumes = tuple(islice(told, VOLUMES_MAX + 1))
    if len(volumes) > VOLUMES_MAX:
        raise CallbackError(source, "volumes", type(told), f"at most {VOLUMES_MAX} volumes")
    if not volumes:  # a list that was lost must not set all producers free
        raise CallbackError(source, "volumes", told, "at least one volume")
    seen: set[tuple[int, str]] = set()
    for volume in volumes:
        if not _can_be(volume):
            expected = "a kvota.volumes.Volume with 0 <= available_bytes <= total_bytes"
            raise CallbackError(source, "volumes", volume, expected)
        key = volume.broker_id, volume.log_dir
        if key in seen:
            raise CallbackError(source, "volumes", volume, "each log directory of a broker once")
        seen.add(key)
    return volumes


def _can_be(volume: object) -> bool:
    return (
        isinstance(volume, Volume)
        and all(
            type(number) is int
            for number in (volume.broker_id, volume.total_bytes, volume.available_bytes)
        )
        and -1 <= volume.broker_id <= _BROKER_ID_MAX
        and 0 <= volume.available_bytes <= volume.total_bytes <= _BYTES_MAX
        and _is_text(volume.log_dir)
        and (volume.device is None or _is_text(volume.device))
    )


def _is_text(text: object) -> bool:
    if not isinstance(text, str) or len(text) > LOG_DIR_CHARS_MAX:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return False
    return True
