"""The properties of Strimzi's static quota callback, of every generation, read by one reader.

Sources: strimzi/kafka-quotas-plugin 0.1.0 to 0.4.0, proposal 047 and its first draft. Their ranges are
inclusive; NaN is refused.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf, isnan
from typing import Literal

from kvota.model.errors import Fault
from kvota.volumes.iso_duration import parse_iso_duration_ms
from kvota.volumes.limit import PerVolumeLimit, SummedUsedLimit, Threshold, VolumeLimit

PREFIX = "client.quota.callback.static"
ADMIN_PREFIXES = (f"{PREFIX}.kafka.admin.", "client.quota.callback.kafka.admin.")
LOG_DIRS = "log.dirs"

PRODUCE, FETCH, REQUEST = f"{PREFIX}.produce", f"{PREFIX}.fetch", f"{PREFIX}.request"
EXCLUDED = f"{PREFIX}.excluded.principal.name.list"
CHECK_INTERVAL = f"{PREFIX}.storage.check-interval"
CHECK_INTERVAL_ISO = f"{PREFIX}.storage.check.interval"
SOFT_USED, HARD_USED = f"{PREFIX}.storage.soft", f"{PREFIX}.storage.hard"
SOURCE = f"{PREFIX}.storage.volume.source"
VALIDITY = f"{PREFIX}.throttle.factor.validity.duration"
# Ours: a class that tells the factor, in place of volumes and limits.
FACTOR_SOURCE = f"{PREFIX}.throttle.factor.source"

# Each level under all its names, the released one first.
FALLBACK = (f"{PREFIX}.throttle.factor.fallback", f"{PREFIX}.fallback.throttle.factor")
HARD_BYTES = (
    f"{PREFIX}.storage.per.volume.limit.min.available.bytes",
    f"{PREFIX}.storage.perVolumeLimit.availableBytesBelow.hard",
)
HARD_RATIO = (
    f"{PREFIX}.storage.per.volume.limit.min.available.ratio",
    f"{PREFIX}.storage.perVolumeLimit.availableRatioBelow.hard",
)
SOFT_BYTES = (f"{PREFIX}.storage.perVolumeLimit.availableBytesBelow.soft",)
SOFT_RATIO = (f"{PREFIX}.storage.perVolumeLimit.availableRatioBelow.soft",)
PER_VOLUME = (*HARD_BYTES, *HARD_RATIO, *SOFT_BYTES, *SOFT_RATIO)

KNOWN_PROPERTIES = (
    *(PRODUCE, FETCH, REQUEST, EXCLUDED, CHECK_INTERVAL, CHECK_INTERVAL_ISO),
    *(SOFT_USED, HARD_USED, SOURCE, VALIDITY, FACTOR_SOURCE, LOG_DIRS),
    *FALLBACK,
    *PER_VOLUME,
)

_CLASS_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_EXAMPLE_OF_KIND = {
    "DOUBLE": "Write a number, without a unit.",
    "LONG": "Write a whole number of bytes, e.g. 5000000000.",
    "INT": "Write a whole number of seconds, e.g. 10.",
}
_LONG_MAX = 2**63 - 1
_INT_MAX = 2**31 - 1
_CLUSTER_INTERVAL_MS = 60_000
_VALIDITY_MS = 300_000
# An interval of so many seconds was probably meant in milliseconds, as the first draft had it.
_SURELY_MS = 3_600


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeSettings:
    """What the properties say.

    Attributes:
        limits: per second and broker, of ``produce``, ``fetch`` and ``request``; inf: none.
        excluded: names of users that are never limited.
        source: where volumes are looked at; "none": nowhere; "own": a class of one's own is asked.
        check_interval_ms: from the end of one look to the next; 0: no looks.
        limit: judges the volumes; None: nothing is judged.
        fallback: the factor once no observation is valid.
        validity_ms: for how long an observation is.
        log_dirs: of this machine, for ``source`` "local".
        admin: the client's properties, without their prefix, for ``source`` "cluster".
        own_class: dotted name of the volume source or throttle-factor source that is asked; empty: none is.
        own_properties: what it is configured with, without their prefix.
        tells_factor: it tells the factor, not volumes.
        warnings: what is allowed and probably not meant.
    """

    limits: Mapping[str, float]
    excluded: frozenset[str]
    source: Literal["none", "local", "cluster", "own"]
    check_interval_ms: int
    limit: VolumeLimit | None
    fallback: float
    validity_ms: int
    log_dirs: tuple[str, ...]
    admin: Mapping[str, str]
    own_class: str
    own_properties: Mapping[str, str]
    tells_factor: bool
    warnings: tuple[str, ...]


@dataclass(slots=True)
class _Reader:
    properties: Mapping[str, str]
    faults: list[Fault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def fault(self, key: str, problem: str, remedy: str) -> None:
        self.faults.append(Fault(key, problem, remedy))

    def text(self, names: tuple[str, ...]) -> tuple[str, str | None]:
        """The value under whichever of its names is there; two names must not differ."""
        there = [(name, self.properties[name].strip()) for name in names if name in self.properties]
        if not there:
            return names[0], None
        if len({value for _, value in there}) > 1:
            (first, value), (second, other) = there[0], there[1]
            self.fault(
                second,
                f'"{other}", and {first}, which means the same, is "{value}"',
                "Keep one of the two.",
            )
        return there[0]

    def number(
        self, names: tuple[str, ...], kind: str, low: float, high: float
    ) -> float | int | None:
        """A number of Kafka's kind LONG, INT or DOUBLE, within inclusive bounds."""
        key, text = self.text(names)
        if text is None:
            return None
        try:
            value = float(text) if kind == "DOUBLE" else int(text)
        except ValueError:
            value = float("nan")
        if isnan(value):
            self.fault(key, f'"{text}" is not a number of type {kind}', _EXAMPLE_OF_KIND[kind])
            return None
        if not low <= value <= high:
            remedy = "Write a part of 1, e.g. 0.1." if high == 1 else "Write another number."
            self.fault(key, f'"{text}" is not between {low:g} and {high:g}', remedy)
            return None
        return value


def read_volume_settings(
    properties: Mapping[str, str],
) -> tuple[VolumeSettings, list[Fault]]:
    """Read all properties of the static callback; where there are faults the settings are not to be used.

    The place of a fault is the name of its property.
    """
    reader = _Reader(properties)
    limits = {
        name: _or(reader.number((key,), "DOUBLE", -inf, inf), inf)
        for name, key in (("produce", PRODUCE), ("fetch", FETCH), ("request", REQUEST))
    }
    per_volume = [key for key in PER_VOLUME if key in properties]
    source = _source(reader, per_volume)
    summed = _summed_limit(reader)
    told_by = _factor_source(reader, per_volume)
    limit: VolumeLimit | None = summed
    if told_by:
        source, limit = "own", None
    elif source != "local":
        limit = _per_volume_limit(reader, source)
    if source == "local" and per_volume:
        reader.fault(
            per_volume[0],
            f"set together with {SOURCE} = local",
            f"Per-volume limits are for the cluster source: set {SOURCE} = cluster.",
        )
    if source != "local" and summed is not None and not told_by:
        key = SOFT_USED if SOFT_USED in properties else HARD_USED
        reader.fault(
            key,
            f"set together with per-volume limits or {SOURCE}",
            "Used bytes are summed for the disks of one machine: use per-volume limits.",
        )
    admin = _admin(reader)
    interval_ms = _interval_ms(reader, source)
    is_active = interval_ms > 0 and (limit is not None or bool(told_by))
    if source == "cluster" and is_active and not admin.get("bootstrap.servers", "").strip():
        reader.fault(
            f"{ADMIN_PREFIXES[0]}bootstrap.servers",
            "missing, and the cluster's volumes are to be looked at",
            'Write the brokers\' addresses, e.g. "kafka-1:9092,kafka-2:9092".',
        )
    log_dirs = _list(properties.get(LOG_DIRS, ""))
    is_said = limit is not None or properties.get(SOURCE, "").strip() == "local"
    if source == "local" and is_said and not (log_dirs or per_volume):
        reader.fault(
            LOG_DIRS,
            "missing, and the volumes of this machine are to be looked at",
            'Write the directories, e.g. "/var/lib/kafka", or use the cluster source.',
        )
    validity_ms = _validity_ms(reader)
    if is_active and validity_ms <= interval_ms:
        reader.warnings.append(
            f"{VALIDITY} ({validity_ms / 1000:g} s) is not longer than the check interval ({interval_ms / 1000:g} s): "
            "the fallback comes into force between two looks"
        )
    reader.warnings += _nothing_is_looked_at(properties, limit, told_by, interval_ms)
    own_class = told_by or (properties[SOURCE].strip() if source == "own" else "")
    own_prefix = f"{FACTOR_SOURCE if told_by else SOURCE}."
    settings = VolumeSettings(
        limits=limits,
        excluded=_excluded(reader),
        source=source if is_active else "none",
        check_interval_ms=interval_ms,
        limit=limit,
        fallback=_or(reader.number(FALLBACK, "DOUBLE", 0.0, 1.0), 1.0),
        validity_ms=validity_ms,
        log_dirs=log_dirs,
        admin=admin,
        own_class=own_class if is_active else "",
        own_properties={
            key.removeprefix(own_prefix): value
            for key, value in properties.items()
            if key.startswith(own_prefix)
        },
        tells_factor=bool(told_by),
        warnings=tuple(reader.warnings),
    )
    return settings, reader.faults


def _nothing_is_looked_at(
    properties: Mapping[str, str], limit: VolumeLimit | None, told_by: str, interval_ms: int
) -> Iterator[str]:
    """What has been asked for by halves: limits, or looks."""
    key = CHECK_INTERVAL_ISO if CHECK_INTERVAL_ISO in properties else CHECK_INTERVAL
    if interval_ms == 0 and (limit is not None or told_by):
        what = f"{told_by} is never asked" if told_by else "the volumes' limits are never looked at"
        yield f"{key} is {properties.get(key, '0').strip()}: {what}; write e.g. 10 seconds"
    elif interval_ms > 0 and key in properties and limit is None and not told_by:
        yield f"{key} is set, and no limit of volumes is: they are not looked at; write e.g. {HARD_RATIO[0]} = 0.1"


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def own_prefixes(properties: Mapping[str, str]) -> tuple[str, ...]:
    """What properties of classes of one's own begin with, where such classes are named."""
    is_own = bool(_CLASS_NAME.fullmatch(properties.get(SOURCE, "").strip()))
    return (
        *((f"{SOURCE}.",) if is_own else ()),
        *((f"{FACTOR_SOURCE}.",) if FACTOR_SOURCE in properties else ()),
    )


def _factor_source(reader: _Reader, per_volume: list[str]) -> str:
    """The name of the class that tells the factor; empty: volumes do."""
    name = reader.properties.get(FACTOR_SOURCE, "").strip()
    if FACTOR_SOURCE not in reader.properties:
        return ""
    if not _CLASS_NAME.fullmatch(name):
        reader.fault(
            FACTOR_SOURCE, f'"{name}" is no dotted name', 'Write e.g. "my_factor.MyFactor".'
        )
    others = [
        *per_volume,
        *(key for key in (SOFT_USED, HARD_USED, SOURCE) if key in reader.properties),
    ]
    if others:
        reader.fault(
            others[0],
            f"set together with {FACTOR_SOURCE}, which tells the factor by itself",
            "Keep one of the two.",
        )
    return name


def _source(reader: _Reader, per_volume: list[str]) -> Literal["local", "cluster", "own"]:
    """What is said; else the cluster where a volume has a limit of its own, as every release had it."""
    said = reader.properties.get(SOURCE)
    if said is None:
        return "cluster" if per_volume else "local"
    if said.strip() == "cluster":
        return "cluster"
    if _CLASS_NAME.fullmatch(said.strip()):
        return "own"
    if said.strip() != "local":
        remedy = 'Write "local", "cluster", or the dotted name of a class.'
        reader.fault(SOURCE, f'"{said}" is no source', remedy)
    return "local"


def _summed_limit(reader: _Reader) -> SummedUsedLimit | None:
    soft = reader.number((SOFT_USED,), "LONG", 0, _LONG_MAX)
    hard = reader.number((HARD_USED,), "LONG", 0, _LONG_MAX)
    if soft is None and hard is None:
        return None
    if soft is not None and hard is not None and soft > hard:
        reader.warnings.append(f"{SOFT_USED} is above {HARD_USED}: it never throttles")
    return SummedUsedLimit(
        soft_bytes=int(_or(soft, _LONG_MAX)), hard_bytes=int(_or(hard, _LONG_MAX))
    )


def _per_volume_limit(reader: _Reader, source: str) -> PerVolumeLimit | None:
    hard = _threshold(reader, HARD_BYTES, HARD_RATIO)
    soft = _threshold(reader, SOFT_BYTES, SOFT_RATIO)
    if hard is None:
        if soft is not None or SOURCE in reader.properties:
            reader.fault(
                HARD_BYTES[0],
                f"missing, and the source {reader.properties.get(SOURCE, source).strip()} needs a hard limit",
                f"Write it, or {HARD_RATIO[0]}.",
            )
        return None
    if soft is not None:
        _check_order(reader, hard, soft)
    return PerVolumeLimit(hard=hard, soft=soft)


def _threshold(
    reader: _Reader, of_bytes: tuple[str, ...], of_ratio: tuple[str, ...]
) -> Threshold | None:
    available_bytes = reader.number(of_bytes, "LONG", 0, _LONG_MAX)
    available_ratio = reader.number(of_ratio, "DOUBLE", 0.0, 1.0)
    if available_bytes is not None and available_ratio is not None:
        first, second = reader.text(of_bytes)[0], reader.text(of_ratio)[0]
        reader.fault(second, f"set together with {first}", "Keep one of the two.")
    if available_bytes is not None:
        return Threshold(available_bytes=int(available_bytes))
    return None if available_ratio is None else Threshold(available_ratio=available_ratio)


def _check_order(reader: _Reader, hard: Threshold, soft: Threshold) -> None:
    """A soft limit that begins later than the hard one of the same unit is a slip."""
    for name, keys in (("available_bytes", SOFT_BYTES), ("available_ratio", SOFT_RATIO)):
        low, high = getattr(hard, name), getattr(soft, name)
        if low is not None and high is not None and high < low:
            reader.fault(
                keys[0],
                f"{high:g} is below the hard limit of {low:g}",
                "Let the soft limit begin while more is available than at the hard one.",
            )


def _interval_ms(reader: _Reader, source: str) -> int:
    seconds = reader.number((CHECK_INTERVAL,), "INT", -(2**31), _INT_MAX)
    text = reader.properties.get(CHECK_INTERVAL_ISO)
    if text is not None:
        if CHECK_INTERVAL in reader.properties:
            reader.fault(CHECK_INTERVAL_ISO, f"set together with {CHECK_INTERVAL}", "Keep one.")
        return max(0, _iso_ms(reader, CHECK_INTERVAL_ISO, text))
    if seconds is None:
        return 0 if source == "local" else _CLUSTER_INTERVAL_MS
    if seconds >= _SURELY_MS:
        reader.warnings.append(
            f"{CHECK_INTERVAL} = {seconds} are seconds, {seconds / 3600:.3g} h; were milliseconds meant?"
        )
    return max(0, int(seconds) * 1000)


def _validity_ms(reader: _Reader) -> int:
    text = reader.properties.get(VALIDITY)
    return _VALIDITY_MS if text is None else _iso_ms(reader, VALIDITY, text)


def _iso_ms(reader: _Reader, key: str, text: str) -> int:
    try:
        return parse_iso_duration_ms(text.strip())
    except ValueError as error:
        problem, _, remedy = str(error).partition("; ")
        reader.fault(key, problem, f"{remedy[:1].upper()}{remedy[1:]}.")
        return 0


def _excluded(reader: _Reader) -> frozenset[str]:
    """``User:a; User:b`` as since 0.3.1, each part with its prefix; else a list with commas, as before."""
    text = reader.properties.get(EXCLUDED)
    if text is None:
        return frozenset()
    if "User:" not in text:
        names = _list(text)
        if any(name.lower().startswith("user:") for name in names):
            reader.fault(
                EXCLUDED,
                f'"{text.strip()}": the type of a principal is written "User:"',
                'Write e.g. "User:operator; User:mirror".',
            )
        elif names:
            reader.warnings.append(
                f'{EXCLUDED}: names without a type are the old way; write "User:{names[0]}"'
            )
        return frozenset(names)
    found = []
    for part in text.strip().removesuffix(";").split(";"):
        name = part.strip().removeprefix("User:").strip()
        if not part.strip().startswith("User:") or not name or "User:" in name:
            reader.fault(
                EXCLUDED,
                f'"{part.strip()}" is no principal',
                'Write e.g. "User:operator; User:mirror".',
            )
        else:
            found.append(name)
    return frozenset(found)


def _admin(reader: _Reader) -> dict[str, str]:
    found: dict[str, tuple[str, str]] = {}
    for prefix in ADMIN_PREFIXES:
        for key, value in reader.properties.items():
            if not key.startswith(prefix):
                continue
            name = key.removeprefix(prefix)
            known = found.setdefault(name, (key, value))
            if known[1].strip() != value.strip():
                # Not the values: one of them may be a password.
                reader.fault(key, f"differs from {known[0]}, which means the same", "Keep one.")
    return {name: value for name, (_, value) in found.items()}
