"""Which column of somebody's table is what of a charge, as ``--map`` and ``--const`` say it. Pure."""

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from kvota.model.errors import UsageError
from kvota.model.quota_type import CONFIGURABLE_TYPES, QuotaType

# What each field of a charge means, for people.
FIELDS = {
    "ts": "when it was charged",
    "value": "how much: bytes, percent of a thread times seconds, partitions or new producer ids",
    "user": "who was charged",
    "client_id": "by which client id",
    "quota_type": f"on which quota: {', '.join(CONFIGURABLE_TYPES)}",
    "node_id": "on which broker, a number",
    "seq": "a number that puts the rows in order",
    "throttle_ms": "for how long the client was told to wait, in milliseconds",
}
# These cannot be the same in every row.
_NEVER_CONSTANT = frozenset({"ts", "seq", "throttle_ms"})
_NODE_IDS = range(2**31)

# A comma ends an assignment where another one begins.
_NEXT = re.compile(r",(?=[A-Za-z_]+=)")
_COLUMNS_NAMED = 20


@dataclass(frozen=True, slots=True)
class TableMapping:
    """What a charge is made of.

    Attributes:
        columns: of the table, by field.
        constants: what is the same in every row, by field.
    """

    columns: dict[str, str] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)

    @property
    def needed(self) -> list[str]:
        """Return the columns that are read."""
        return list(self.columns.values())


def assignments(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Split ``--map`` or ``--const`` into fields and what they are given.

    >>> assignments(["ts=event_time,user=a,b", "value=bytes"])
    [('ts', 'event_time'), ('user', 'a,b'), ('value', 'bytes')]
    """
    parts = [part.partition("=") for text in texts for part in _NEXT.split(text)]
    return [(name.strip(), given) for name, _, given in parts]


def mapping_of(
    columns: Sequence[tuple[str, str]],
    constants: Sequence[tuple[str, str]],
    there: Sequence[str] | None = None,
) -> TableMapping:
    """Return the mapping that options mean.

    Args:
        columns: of the table, by field.
        constants: by field.
        there: the columns that the table has; None: they are looked at later.

    Raises:
        UsageError: names everything that is wrong with it.
    """
    mapping = TableMapping(dict(columns), dict(constants))
    faults = [
        *_field_faults(columns, constants),
        *_missing_faults(mapping),
        *_constant_faults(mapping),
        *([] if there is None else column_faults(mapping, there)),
    ]
    refuse(faults)
    return mapping


def refuse(faults: Collection[str]) -> None:
    """Refuse a mapping that has faults.

    Raises:
        UsageError: there is one at least.
    """
    if faults:
        msg = "the table cannot be read as it is mapped:" + "".join(
            f"\n  {fault}" for fault in faults
        )
        raise UsageError(msg)


def column_faults(mapping: TableMapping, there: Sequence[str]) -> list[str]:
    """Say which columns the table has not, or twice."""
    faults = []
    for name, column in mapping.columns.items():
        if there.count(column) > 1:
            faults.append(f'{name}: the table has the column "{column}" twice. Name it otherwise')
        elif column not in there and column:
            shown = ", ".join(there[:_COLUMNS_NAMED]) + (
                ", …" if len(there) > _COLUMNS_NAMED else ""
            )
            hint = _meant(column, there) or f"It has {shown}"
            faults.append(f'{name}: the table has no column "{column}". {hint}')
    return faults


def _field_faults(
    columns: Sequence[tuple[str, str]], constants: Sequence[tuple[str, str]]
) -> Iterator[str]:
    for option, given in (("--map", columns), ("--const", constants)):
        for name, what in given:
            if name not in FIELDS:
                hint = _meant(name, list(FIELDS)) or f"Known are {', '.join(FIELDS)}"
                yield f'{option} {name}={what}: a charge has no "{name}". {hint}'
            elif not what:
                example = "ts=event_time" if option == "--map" else "quota_type=PRODUCE"
                yield f"{option} {name}: write {option} {example}"
    names = Counter(name for name, _ in (*columns, *constants))
    for name, times in names.items():
        if times > 1:
            yield f"{name} is given {times} times; which one holds?"
    of_column: dict[str, list[str]] = {}
    for name, column in dict(columns).items():
        of_column.setdefault(column, []).append(name)
    for column, fields in of_column.items():
        if column and len(fields) > 1:
            yield f'the column "{column}" is mapped {len(fields)} times, to {" and ".join(fields)}'


def _missing_faults(mapping: TableMapping) -> Iterator[str]:
    given = {*mapping.columns, *mapping.constants}
    for name in ("ts", "value"):
        if name not in given:
            yield f"{name} is missing ({FIELDS[name]}): --map {name}=COLUMN"
    if not given & {"user", "client_id"}:
        yield "user and client_id are missing: --map user=COLUMN, or client_id, or both"
    if "quota_type" not in given:
        yield "quota_type is missing: --const quota_type=PRODUCE, or --map quota_type=COLUMN"


def _constant_faults(mapping: TableMapping) -> Iterator[str]:
    for name, given in mapping.constants.items():
        if name in _NEVER_CONSTANT:
            yield f"--const {name}={given}: {name} is not the same in every row. --map {name}=COLUMN"
    quota_type = mapping.constants.get("quota_type")
    if quota_type and quota_type_of(quota_type) is None:
        known = list(CONFIGURABLE_TYPES)
        hint = _meant(quota_type, known) or f"Known are {', '.join(known)}"
        yield f'--const quota_type={quota_type}: "{quota_type}" is no quota type. {hint}'
    node_id = mapping.constants.get("node_id")
    if node_id and not (node_id.isdecimal() and int(node_id) in _NODE_IDS):
        yield f'--const node_id={node_id}: "{node_id}" is not the id of a broker, e.g. 1'
    value = mapping.constants.get("value")
    if value and not re.fullmatch(r"\d{1,15}(\.\d{1,15})?", value):
        yield f'--const value={value}: "{value}" is not a number from 0 on, e.g. 1'


def quota_type_of(text: str) -> QuotaType | None:
    """Return the quota type that a text names, whatever its case."""
    return next((known for known in CONFIGURABLE_TYPES if known == text.strip().upper()), None)


def _meant(word: str, known: Sequence[str]) -> str:
    of_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), of_lower, n=1)
    return f'Did you mean "{of_lower[near[0]]}"?' if near else ""
