"""A quota callback by the name of its class: ``client.quota.callback.class``."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType

from kvota.callbacks import own_module
from kvota.callbacks.default import DefaultQuotaCallback
from kvota.callbacks.faults import class_faults, fault_of, text_of, words_of
from kvota.callbacks.grouped import GROUP_PREFIX, GroupQuotaCallback
from kvota.callbacks.partition_share import SHARE_PREFIX, PartitionShareQuotaCallback
from kvota.callbacks.static import StaticQuotaCallback
from kvota.model.broker_settings import CALLBACK_CLASS, CALLBACK_PREFIX
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import ConfigurationError, Fault
from kvota.model.quota_callback import ClientQuotaCallback

# What kvota has itself: by its name, and by that of the Java class it stands for.
_OWN: Mapping[str, type[ClientQuotaCallback]] = {
    "kvota.callbacks.DefaultQuotaCallback": DefaultQuotaCallback,
    "kvota.callbacks.GroupQuotaCallback": GroupQuotaCallback,
    "kvota.callbacks.PartitionShareQuotaCallback": PartitionShareQuotaCallback,
    "kvota.callbacks.StaticQuotaCallback": StaticQuotaCallback,
    "io.strimzi.kafka.quotas.StaticQuotaCallback": StaticQuotaCallback,
}


# Which properties these have beside those that full disks throttle by; what they do not know is refused. A class
# of somebody's own may have any.
_PREFIXES: Mapping[type[ClientQuotaCallback], tuple[str, ...]] = {
    DefaultQuotaCallback: (),
    StaticQuotaCallback: (),
    GroupQuotaCallback: (GROUP_PREFIX,),
    PartitionShareQuotaCallback: (GROUP_PREFIX, SHARE_PREFIX),
}


@dataclass(frozen=True, slots=True, eq=False)
class ChosenCallback:
    """Which class, and the properties that it is configured with, in their order."""

    class_name: str = "kvota.callbacks.DefaultQuotaCallback"
    properties: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __eq__(self, other: object) -> bool:
        """True for the same class with the same properties in the same order: groups have one."""
        if not isinstance(other, ChosenCallback):
            return NotImplemented
        mine, others = list(self.properties.items()), list(other.properties.items())
        return (self.class_name, mine) == (other.class_name, others)

    __hash__ = None  # type: ignore[assignment]  # nobody looks things up by it

    @property
    def is_default(self) -> bool:
        """True for Kafka's own rules."""
        return _OWN.get(self.class_name) is DefaultQuotaCallback

    @property
    def is_static(self) -> bool:
        """True for the one limit for all, which knows itself who is excluded."""
        return _OWN.get(self.class_name) is StaticQuotaCallback

    @property
    def is_own(self) -> bool:
        """True for a class that kvota has itself."""
        return self.class_name in _OWN

    @property
    def has_changed(self) -> bool:
        """True where its module's file is another one than when it was loaded."""
        return not self.is_own and own_module.has_changed(self.class_name.rpartition(".")[0])


def is_kvotas_own(callback: ClientQuotaCallback) -> bool:
    """True where nobody else has written any of it."""
    return type(callback) in _OWN.values()


def names_of_own() -> tuple[str, ...]:
    """Names of the callbacks that kvota has itself."""
    return tuple(_OWN)


def prefixes_of(class_name: str) -> tuple[str, ...]:
    """What the names of a callback's own properties begin with."""
    own = _OWN.get(class_name)
    return (CALLBACK_PREFIX,) if own is None else _PREFIXES[own]


def choose(class_name: str, properties: Mapping[str, str]) -> ChosenCallback:
    """A class, with those of these properties that it takes any notice of."""
    own = _OWN.get(class_name)
    if own is not None and own is not StaticQuotaCallback:
        prefixes = _PREFIXES[own]
        properties = {key: text for key, text in properties.items() if key.startswith(prefixes)}
    return ChosenCallback(class_name, properties)


def load_callback(
    name: str, properties: Mapping[str, str], quotas: ConfiguredQuotas
) -> ClientQuotaCallback:
    """Make the callback, configure it and tell it the quotas.

    For a thread of its own: its code may hang, and whatever it raises (``SystemExit``, too) is said as a fault.

    Args:
        name: dotted name of its class; importing it runs that module's code, so it must come from a
            file that only the operator writes.
        properties: for its ``configure``.
        quotas: those configured now.

    Raises:
        ConfigurationError: there is no such class, it is no ``ClientQuotaCallback``, lacks a method, or cannot
            be made, configured or told the quotas. The place of a fault is the name of a property, or a line of
            the class's own file; all that are found are there.
    """
    of_class = _OWN.get(name) or _class(name)
    faults = class_faults(name, of_class)
    if faults:
        raise ConfigurationError(faults)
    callback = _made(name, of_class, quotas)
    try:
        callback.configure(dict(properties))  # its own: it may take them apart
    except ConfigurationError:
        raise
    except BaseException as error:
        raise _refused(callback, error, name, properties) from error
    if not isinstance(callback, DefaultQuotaCallback):
        _tell_all(callback, quotas)
    callback.initial_quotas = quotas
    return callback


def _tell_all(callback: ClientQuotaCallback, quotas: ConfiguredQuotas) -> None:
    for entity, limits in quotas.entries().items():
        for quota_type, limit in limits.items():
            try:
                callback.update_quota(quota_type, entity, limit)
            except BaseException as error:
                what = f"update_quota({quota_type}, {entity}, {limit:g})"
                raise ConfigurationError([fault_of(callback, what, error)]) from error


def _refused(
    callback: ClientQuotaCallback, error: BaseException, name: str, properties: Mapping[str, str]
) -> ConfigurationError:
    """A ValueError whose text begins with the name of a property is that property's."""
    text = text_of(error, str)
    key = text.partition(":")[0]
    if isinstance(error, ValueError) and key in properties:
        problem = text.removeprefix(f"{key}:").strip()
        return ConfigurationError([Fault(key, problem, "Correct it.")])
    if type(error) is ValueError:  # whose text is written for whoever reads it
        problem = f"{name} cannot be configured: {text}"
        remedy = "Correct the properties that it is configured with."
        return ConfigurationError([Fault(CALLBACK_CLASS, problem, remedy)])
    return ConfigurationError([fault_of(callback, "configure", error)])


def _class(name: str) -> type[ClientQuotaCallback]:
    module_name, dot, class_name = name.rpartition(".")
    if not dot:
        problem = f'"{name}" is no dotted name'
        raise _no_class(problem, _instead(name))
    try:
        module = own_module.imported(module_name)
    except ModuleNotFoundError as error:
        problem = f"{module_name} cannot be imported: {error}"
        remedy = "It must be installed where kvota runs, or be on PYTHONPATH."
        raise _no_class(problem, f"{remedy} {_instead(name)}") from error
    except SyntaxError as error:
        place = f"{error.filename}:{error.lineno}"
        problem = f"{module_name} cannot be imported: {error.msg}"
        raise ConfigurationError([Fault(place, problem, "Correct this line.")]) from error
    except BaseException as error:
        place, words = words_of(error, own_module.file_of(module_name))
        problem = f"importing {module_name} fails: {words}"
        raise ConfigurationError([Fault(place or CALLBACK_CLASS, problem, _MEND)]) from error
    found = getattr(module, class_name, None)
    if found is None:
        problem = f"{module_name} has no {class_name}"
        raise _no_class(problem, _instead(name))
    if not isinstance(found, type) or not issubclass(found, ClientQuotaCallback):
        problem = f"{name} is no subclass of kvota.callbacks.ClientQuotaCallback"
        raise _no_class(problem, "Derive it from that class.")
    return found


_MEND = "Mend it, or choose another class."


def _made(
    name: str, of_class: type[ClientQuotaCallback], quotas: ConfiguredQuotas
) -> ClientQuotaCallback:
    try:
        return of_class(quotas) if issubclass(of_class, DefaultQuotaCallback) else of_class()
    except BaseException as error:
        place, words = words_of(error, own_module.file_of(of_class.__module__))
        problem = f"{name}() fails: {words}"
        raise ConfigurationError([Fault(place or CALLBACK_CLASS, problem, _MEND)]) from error


def _no_class(problem: str, remedy: str) -> ConfigurationError:
    return ConfigurationError([Fault(CALLBACK_CLASS, problem, remedy)])


def _instead(name: str) -> str:
    """The name that was probably meant; else those that kvota has."""
    short = {own.rpartition(".")[2]: own for own in _OWN if own.startswith("kvota.")}
    near = get_close_matches(name.rpartition(".")[2], short, n=1)
    if near:
        return f'Did you mean "{short[near[0]]}"?'
    return f"kvota has {', '.join(short.values())}."
