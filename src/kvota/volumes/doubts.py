"""Settings of volumes that do nothing because of others, or not what they seem to say."""

from collections.abc import Iterator, Mapping

from kvota.volumes.limit import PerVolumeLimit
from kvota.volumes.settings import (
    FALLBACK,
    HARD_RATIO,
    HARD_USED,
    LOG_DIRS,
    SOFT_BYTES,
    SOFT_RATIO,
    SOFT_USED,
    SOURCE,
    VALIDITY,
    VolumeSettings,
)


def doubts(
    settings: VolumeSettings, properties: Mapping[str, str], *, per_broker: bool
) -> Iterator[str]:
    """A sentence for each, which begins with the property.

    Args:
        settings: what the properties say, without a fault.
        properties: of the static callback.
        per_broker: a full disk is to slow down the producers of its broker only.
    """
    yield from settings.warnings
    if settings.limit is None and not settings.tells_factor:
        for key in (SOURCE, VALIDITY, *FALLBACK):
            if key in properties:
                yield f"{key} is set, and no limit of volumes is: it does nothing; write e.g. {_limit_for(settings, properties)}"
        return
    if per_broker and settings.source == "local":
        yield (
            f"{SOURCE} is local: its disks are no broker's, so a full one slows down the producers of all, whatever "
            "throttle.factor.scope says"
        )
    if LOG_DIRS in properties and settings.source in {"cluster", "own"}:
        yield f"{LOG_DIRS} is read where {SOURCE} = local only"
    if SOFT_USED in properties and HARD_USED not in properties:
        yield f"{SOFT_USED} is set without {HARD_USED}, where its line would end: it never throttles"
    if isinstance(settings.limit, PerVolumeLimit):
        yield from _of_thresholds(settings.limit, properties)


def _limit_for(settings: VolumeSettings, properties: Mapping[str, str]) -> str:
    is_local = properties.get(SOURCE, "").strip() == "local" or bool(settings.log_dirs)
    return f"{HARD_USED} = 500000000000" if is_local else f"{HARD_RATIO[0]} = 0.1"


def _of_thresholds(limit: PerVolumeLimit, properties: Mapping[str, str]) -> Iterator[str]:
    hard, soft = limit.hard, limit.soft
    if hard.available_ratio == 1.0:
        key = _said(HARD_RATIO, properties)
        yield f"{key} = 1: each volume is at this limit even while it is empty, so that nothing is ever produced"
    if soft is None:
        return
    for of_hard, of_soft, keys in (
        (hard.available_bytes, soft.available_bytes, SOFT_BYTES),
        (hard.available_ratio, soft.available_ratio, SOFT_RATIO),
    ):
        if of_hard is not None and of_hard == of_soft:
            yield f"{keys[0]} is the hard limit: there is no line between the two, all producers stop at once"


def _said(names: tuple[str, ...], properties: Mapping[str, str]) -> str:
    """The name that is used."""
    return next((name for name in names if name in properties), names[0])
