"""YAML files that a person wrote are read here: plain data, and nothing that YAML can do beyond it.

PyYAML finds the tokens; what they mean is decided here, by YAML 1.2's core schema: ``no`` and ``on`` are texts.
Anchors, aliases, tags and merge keys are refused where they stand, so no file becomes larger by being read.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from kvota.model.errors import ConfigurationError, Fault
from kvota.store.toml_file import FILE_BYTES_MAX, IF_MISSING, read_text
from kvota.store.toml_places import KeyPath, path_text

# People nest five levels at most; deeper ones are refused before they cost anything.
_DEPTH_MAX = 12
# Numbers of more digits are texts, which no limit can be.
_DIGITS_MAX = 40

_UNPRINTABLE = re.compile(
    "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # YAML 1.2 §5.1
)
_WHOLE = re.compile(r"[-+]?[0-9]+")
_DECIMAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBERS = {
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

_Mark = tuple[int, int]  # line and column, from 1
_Container = dict[str, object] | list[object]


class YamlPlaces:
    """The values of one YAML file stand at these places, ``file:line:column``."""

    def __init__(self, file: str, marks: dict[KeyPath, _Mark]) -> None:
        self._file = file
        self._marks = marks

    def of(self, *path: str | int) -> str:
        """Return ``file:line:column`` of a value's key, or of what encloses a missing one."""
        for length in range(len(path), 0, -1):
            mark = self._marks.get(path[:length])
            if mark is not None:
                return f"{self._file}:{mark[0]}:{mark[1]}"
        return self._file

    def named(self, *path: str | int) -> str:
        """Return ``file:line:column: quotas[2].producer_byte_rate``, the place of a Fault."""
        return f"{self.of(*path)}: {path_text(path)}"


def load_yaml(
    path: Path, *, bytes_max: int = FILE_BYTES_MAX, if_missing: str = IF_MISSING
) -> tuple[dict[str, object], YamlPlaces]:
    """Return the data of a YAML file, and where in the file each value stands.

    Args:
        path: of the file.
        bytes_max: a larger file is refused.
        if_missing: what to do where there is none.

    Raises:
        ConfigurationError: the file cannot be read, is larger than ``bytes_max``, is not YAML, or more than
            plain data; with the line and the column.
    """
    return parse_yaml(read_text(path, bytes_max=bytes_max, if_missing=if_missing), str(path))


def parse_yaml(text: str, file: str) -> tuple[dict[str, object], YamlPlaces]:
    """Return the data of a YAML text; an empty one has none.

    Raises:
        ConfigurationError: as ``load_yaml``.
    """
    strange = _UNPRINTABLE.search(text)
    if strange is not None:
        mark = (
            text.count("\n", 0, strange.start()) + 1,
            strange.start() - text.rfind("\n", 0, strange.start()),
        )
        problem = f"character {strange[0]!a} is not printable"
        raise _fault(file, mark, problem, 'Write it as an escape in double quotes, e.g. "\\x1b".')
    reader = _Reader(file)
    try:
        for event in _events(text):
            reader.take(event)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(file, error) from error
    except yaml.YAMLError as error:
        raise ConfigurationError(
            [Fault(file, f"not valid YAML: {error}", "Correct it.")]
        ) from error
    if reader.faults:
        raise ConfigurationError(reader.faults)
    data = reader.root
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise _fault(file, (1, 1), "not a mapping", 'Write e.g. "quotas:" and a list below it.')
    return data, YamlPlaces(file, reader.marks)


def _events(text: str) -> Iterator[Any]:
    """With libyaml, where PyYAML has it: it is ten times as fast."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        while loader.check_event():
            yield loader.get_event()
    finally:
        loader.dispose()


class _Reader:
    """Makes data of events, one by one, without recursion."""

    def __init__(self, file: str) -> None:
        self.root: object = None
        self.marks: dict[KeyPath, _Mark] = {}
        self.faults: list[Fault] = []
        self._file = file
        self._documents = 0
        self._open: list[tuple[_Container, KeyPath]] = []
        self._key: list[str | None] = []  # of each open mapping: the one whose value comes next

    def take(self, event: Any) -> None:
        mark = (event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _fault(
                    self._file, mark, "a second document", "Write one, without a second ---."
                )
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._open.pop()
            self._key.pop()
        elif isinstance(event, yaml.NodeEvent):
            self._refuse_more_than_data(event, mark)
            self._take_node(event, mark)

    def _refuse_more_than_data(self, event: Any, mark: _Mark) -> None:
        if isinstance(event, yaml.AliasEvent):
            problem = f'"*{event.anchor}" refers to another value'
            remedy = "Write the value itself; a text that begins with * needs quotes."
            raise _fault(self._file, mark, problem, remedy)
        if event.anchor is not None:
            problem = f'"&{event.anchor}" names a value'
            remedy = "Leave it out; a text that begins with & needs quotes."
            raise _fault(self._file, mark, problem, remedy)
        if event.tag is not None:
            remedy = "Leave it out; a text that begins with ! needs quotes."
            raise _fault(self._file, mark, f'"{event.tag}" gives a value a type', remedy)
        if len(self._open) >= _DEPTH_MAX:
            problem = f"more than {_DEPTH_MAX} levels"
            raise _fault(self._file, mark, problem, "Write at most a few levels.")

    def _take_node(self, event: Any, mark: _Mark) -> None:
        if self._awaits_key():
            self._take_key(event, mark)
            return
        if isinstance(event, yaml.ScalarEvent):
            self._put(_value(event), mark)
            return
        made: _Container = {} if isinstance(event, yaml.MappingStartEvent) else []
        path = self._put(made, mark)
        self._open.append((made, path))
        self._key.append(None)

    def _awaits_key(self) -> bool:
        return bool(self._open) and isinstance(self._open[-1][0], dict) and self._key[-1] is None

    def _take_key(self, event: Any, mark: _Mark) -> None:
        if not isinstance(event, yaml.ScalarEvent):
            raise _fault(self._file, mark, "a key that is no word", 'Write e.g. "user: orders".')
        mapping, path = self._open[-1]
        key = str(event.value)
        if key == "<<":
            raise _fault(self._file, mark, '"<<" merges mappings', "Write the values themselves.")
        inner = (*path, key)
        if key in mapping:
            line, column = self.marks[inner]
            problem = f"the key is there already, at line {line}, column {column}"
            place = f"{self._file}:{mark[0]}:{mark[1]}: {path_text(inner)}"
            self.faults.append(Fault(place, problem, "Keep one of the two."))
        else:
            self.marks[inner] = mark
        self._key[-1] = key

    def _put(self, value: object, mark: _Mark) -> KeyPath:
        """The first value of a key that is there twice stays; the second one is read, too."""
        if not self._open:
            self.root = value
            return ()
        container, path = self._open[-1]
        if isinstance(container, list):
            path = (*path, len(container))
            container.append(value)
            self.marks[path] = mark
            return path
        key = str(self._key[-1])
        self._key[-1] = None
        container.setdefault(key, value)
        return (*path, key)


def _value(event: Any) -> object:
    text = str(event.value)
    if event.style:  # in quotes, or a block; libyaml has "" for none, PyYAML None
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text) and len(text) <= _DIGITS_MAX:
        return int(text)
    if _DECIMAL.fullmatch(text):
        with suppress(OverflowError):
            return float(text)
    return _NO_NUMBERS.get(text, text)


def _not_yaml(file: str, error: Any) -> ConfigurationError:
    mark = error.problem_mark or error.context_mark
    told = ", ".join(str(part) for part in (error.context, error.problem) if part)
    place = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
    remedy = "Correct it; indent with blanks, and put texts with : or # into quotes."
    return _fault(file, place, f"not valid YAML: {told}", remedy)


def _fault(file: str, mark: _Mark, problem: str, remedy: str) -> ConfigurationError:
    return ConfigurationError([Fault(f"{file}:{mark[0]}:{mark[1]}", problem, remedy)])
