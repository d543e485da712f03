"""A volume source or throttle-factor source of somebody's own, kept apart: it may raise, hang or answer nonsense."""

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from threading import Event
from typing import Any

from kvota.app.check_callback import placed
from kvota.app.config import GatewayConfig
from kvota.app.look_thread import LookThread
from kvota.callbacks import own_module
from kvota.callbacks.faults import text_of, words_of
from kvota.model.errors import CallbackError, ConfigurationError, Fault
from kvota.volumes import Observation, Status
from kvota.volumes.settings import FACTOR_SOURCE, SOURCE, VolumeSettings
from kvota.volumes.sources import checked_factor, checked_volumes

# It has so long to be imported, made and configured, and to be closed.
LOAD_S, CLOSE_S = 30.0, 2.0


class OwnSource:
    """Asks one source on a thread of its own, one call after the other: it may hang."""

    def __init__(
        self, source: object, name: str, thread: LookThread[Observation], *, tells_factor: bool
    ) -> None:
        """``load_own_source`` makes one."""
        self._source: Any = source
        self._name = name
        self._thread = thread
        self._tells_factor = tells_factor

    async def observe(self, timeout_s: float) -> Observation:
        """Look once; never raises, and ends after ``timeout_s``."""
        found = await self._thread.look(self._look, timeout_s)
        return found or Observation(status=Status.SAFETY_TIMEOUT, reason=self._hang())

    async def close(self) -> None:
        """Close it behind the call that runs; where that hangs it is left to itself."""
        ended = Event()

        def close() -> None:
            with suppress(BaseException):  # nothing depends on it any more
                getattr(self._source, "close", _nothing)()
            ended.set()

        self._thread.put(close)
        self._thread.put(None)
        await asyncio.to_thread(ended.wait, CLOSE_S)

    def _look(self) -> Observation:
        """On the thread."""
        try:
            if self._tells_factor:
                factor = checked_factor(self._source, self._source.factor())
                return Observation(status=Status.SUCCESS, factor=factor)
            volumes = checked_volumes(self._source, self._source.volumes())
            broker_ids = sorted({volume.broker_id for volume in volumes} - {-1})
            return Observation(status=Status.SUCCESS, volumes=volumes, broker_ids=broker_ids)
        except CallbackError as error:
            return Observation(status=Status.EXCEPTION, reason=str(error))
        except BaseException as error:  # noqa: BLE001  (whatever it raises, SystemExit too, is a look that has failed)
            place, words = words_of(error, own_module.file_of(type(self._source).__module__))
            where = f" ({place})" if place else ""
            return Observation(
                status=Status.EXCEPTION, reason=f"{self._name} raises {words}{where}"
            )

    def _hang(self) -> str:
        place = self._thread.line_in(self._name.partition(".")[0])
        where = f" ({place})" if place else ""
        return f"{self._name} has not answered for {self._thread.looking_for_s:.1f} s{where}"


def _nothing(*_arguments: object) -> None:
    """The method need not be there."""


def load_own_source(settings: VolumeSettings) -> OwnSource:
    """Import, make and configure the class that the settings name.

    Raises:
        ConfigurationError: there is no such class, it lacks its method, or cannot be made and configured in time. The
            place of a fault is the name of a property, or a line of the class's own file.
    """
    key = FACTOR_SOURCE if settings.tells_factor else SOURCE
    thread: LookThread[Observation] = LookThread("kvota-own-source")
    loaded: Future[object] = Future()

    def load() -> None:
        try:
            loaded.set_result(_loaded(settings, key))
        except BaseException as error:  # noqa: BLE001  (whatever it is, somebody waits for it)
            loaded.set_exception(error)

    thread.put(load)
    name = settings.own_class
    try:
        source = loaded.result(LOAD_S)
    except TimeoutError:
        place = thread.line_in(name.partition(".")[0])
        problem = f"{name} has not been made and configured within {LOAD_S:g} s"
        raise _fault(place or key, problem, "See what it waits for.") from None
    return OwnSource(source, name, thread, tells_factor=settings.tells_factor)


def open_own_source(config: GatewayConfig) -> OwnSource | None:
    """Load the source of one's own that gateway.toml names; None: it names none.

    Raises:
        ConfigurationError: it cannot be had; with the line of the file, or of the source.
    """
    if not config.kafka.volumes.own_class:
        return None
    try:
        return load_own_source(config.kafka.volumes)
    except ConfigurationError as error:
        raise placed(error, config) from None


def _loaded(settings: VolumeSettings, key: str) -> object:
    name = settings.own_class
    of_class = _class(name, key)
    method = "factor" if settings.tells_factor else "volumes"
    if not callable(getattr(of_class, method, None)):
        problem = f"{name} has no method {method}"
        raise _fault(key, problem, f"Write def {method}(self), see docs/volumes.md.")
    file = own_module.file_of(of_class.__module__)
    try:
        source = of_class()
    except BaseException as error:
        place, words = words_of(error, file)
        raise _fault(place or key, f"{name}() fails: {words}", "Mend it.") from error
    try:
        getattr(source, "configure", _nothing)(dict(settings.own_properties))
    except BaseException as error:
        text = text_of(error, str)
        of_property = text.partition(":")[0]
        if isinstance(error, ValueError) and of_property in settings.own_properties:
            problem = text.removeprefix(f"{of_property}:").strip()
            of_key = f"{key}.{of_property}"
            raise _fault(of_key, problem, "Correct it.") from error
        place, words = words_of(error, file)
        problem = f"{name} cannot be configured: {words}"
        raise _fault(place or key, problem, "Correct it, or its properties.") from error
    return source


def _class(name: str, key: str) -> Any:
    module_name, _, class_name = name.rpartition(".")
    try:
        module = own_module.imported(module_name)
    except ModuleNotFoundError as error:
        problem = f"{module_name} cannot be imported: {error}"
        remedy = "It must be installed where kvota runs, or be on PYTHONPATH."
        raise _fault(key, problem, remedy) from error
    except BaseException as error:
        place, words = words_of(error, own_module.file_of(module_name))
        raise _fault(place or key, f"importing {module_name} fails: {words}", "Mend it.") from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise _fault(key, f"{module_name} has no class {class_name}", "Correct the name.")
    return found


def _fault(place: str, problem: str, remedy: str) -> ConfigurationError:
    return ConfigurationError([Fault(place, problem, remedy)])
