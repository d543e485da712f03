"""Loads a quota callback on a thread of its own: it may import what takes long, leave the process, or hang."""

import asyncio
import sys
from concurrent.futures import Future, InvalidStateError
from threading import Thread

from kvota.callbacks.faults import line_in_package
from kvota.callbacks.loading import ChosenCallback, load_callback
from kvota.gateway.callback_faults import CallbackFaults, FaultCounts
from kvota.model.broker_settings import CALLBACK_CLASS
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.errors import ConfigurationError, Fault
from kvota.model.quota_callback import ClientQuotaCallback

# A callback has so long to be imported, made, configured and told of all quotas.
LOAD_S = 30.0


class CallbackLoading:
    """One callback that is being loaded; whoever does not wait for it any more lets it be closed.

    Args:
        chosen: its class and properties.
        quotas: those configured now, which it is told.
        counted: counts a ``close`` that fails; None: nobody counts yet.
    """

    def __init__(
        self,
        chosen: ChosenCallback,
        quotas: ConfiguredQuotas,
        counted: FaultCounts | None = None,
    ) -> None:
        self._chosen = chosen
        self._quotas = quotas
        self._counted = counted or FaultCounts()
        # Nobody says that it runs, so it can be cancelled until it has a result.
        self._loaded: Future[ClientQuotaCallback] = Future()
        self._thread = Thread(target=self._load, name="kvota-callback-load", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether it is not there yet, and has not failed; also when nobody waits for it any more."""
        return self._thread.is_alive()

    def result(self) -> ClientQuotaCallback:
        """The callback, once it is there.

        Raises:
            ConfigurationError: it cannot be had, or not in time.
        """
        try:
            return self._loaded.result(LOAD_S)
        except TimeoutError:
            return self._leave()

    async def wait(self) -> ClientQuotaCallback:
        """The same for an event loop.

        Raises:
            ConfigurationError: it cannot be had, or not in time.
        """
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._loaded), LOAD_S)
        except TimeoutError:
            return self._leave()

    def _leave(self) -> ClientQuotaCallback:
        """Wait no longer; it may have come in this very moment."""
        self._loaded.cancel()
        if not self._loaded.cancelled():
            return self._loaded.result()
        name = self._chosen.class_name
        frame = sys._current_frames().get(self._thread.ident or 0)  # noqa: SLF001  (made to find out where threads hang)
        place = line_in_package(name.partition(".")[0], frame)
        problem = f"{name} has not been made and configured within {LOAD_S:g} s"
        remedy = "See what it waits for, or choose another class."
        raise ConfigurationError([Fault(place or CALLBACK_CLASS, problem, remedy)])

    def _load(self) -> None:
        chosen = self._chosen
        try:
            callback = load_callback(chosen.class_name, chosen.properties, self._quotas)
        except BaseException as error:  # noqa: BLE001  (whatever it is, somebody waits for it)
            if not self._loaded.cancelled():
                self._loaded.set_exception(error)
            return
        try:
            self._loaded.set_result(callback)
        except InvalidStateError:  # too late: nobody wants it any more
            _close(callback, self._counted)


def _close(callback: ClientQuotaCallback, counted: FaultCounts) -> None:
    try:
        callback.close()
    except BaseException as error:  # noqa: BLE001  (it is said, and nothing depends on it)
        CallbackFaults(callback, counted).note(error, "close")
