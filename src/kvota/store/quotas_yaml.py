"""``quotas.yaml``: quotas as people write them for ``kvota quotas``, plans and what undoes them.

All three are one format: ``quotas`` is what is wanted. A plan says with ``plan`` what it was computed from, an undo file with
``undo`` what was done. docs/quotas-as-code.md shows it, ``quotas.schema.json`` tells editors.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvota.files.whole_file import write_whole
from kvota.model.client_quotas import KEYS, ClientQuotas, KeyChange
from kvota.model.errors import ConfigurationError, Fault, UnreachableError, UsageError
from kvota.model.quota_entity import DEFAULT, EntityName, QuotaEntity
from kvota.planning.wanted_quotas import WantedQuotas, entity_order
from kvota.store.quota_entries import NONE, EntriesReader, Notation
from kvota.store.quota_limit import LimitError, check_value, unreachable_value, value_text
from kvota.store.toml_file import in_file_order, unknown_keys
from kvota.store.toml_places import KeyPath, KnownPlaces
from kvota.store.yaml_file import load_yaml

VERSION = 1
SUFFIXES = (".yaml", ".yml")
SCHEMA_FILE = Path(__file__).with_name("quotas.schema.json")

YAML = Notation(
    list_key="quotas",
    one="entry",
    a_one="an entry",
    equals=": ",
    above='It belongs to an entry of the list "quotas": write e.g. "- user: orders" above it.',
    wants_list=("not a list", 'Write "- " before each entry, e.g. "- user: orders".'),
    wants_entry=("not an entry", 'Write e.g. "- user: orders", and its limits below it.'),
    has_removals=True,
)
_SCHEMA_LINE = f"# yaml-language-server: $schema={SCHEMA_FILE.name}"

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.@/-]*")
_WORDS_OF_YAML = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))
_NOT_AS_IT_IS = re.compile(
    "[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_INDENT = "  "
_PLACE_OF_KEY = {key: place for place, key in enumerate(KEYS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanHead:
    """What a plan was computed from.

    Attributes:
        made_at: when, ISO 8601.
        in_force: the quotas as they were.
        cluster_id: where; None: not from a cluster.
        prunes: whether what it does not mention goes.
    """

    made_at: str
    in_force: ClientQuotas
    cluster_id: str | None = None
    prunes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoHead:
    """What has become of a change that this file undoes.

    Attributes:
        made_at: when it began, ISO 8601.
        command: what was typed.
        cluster_id: where; None: the cluster has not said.
        done: what was asked for and is in force.
        in_doubt: what was asked for without an answer.
        not_done: what was not asked for yet; of a ramp all of it, until its last step.
        ramp: as ``--ramp`` has it; None: none.
        ramp_step: the last step that was asked for.
        ramp_step_at_ms: when, Unix milliseconds.
    """

    made_at: str
    command: str = ""
    cluster_id: str | None = None
    done: WantedQuotas = field(default_factory=WantedQuotas)
    in_doubt: WantedQuotas = field(default_factory=WantedQuotas)
    not_done: WantedQuotas = field(default_factory=WantedQuotas)
    ramp: str | None = None
    ramp_step: int = 0
    ramp_step_at_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotasDocument:
    """A whole file."""

    wanted: WantedQuotas
    plan: PlanHead | None = None
    undo: UndoHead | None = None


# ------------------------------------------------------------------ reading


def load_document(path: Path) -> QuotasDocument:
    """Read a file.

    Raises:
        ConfigurationError: all its faults, each with ``file:line:column: quotas[n].key``.
    """
    data, places = load_yaml(path)
    reader = _DocumentReader(places)
    document = reader.read(data)
    if reader.faults:
        raise ConfigurationError(in_file_order(reader.faults))
    return document


class _DocumentReader:
    def __init__(self, places: KnownPlaces) -> None:
        self.faults: list[Fault] = []
        self._places = places

    def read(self, data: Mapping[str, object]) -> QuotasDocument:
        known = ("version", "quotas", "plan", "undo")
        others = EntriesReader(self._places, YAML).remedies_above
        self.faults += unknown_keys(data, known, self._places, remedies=others)
        version = data.get("version", VERSION)
        if version != VERSION or isinstance(version, bool):
            remedy = f"This kvota reads version {VERSION}; a newer one may have written it."
            self._fault(("version",), f"{_shown(version)} is not known", remedy)
        if "quotas" not in data and data.keys() <= set(known):  # else it is written otherwise
            self._fault(("quotas",), "is missing", 'Write "quotas: []" where there shall be none.')
        return QuotasDocument(
            wanted=self._entries(("quotas",), data.get("quotas", [])),
            plan=self._plan(data["plan"]) if "plan" in data else None,
            undo=self._undo(data["undo"]) if "undo" in data else None,
        )

    def _plan(self, content: object) -> PlanHead | None:
        known = ("made_at", "cluster_id", "prune", "in_force")
        head = self._mapping("plan", content, known)
        if head is None:
            return None
        in_force = self._entries(("plan", "in_force"), head.get("in_force", []))
        prunes = head.get("prune", False)
        if not isinstance(prunes, bool):
            self._fault(("plan", "prune"), "neither true nor false", "Write one of the two.")
        return PlanHead(
            made_at=self._text(head, "plan", "made_at") or "",
            cluster_id=self._text(head, "plan", "cluster_id"),
            prunes=prunes is True,
            in_force=in_force.quotas,
        )

    def _undo(self, content: object) -> UndoHead | None:
        lists = ("done", "in_doubt", "not_done")
        known = ("made_at", "command", "cluster_id", *lists, "ramp", "ramp_step", "ramp_step_at_ms")
        head = self._mapping("undo", content, known)
        if head is None:
            return None
        done, in_doubt, not_done = (
            self._entries(("undo", name), head.get(name, [])) for name in lists
        )
        return UndoHead(
            made_at=self._text(head, "undo", "made_at") or "",
            command=self._text(head, "undo", "command") or "",
            cluster_id=self._text(head, "undo", "cluster_id"),
            done=done,
            in_doubt=in_doubt,
            not_done=not_done,
            ramp=self._text(head, "undo", "ramp"),
            ramp_step=self._count(head, "undo", "ramp_step"),
            ramp_step_at_ms=self._count(head, "undo", "ramp_step_at_ms"),
        )

    def _entries(self, path: KeyPath, entries: object) -> WantedQuotas:
        reader = EntriesReader(self._places, YAML)
        reader.read_list(path, entries)
        self.faults += reader.faults
        return WantedQuotas(quotas=ClientQuotas(reader.quotas), removed=frozenset(reader.removed))

    def _mapping(
        self, key: str, content: object, known: tuple[str, ...]
    ) -> Mapping[str, object] | None:
        if not isinstance(content, dict):
            self._fault((key,), "not a mapping", "Leave it out; kvota writes it itself.")
            return None
        self.faults += unknown_keys(content, known, self._places, (key,))
        return content

    def _text(self, head: Mapping[str, object], *path: str) -> str | None:
        value = head.get(path[-1])
        if value is None or isinstance(value, str):
            return value
        self._fault(path, "not a text", "Write it in quotes.")
        return None

    def _count(self, head: Mapping[str, object], *path: str) -> int:
        value = head.get(path[-1], 0)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        self._fault(path, "not a whole number from 0 on", "Write one.")
        return 0

    def _fault(self, path: KeyPath, problem: str, remedy: str) -> None:
        self.faults.append(Fault(self._places.named(*path), problem, remedy))


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else f"{text[:40]}…"


# ------------------------------------------------------------------ writing


def dump_document(
    document: QuotasDocument, *, heading: str = "", reasons: Mapping[QuotaEntity, str] | None = None
) -> str:
    """Return the text that is read as exactly this document.

    Args:
        document: entries come in a stable order.
        heading: lines of comment to begin with.
        reasons: a comment above the entry of an entity.

    Raises:
        UsageError: a name or a value that such a file cannot have.
    """
    lines = [_SCHEMA_LINE, *(f"# {_line(text)}".rstrip() for text in heading.splitlines())]
    lines.append(f"version: {VERSION}")
    if document.plan is not None:
        plan = document.plan
        lines += ["plan:", *_fields(made_at=plan.made_at, cluster_id=plan.cluster_id)]
        lines.append(f"{_INDENT}prune: {str(plan.prunes).lower()}")
        wanted = WantedQuotas(quotas=plan.in_force)
        lines += _list("in_force", wanted, indent=_INDENT)
    if document.undo is not None:
        lines += _undo_lines(document.undo)
    lines += _list("quotas", document.wanted, reasons=reasons or {})
    return "\n".join(lines) + "\n"


def write_document(
    path: Path,
    document: QuotasDocument,
    *,
    heading: str = "",
    reasons: Mapping[QuotaEntity, str] | None = None,
) -> None:
    """Write a file: a reader finds the old text or the new, never half of one.

    Raises:
        UsageError: as ``dump_document``.
        UnreachableError: it could not be written; what was there before is as it was.
    """
    content = dump_document(document, heading=heading, reasons=reasons).encode()
    try:
        write_whole(path, content)
    except OSError as error:
        msg = f"{path} could not be written: {error.strerror or error}"
        raise UnreachableError(msg) from error


def _undo_lines(undo: UndoHead) -> Iterator[str]:
    yield "undo:"
    texts = {"made_at": undo.made_at, "command": undo.command, "cluster_id": undo.cluster_id}
    yield from _fields(**texts, ramp=undo.ramp)
    if undo.ramp is not None:
        yield f"{_INDENT}ramp_step: {undo.ramp_step}"
        yield f"{_INDENT}ramp_step_at_ms: {undo.ramp_step_at_ms}"
    for key in ("done", "in_doubt", "not_done"):
        yield from _list(key, getattr(undo, key), indent=_INDENT)


def _fields(**texts: str | None) -> Iterator[str]:
    for key, text in texts.items():
        if text is not None:
            yield f"{_INDENT}{key}: {_quoted(text)}"


def _list(
    key: str,
    wanted: WantedQuotas,
    *,
    indent: str = "",
    reasons: Mapping[QuotaEntity, str] | None = None,
) -> Iterator[str]:
    of_entity: dict[QuotaEntity, list[KeyChange]] = {}
    for change in wanted.values():
        of_entity.setdefault(change.entity, []).append(change)
    if not of_entity:
        yield f"{indent}{key}: []"
        return
    yield f"{indent}{key}:"
    for entity in sorted(of_entity, key=entity_order):
        if reasons and entity in reasons:
            yield f"{indent}{_INDENT}# {_line(reasons[entity])}"
        first, *others = _entry(entity, of_entity[entity])
        yield f"{indent}{_INDENT}- {first}"
        yield from (f"{indent}{_INDENT}{_INDENT}{line}" for line in others)


def _entry(entity: QuotaEntity, changes: Iterable[KeyChange]) -> Iterator[str]:
    for part, name in zip(("user", "client_id", "ip"), entity, strict=True):
        if name is DEFAULT:
            yield f"{part}_default: true"
        elif name is not None:
            yield f"{part}: {_name(part, name)}"
    for _, key, value in sorted(changes, key=lambda change: _PLACE_OF_KEY[change.key]):
        yield f"{key}: {NONE if value is None else _value(entity, key, value)}"


def _name(part: str, name: EntityName) -> str:
    text = str(name)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        msg = f"{part} {text!r} cannot be written to a quotas file: it is not Unicode text"
        raise UsageError(msg) from error
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS_OF_YAML:
        return text
    return _quoted(text)


def _quoted(text: str) -> str:
    """In double quotes, with JSON's escapes and those of what YAML does not print."""
    quoted = json.dumps(text, ensure_ascii=False)
    return _NOT_AS_IT_IS.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _value(entity: QuotaEntity, key: str, value: float) -> str:
    try:
        if value != value or abs(value) == float("inf"):  # noqa: PLR0124  (NaN differs from itself)
            unreachable_value(key, value)
            return ".nan" if value != value else ".inf"  # noqa: PLR0124
        check_value(key, value)
    except LimitError as error:
        msg = f"{key} of {entity}: {error}"
        raise UsageError(msg) from error
    return value_text(key, value)


def _line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
