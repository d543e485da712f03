"""A quota callback by the name of its class: ``client.quota.callback.class``."""

import importlib
import inspect
from collections.abc import Mapping
from difflib import get_close_matches

from kvota.callbacks.default import DefaultQuotaCallback
from kvota.callbacks.grouped import GroupQuotaCallback
from kvota.callbacks.static import StaticQuotaCallback
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import UsageError
from kvota.model.quota_callback import ClientQuotaCallback

CALLBACK_CLASS = "client.quota.callback.class"

# What kvota has itself: by its name, and by that of the Java class it stands for.
_OWN: Mapping[str, type[ClientQuotaCallback]] = {
    "kvota.callbacks.DefaultQuotaCallback": DefaultQuotaCallback,
    "kvota.callbacks.GroupQuotaCallback": GroupQuotaCallback,
    "kvota.callbacks.StaticQuotaCallback": StaticQuotaCallback,
    "io.strimzi.kafka.quotas.StaticQuotaCallback": StaticQuotaCallback,
}


def load_callback(
    name: str, properties: Mapping[str, str], quotas: ConfiguredQuotas
) -> ClientQuotaCallback:
    """Make the callback and configure it.

    Args:
        name: dotted name of its class; importing it runs that module's code, so it must come from a
            file that only the operator writes.
        properties: Kafka's properties, for its ``configure``.
        quotas: those configured now; all but the default callback are told by ``update_quota``.

    Raises:
        UsageError: there is no such class, it is no ``ClientQuotaCallback``, lacks a method, or cannot
            be made or configured.
    """
    of_class = _OWN.get(name) or _class(name)
    if issubclass(of_class, DefaultQuotaCallback):
        callback: ClientQuotaCallback = of_class(quotas)
    else:
        callback = _made(name, of_class)
    try:
        callback.configure(properties)
        if callback.initial_quotas is not quotas:
            for entity, limits in quotas.entries().items():
                for quota_type, limit in limits.items():
                    callback.update_quota(quota_type, entity, limit)
            callback.initial_quotas = quotas
    except Exception as error:
        msg = f"{CALLBACK_CLASS}: {name} cannot be configured: {_words(error)}"
        raise UsageError(msg) from error
    return callback


def _class(name: str) -> type[ClientQuotaCallback]:
    module_name, dot, class_name = name.rpartition(".")
    if not dot:
        msg = f'{CALLBACK_CLASS}: "{name}" is no dotted name. {_instead(name)}'
        raise UsageError(msg)
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except ImportError as error:
        msg = (
            f"{CALLBACK_CLASS}: {module_name} cannot be imported: {error}. It must be installed where kvota "
            f"runs, or be on PYTHONPATH. {_instead(name)}"
        )
        raise UsageError(msg) from error
    except AttributeError as error:
        msg = f"{CALLBACK_CLASS}: {module_name} has no {class_name}. {_instead(name)}"
        raise UsageError(msg) from error
    except Exception as error:
        msg = f"{CALLBACK_CLASS}: importing {module_name} fails: {_words(error)}"
        raise UsageError(msg) from error
    if not inspect.isclass(found) or not issubclass(found, ClientQuotaCallback):
        msg = f"{CALLBACK_CLASS}: {name} is no subclass of kvota.callbacks.ClientQuotaCallback"
        raise UsageError(msg)
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        msg = f"{CALLBACK_CLASS}: {name} lacks {', '.join(missing)}"
        raise UsageError(msg)
    return found


def _made(name: str, of_class: type[ClientQuotaCallback]) -> ClientQuotaCallback:
    try:
        return of_class()
    except Exception as error:
        msg = f"{CALLBACK_CLASS}: {name}() fails: {_words(error)}"
        raise UsageError(msg) from error


def _instead(name: str) -> str:
    """The name that was probably meant; else those that kvota has."""
    short = {own.rpartition(".")[2]: own for own in _OWN if own.startswith("kvota.")}
    near = get_close_matches(name.rpartition(".")[2], short, n=1)
    if near:
        return f'Did you mean "{short[near[0]]}"?'
    return f"kvota has {', '.join(short.values())}"


def _words(error: Exception) -> str:
    # A ValueError's text is written for whoever reads it.
    return str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
