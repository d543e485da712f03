"""The ``[[quota]]`` tables of a quotas file are checked one by one, and all faults collected."""

from collections.abc import Iterable, Mapping

from kvota.model.client_quotas import CONNECTION_RATE_KEY, KEYS
from kvota.model.errors import Fault
from kvota.model.quota_entity import DEFAULT, EntityName, QuotaEntity
from kvota.model.quota_type import TYPE_OF_KEY
from kvota.store.quota_limit import LimitError, parse_value
from kvota.store.toml_file import unknown_keys
from kvota.store.toml_places import KeyPath, Places

_ENTITY_KEYS = ("user", "user_default", "client_id", "client_id_default")
_IP_KEYS = ("ip", "ip_default")
_KNOWN_KEYS = (*_ENTITY_KEYS, *_IP_KEYS, *TYPE_OF_KEY, CONNECTION_RATE_KEY)
_REMEDIES_ABOVE = dict.fromkeys(_KNOWN_KEYS, "It belongs to an entry: write [[quota]] above it.")


class EntriesReader:
    """Collects the quotas and the faults of one file."""

    def __init__(self, places: Places) -> None:
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.faults: list[Fault] = []
        self._places = places
        self._path_of: dict[QuotaEntity, KeyPath] = {}

    def read(self, data: Mapping[str, object]) -> None:
        """Read the data of a whole file."""
        self.faults += unknown_keys(data, ["quota"], self._places, remedies=_REMEDIES_ABOVE)
        entries = data.get("quota", [])
        if not isinstance(entries, list):
            self._fault(("quota",), "one table or value", "Write [[quota]], with two brackets.")
            return
        for number, entry in enumerate(entries):
            path = ("quota", number)
            if isinstance(entry, dict):
                self._read_entry(path, entry)
            else:
                self._fault(path, "not a table", 'Write [[quota]] and below it e.g. user = "a".')

    def _read_entry(self, path: KeyPath, entry: Mapping[str, object]) -> None:
        faults_before = len(self.faults)
        self.faults += unknown_keys(entry, _KNOWN_KEYS, self._places, path)
        user = self._name(path, entry, "user")
        client_id = self._name(path, entry, "client_id")
        ip = self._name(path, entry, "ip")
        limits = self._limits(path, entry)
        if len(self.faults) > faults_before:
            return
        if user is None and client_id is None and ip is None:
            self._fault(
                path,
                "for nobody",
                "Add user, user_default = true, client_id or client_id_default = true.",
            )
        elif ip is not None and not (user is None and client_id is None):
            self._fault(path, "for an ip and somebody else", "Write a [[quota]] for each.")
        elif self._is_of_another(path, limits, of_ip=ip is not None):
            return
        elif not limits:
            missing = CONNECTION_RATE_KEY if ip is not None else f"one of {', '.join(TYPE_OF_KEY)}"
            self._fault(path, "limits nothing", f"Add {missing}.")
        else:
            self._add(path, QuotaEntity(user, client_id, ip), limits)

    def _is_of_another(self, path: KeyPath, limits: Iterable[str], *, of_ip: bool) -> bool:
        """True where a limit is one that such an entity cannot have."""
        wrong = [key for key in limits if KEYS[key].of_ip != of_ip]
        for key in wrong:
            whose = "an ip has" if KEYS[key].of_ip else "users and client ids have"
            there = (
                "ip = … or ip_default = true" if KEYS[key].of_ip else "user = … or client_id = …"
            )
            remedy = f"Write it into a [[quota]] with {there}."
            self._fault((*path, key), f"a limit that only {whose}", remedy)
        return bool(wrong)

    def _add(self, path: KeyPath, entity: QuotaEntity, limits: dict[str, float]) -> None:
        first = self._path_of.setdefault(entity, path)
        if first is not path:
            problem = f"{entity} has its quotas at {self._places.of(*first)} already"
            self._fault(path, problem, "Write all quotas of one entity in one [[quota]].")
            return
        self.quotas[entity] = limits

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
                f"Write a name, or {default_key} = true for all others.",
            )
        elif isinstance(name, str):
            return name
        elif name is not None:
            self._fault((*path, key), "not a text", f'Write it in quotes, e.g. {key} = "orders".')
        return None

    def _limits(self, path: KeyPath, entry: Mapping[str, object]) -> dict[str, float]:
        limits = {}
        for key in (*TYPE_OF_KEY, CONNECTION_RATE_KEY):
            if key in entry:
                try:
                    limits[key] = parse_value(key, entry[key])
                except LimitError as error:
                    self._fault((*path, key), error.problem, error.remedy)
        return limits

    def _fault(self, path: KeyPath, problem: str, remedy: str) -> None:
        self.faults.append(Fault(self._places.named(*path), problem, remedy))
