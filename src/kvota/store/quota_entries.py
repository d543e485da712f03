"""The entries of a quotas file are checked one by one, and all faults collected."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from kvota.model.client_quotas import CONNECTION_RATE_KEY, KEYS
from kvota.model.errors import Fault
from kvota.model.quota_entity import DEFAULT, EntityName, QuotaEntity
from kvota.store.quota_limit import LimitError, parse_value, unreachable_value
from kvota.store.toml_file import unknown_keys
from kvota.store.toml_places import KeyPath, KnownPlaces

_ENTITY_KEYS = ("user", "user_default", "client_id", "client_id_default")
_IP_KEYS = ("ip", "ip_default")
_KNOWN_KEYS = (*_ENTITY_KEYS, *_IP_KEYS, *KEYS)
_KEYS_OF_CLIENTS = tuple(name for name, key in KEYS.items() if not key.of_ip)
# In a file that knows it: there shall be no such quota.
NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notation:
    """How entries are written in a kind of file, for what is said of their faults.

    Attributes:
        list_key: the key of all entries.
        one: an entry.
        a_one: the same with its article.
        equals: between a key and its value.
        above: what to do about a key that stands outside of an entry.
        wants_list: what to do where there is no list.
        wants_entry: the problem and what to do where an entry is something else.
        has_removals: whether ``none`` is a value, and numbers that limit nobody (``.inf``) are.
    """

    list_key: str
    one: str
    a_one: str
    equals: str
    above: str
    wants_list: tuple[str, str]
    wants_entry: tuple[str, str]
    has_removals: bool = False

    def line(self, key: str, value: str) -> str:
        """A line of an entry."""
        return f"{key}{self.equals}{value}"


TOML = Notation(
    list_key="quota",
    one="[[quota]]",
    a_one="a [[quota]]",
    equals=" = ",
    above="It belongs to an entry: write [[quota]] above it.",
    wants_list=("one table or value", "Write [[quota]], with two brackets."),
    wants_entry=("not a table", 'Write [[quota]] and below it e.g. user = "a".'),
)


class EntriesReader:
    """Collects the quotas and the faults of one list of entries.

    Attributes:
        quotas: what each entity shall have.
        removed: what it shall not have.
        faults: all of them, in the order in which they were found.
    """

    def __init__(self, places: KnownPlaces, notation: Notation = TOML) -> None:
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.removed: set[tuple[QuotaEntity, str]] = set()
        self.faults: list[Fault] = []
        self._places = places
        self._notation = notation
        self._path_of: dict[QuotaEntity, KeyPath] = {}

    @property
    def remedies_above(self) -> Mapping[str, str]:
        """What to do about an entry's keys that stand beside the list."""
        return dict.fromkeys(_KNOWN_KEYS, self._notation.above)

    def read(self, data: Mapping[str, object]) -> None:
        """Read the data of a whole file that has nothing but entries."""
        known = [self._notation.list_key]
        self.faults += unknown_keys(data, known, self._places, remedies=self.remedies_above)
        self.read_list((self._notation.list_key,), data.get(self._notation.list_key, []))

    def read_list(self, path: KeyPath, entries: object) -> None:
        """Read the entries that stand at ``path``."""
        if not isinstance(entries, list):
            self._fault(path, *self._notation.wants_list)
            return
        for number, entry in enumerate(entries):
            if isinstance(entry, dict):
                self._read_entry((*path, number), entry)
            else:
                self._fault((*path, number), *self._notation.wants_entry)

    def _read_entry(self, path: KeyPath, entry: Mapping[str, object]) -> None:
        faults_before = len(self.faults)
        self.faults += unknown_keys(entry, _KNOWN_KEYS, self._places, path)
        user = self._name(path, entry, "user")
        client_id = self._name(path, entry, "client_id")
        ip = self._name(path, entry, "ip")
        limits, removed = self._limits(path, entry)
        keys = [*limits, *removed]
        if len(self.faults) > faults_before:
            return
        if user is None and client_id is None and ip is None:
            self._fault(
                path,
                "for nobody",
                f"Add user, {self._default('user')}, client_id or {self._default('client_id')}.",
            )
        elif ip is not None and not (user is None and client_id is None):
            self._fault(
                path, "for an ip and somebody else", f"Write {self._notation.a_one} for each."
            )
        elif self._is_of_another(path, keys, QuotaEntity(user, client_id, ip)):
            return
        elif not keys:
            missing = (
                CONNECTION_RATE_KEY if ip is not None else f"one of {', '.join(_KEYS_OF_CLIENTS)}"
            )
            self._fault(path, "limits nothing", f"Add {missing}.")
        else:
            self._add(path, QuotaEntity(user, client_id, ip), limits, removed)

    def _default(self, key: str) -> str:
        return self._notation.line(f"{key}_default", "true")

    def _is_of_another(self, path: KeyPath, limits: Iterable[str], entity: QuotaEntity) -> bool:
        """True where a limit is one that such an entity cannot have."""
        wrong = [key for key in limits if not KEYS[key].fits(entity.types)]
        line = self._notation.line
        for key in wrong:
            if KEYS[key].of_user:
                whose, there = "a user has", f"{line('user', '…')} or {self._default('user')} alone"
            elif KEYS[key].of_ip:
                whose, there = "an ip has", f"{line('ip', '…')} or {self._default('ip')}"
            else:
                whose = "users and client ids have"
                there = f"{line('user', '…')} or {line('client_id', '…')}"
            remedy = f"Write it into {self._notation.a_one} with {there}."
            self._fault((*path, key), f"a limit that only {whose}", remedy)
        return bool(wrong)

    def _add(
        self,
        path: KeyPath,
        entity: QuotaEntity,
        limits: dict[str, float],
        removed: Iterable[str],
    ) -> None:
        first = self._path_of.setdefault(entity, path)
        if first is not path:
            problem = f"{entity} has its quotas at {self._places.of(*first)} already"
            self._fault(
                path, problem, f"Write all quotas of one entity in one {self._notation.one}."
            )
            return
        if limits:
            self.quotas[entity] = limits
        self.removed.update((entity, key) for key in removed)

    def _name(self, path: KeyPath, entry: Mapping[str, object], key: str) -> EntityName:
        default_key = f"{key}_default"
        name = entry.get(key)
        is_default = entry.get(default_key)
        if name is not None and is_default is not None:
            self._fault((*path, default_key), f"given together with {key}", "Keep one of the two.")
        elif is_default is not None:
            if is_default is True:
                return DEFAULT
            self._fault((*path, default_key), "not true", "Write true, or leave the line out.")
        elif name == "":
            self._fault(
                (*path, key),
                "an empty name",
                f"Write a name, or {self._default(key)} for all others.",
            )
        elif isinstance(name, str):
            return name
        elif name is not None:
            written = self._notation.line(key, '"orders"')
            self._fault((*path, key), "not a text", f"Write it in quotes, e.g. {written}.")
        return None

    def _limits(
        self, path: KeyPath, entry: Mapping[str, object]
    ) -> tuple[dict[str, float], list[str]]:
        limits: dict[str, float] = {}
        removed: list[str] = []
        for key in KEYS:
            if key not in entry:
                continue
            written = entry[key]
            if self._notation.has_removals and written == NONE:
                removed.append(key)
                continue
            try:
                limits[key] = self._limit(key, written)
            except LimitError as error:
                self._fault((*path, key), error.problem, error.remedy)
        return limits, removed

    def _limit(self, key: str, written: object) -> float:
        if not self._notation.has_removals:
            return parse_value(key, written)
        if written is None:
            problem, remedy = "has no value", f"Write a limit, or {NONE} where there shall be none."
            raise LimitError(problem, remedy)
        if isinstance(written, float) and not isfinite(written):
            return unreachable_value(key, written)
        return parse_value(key, written)

    def _fault(self, path: KeyPath, problem: str, remedy: str) -> None:
        self.faults.append(Fault(self._places.named(*path), problem, remedy))
