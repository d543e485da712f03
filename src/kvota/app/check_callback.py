"""What is wrong with a quota callback: it is loaded, and each of its methods is called once."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from time import monotonic

from kvota.app.config import GatewayConfig, read_config
from kvota.app.dynamic_settings import overlaid
from kvota.app.quota_opening import stored_document
from kvota.app.quota_settings import QuotaSourceKind
from kvota.callbacks.faults import call_in, call_of, fault_of, place_of_method
from kvota.callbacks.loading import is_kvotas_own
from kvota.engine.question import Answer, ask
from kvota.gateway.callback_loading import CallbackLoading
from kvota.model.broker_settings import NO_SETTINGS, Settings
from kvota.model.client_quotas import ClientQuotas
from kvota.model.cluster_view import BrokerView, ClusterView, TopicView
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import CallbackError, ConfigurationError, Fault, UsageError
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType, counter_node_id
from kvota.store.quotas_file import load_client_quotas

# KIP-257's types.
_TYPES = (
    QuotaType.PRODUCE,
    QuotaType.FETCH,
    QuotaType.REQUEST,
    QuotaType.CONTROLLER_MUTATION,
)
# What is asked about, beside those who have quotas.
_USER, _CLIENT_ID = "kvota-check", "kvota-check"
_CLIENTS_MAX = 100
# A request waits for one second; a callback that is told something may take longer.
_ANSWER_S, _TELL_S = 1.0, 10.0
_CLUSTER = ClusterView(
    cluster_id="kvota-check",
    brokers={1: BrokerView(1, ("127.0.0.1", 9092))},
    topics={"kvota-check": TopicView("kvota-check", (1,))},
)


def placed(
    error: ConfigurationError, config: GatewayConfig, settings: Settings = NO_SETTINGS
) -> ConfigurationError:
    """The same faults, with the line of gateway.toml where one is a property's that stands there."""
    places = {**config.kafka.places, **{name: f"{name}, set dynamically" for name in settings}}
    faults = [
        replace(fault, place=places.get(fault.place, f"{config.path}: kafka.{fault.place}"))
        if fault.place.startswith("client.quota.callback.")
        else fault
        for fault in error.faults
    ]
    return ConfigurationError(faults)


def check_files(path: Path) -> tuple[GatewayConfig, ClientQuotas, ClientQuotaCallback]:
    """Read gateway.toml and the quotas it names, load the callback and call each of its methods once.

    Raises:
        ConfigurationError: with every fault that was found in any of them, each with its place.
    """
    config, faults = read_config(path)
    quotas, settings, of_quotas = _quotas(config, faults)
    faults += of_quotas
    try:
        config = overlaid(config, settings)
    except UsageError as error:
        faults.append(Fault(str(config.quotas.file), str(error), "Set another one, or delete it."))
    try:
        callback = _loaded(config, settings, quotas.configured())
    except ConfigurationError as error:
        # What the reader has found itself, a callback of kvota's own finds again.
        faults += [fault for fault in error.faults if fault not in faults]
        raise ConfigurationError(faults) from None
    if faults:
        raise ConfigurationError(faults)
    return config, quotas, callback


def _quotas(
    config: GatewayConfig, faults: list[Fault]
) -> tuple[ClientQuotas, Settings, list[Fault]]:
    """The configured quotas, the settings that are kept with them, and what is wrong with them."""
    if any(fault.place.endswith((": quotas.file", ": quotas.source")) for fault in faults):
        return ClientQuotas(), NO_SETTINGS, []
    if config.quotas.source is not QuotaSourceKind.TOML:
        stored, words = stored_document(config)
        if words is None:
            return stored.quotas, stored.settings, []
        problem, _, remedy = words.removeprefix(f"{config.quotas.file} ").partition(". ")
        return stored.quotas, stored.settings, [Fault(str(config.quotas.file), problem, remedy)]
    try:
        return load_client_quotas(config.quotas.file, named_by=config.path), NO_SETTINGS, []
    except ConfigurationError as error:
        return ClientQuotas(), NO_SETTINGS, error.faults


def _loaded(
    config: GatewayConfig, settings: Settings, quotas: ConfiguredQuotas
) -> ClientQuotaCallback:
    """Load the callback of the settings, and call its methods where somebody else has written them.

    Raises:
        ConfigurationError: something is wrong with it.
    """
    try:
        callback = CallbackLoading(config.kafka.callback, quotas).result()
    except ConfigurationError as error:
        raise placed(error, config, settings) from None
    faults = [] if is_kvotas_own(callback) else _Probe(callback).faults(quotas)
    if faults:
        raise ConfigurationError(faults)
    return callback


class _Probe:
    """Calls the methods of a callback, each on a thread of its own, as the gateway would."""

    def __init__(self, callback: ClientQuotaCallback) -> None:
        self._callback = callback
        self._found: dict[tuple[str, str], Fault] = {}

    def faults(self, quotas: ConfiguredQuotas) -> list[Fault]:
        """Of each method the first of each kind."""
        callback = self._callback
        self._call("update_cluster_metadata", lambda: self._is_yes_or_no("update_cluster_metadata", _CLUSTER))  # fmt: skip
        for quota_type in _TYPES:
            for user, client_id in _clients(quotas):
                self._ask(quota_type, user, client_id)
            self._call("quota_reset_required", lambda of_type=quota_type: self._is_yes_or_no("quota_reset_required", of_type))  # type: ignore[misc]  # fmt: skip
            entity = QuotaEntity(user=_USER)
            self._call("update_quota", lambda of_type=quota_type, entity=entity: callback.update_quota(of_type, entity, 1.0))  # type: ignore[misc]  # fmt: skip
            self._call("remove_quota", lambda of_type=quota_type, entity=entity: callback.remove_quota(of_type, entity))  # type: ignore[misc]  # fmt: skip
        self._call("close", callback.close)
        return list(self._found.values())

    def _ask(self, quota_type: QuotaType, user: str, client_id: str) -> None:
        def question() -> Answer:
            node_id = counter_node_id(quota_type, 1)
            return ask(self._callback, quota_type, node_id, user, client_id)

        self._call("quota_metric_tags", question, at_most_s=_ANSWER_S)

    def _is_yes_or_no(self, method: str, argument: object) -> None:
        answer = getattr(self._callback, method)(argument)
        if not isinstance(answer, bool):
            raise CallbackError(self._callback, method, answer, "True or False")

    def _call(self, method: str, call: Callable[[], object], *, at_most_s: float = _TELL_S) -> None:
        if any(found == method for found, text in self._found if text == _HANGS):
            return  # it would hang again
        raised: list[BaseException] = []

        def run() -> None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001  (whatever it is, it is to be said)
                raised.append(error)

        thread = Thread(target=run, daemon=True)
        began_s = monotonic()
        thread.start()
        thread.join(at_most_s)
        if thread.is_alive():
            self._note_hang(method, thread, monotonic() - began_s)
        elif raised:
            self._note(method, raised[0])

    def _note(self, method: str, error: BaseException) -> None:
        of_class = type(self._callback)
        if isinstance(error, CallbackError):
            fault = Fault(place_of_method(of_class, error.method), str(error), "Mend it.")
        else:
            found = call_of(self._callback, error.__traceback__)
            fault = fault_of(self._callback, found[0] if found else method, error)
        self._found.setdefault((method, f"{fault.place} {type(error).__name__}"), fault)

    def _note_hang(self, method: str, thread: Thread, seconds: float) -> None:
        of_class = type(self._callback)
        frames = sys._current_frames()  # noqa: SLF001  (made to find out where threads hang)
        found = call_in(self._callback, frames.get(thread.ident or 0))
        name, place = found or (method, place_of_method(of_class, method))
        problem = f"{of_class.__qualname__}.{name} has not come back for {seconds:.1f} s"
        remedy = (
            "A client that is new waits for one second at most, then counts by Kafka's own rules."
        )
        self._found.setdefault((method, _HANGS), Fault(place, problem, remedy))


_HANGS = "hangs"


def _clients(quotas: ConfiguredQuotas) -> Iterator[tuple[str, str]]:
    """Somebody who has no quota, and some of those who have."""
    yield _USER, _CLIENT_ID
    for entity in list(quotas.entries())[:_CLIENTS_MAX]:
        user = entity.user if isinstance(entity.user, str) else _USER
        yield user, entity.client_id if isinstance(entity.client_id, str) else _CLIENT_ID
