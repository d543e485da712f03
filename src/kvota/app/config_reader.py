"""Reads values out of a TOML file's data and collects what is wrong with them."""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from kvota.model.errors import Fault
from kvota.store.toml_file import unknown_keys
from kvota.store.toml_places import Places

T = TypeVar("T")


class Reader:
    """Reads values out of the file's data and collects what is wrong with them."""

    def __init__(self, data: dict[str, object], places: Places) -> None:
        self._data = data
        self.places = places
        self.faults: list[Fault] = []

    def table(self, *path: str) -> "Table":
        """Return the table at this path; an empty one, and a fault, if it is no table."""
        found: object = self._data
        for step in path:
            found = found.get(step, {}) if isinstance(found, dict) else {}
        if not isinstance(found, dict):
            self.faults.append(
                Fault(self.places.named(*path), "not a table", f"Write [{'.'.join(path)}].")
            )
            found = {}
        return Table(self, path, found)

    def properties(
        self, name: str, known: tuple[str, ...], *, prefixes: tuple[str, ...] = ()
    ) -> "Table":
        """Return a table of Kafka's property names; their dots, if not quoted, make tables.

        Known are those in ``known``, and whatever begins with one of ``prefixes``.
        """
        table = self.table(name)
        paths = {
            ".".join(path): path
            for path in _leaves(table.data)
            if ".".join(path).startswith(prefixes) or self._is_known(known, name, path)
        }
        values = {key: _leaf(table.data, path) for key, path in paths.items()}
        return Table(self, (name,), values, paths)

    def _is_known(self, known: tuple[str, ...], name: str, path: tuple[str, ...]) -> bool:
        key = ".".join(path)
        if key in known:
            return True
        (fault,) = unknown_keys({key: None}, known, self.places, (name,))
        place = self.places.named(name, *path)
        self.faults.append(Fault(place, fault.problem, fault.remedy))
        return False

    def known(
        self,
        path: tuple[str, ...],
        keys: tuple[str, ...],
        remedies: Mapping[str, str] | None = None,
    ) -> None:
        """Note a fault for each other key of the table at this path."""
        found: object = self._data
        for step in path:
            found = found.get(step, {}) if isinstance(found, dict) else {}
        if isinstance(found, dict):
            self.faults += unknown_keys(found, keys, self.places, path, remedies=remedies)


class Table:
    """One table, which gives its values, checked, or a default in place of a wrong one."""

    def __init__(
        self,
        reader: Reader,
        path: tuple[str, ...],
        data: dict[str, object],
        paths: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.data = data
        self._reader = reader
        self._path = path
        self._paths = paths or {}

    def place(self, key: str) -> str:
        """Return where a key stands in the file, or would stand."""
        return self._reader.places.named(*self._path, *self._paths.get(key, (key,)))

    def fault(self, key: str, problem: str, remedy: str) -> None:
        """Note what is wrong with the value of a key, or with its absence."""
        self._reader.faults.append(Fault(self.place(key), problem, remedy))

    def value(self, key: str, default: T, read: Callable[[object], T]) -> T:
        """Return the value that ``read`` makes of it; ``default`` if it is missing or wrong."""
        if key not in self.data:
            return default
        try:
            return read(self.data[key])
        except ValueError as error:
            problem, _, remedy = str(error).partition(". ")
            self.fault(key, problem, remedy or "See docs/gateway.md for an example.")
            return default

    def required(self, key: str, read: Callable[[object], T], example: str) -> T | None:
        """Return the value; None, and a fault, if there is none."""
        if key not in self.data:
            self.fault(key, "missing", f"Write e.g. {key} = {example}.")
            return None
        return self.value(key, None, read)


def _leaves(data: dict[str, object]) -> Iterator[tuple[str, ...]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from ((key, *path) for path in _leaves(value))
        else:
            yield (key,)


def _leaf(data: dict[str, object], path: tuple[str, ...]) -> object:
    found: object = data
    for step in path:
        assert isinstance(found, dict), path
        found = found[step]
    return found
