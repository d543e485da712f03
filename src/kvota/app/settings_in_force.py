"""Settings changed dynamically: tried, stored, put in force, and followed where several gateways share them."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from kvota.app.check_callback import placed
from kvota.app.config import GatewayConfig
from kvota.app.dynamic_settings import RunningConfig, overlaid, refusal_of
from kvota.app.quota_opening import refusal_of_settings
from kvota.gateway.callback_in_force import PreparedCallback
from kvota.gateway.callback_loading import CallbackLoading
from kvota.gateway.gateway import Gateway
from kvota.model.broker_settings import DescribedSetting, Settings, with_changes
from kvota.model.errors import ConfigurationError, KvotaError
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.session.outside import AlterSettings, Refusal, StoreQuotas
from kvota.store.quota_store import QuotaStore
from kvota.wire.error_code import ErrorCode

log = logging.getLogger("kvota.gateway")

# What is stored and cannot be put in force is tried again: after so long, then twice as long, up to the second.
_RETRY_S, _RETRY_S_MAX = 1.0, 60.0


class SettingsInForce:
    """Puts in force what is set dynamically, or keeps everything as it is and says why.

    Args:
        running: what the gateway runs by.
        gateway: what settings are put in force in.
        store: where they are kept.
    """

    def __init__(self, running: RunningConfig, gateway: Gateway, store: QuotaStore) -> None:
        self._running = running
        self._gateway = gateway
        self._store = store
        self._changed = asyncio.Event()
        self._retry_s = _RETRY_S
        store.on_settings = self._changed.set

    # ------------------------------------------------------------------ what sessions see

    @property
    def stored(self) -> Settings:
        """What is set dynamically."""
        return self._store.settings

    @property
    def described(self) -> Sequence[DescribedSetting]:
        """All settings, as they are in force."""
        return self._running.described

    @property
    def refusal(self) -> Refusal | None:
        """Why nobody may alter them; None: who has the right may."""
        return refusal_of_settings(self._running.written, self._store)

    @property
    def may_lag(self) -> bool:
        """Whether other gateways alter them, too."""
        return self._store.may_lag

    # ------------------------------------------------------------------ what is done

    async def alter(self, errand: AlterSettings) -> Refusal | None:
        """Try the settings, store them, and put them in force; returns why that was not done."""
        async with self._gateway.quota_callback.changing:
            try:
                return await self._alter(errand)
            except KvotaError as error:
                return Refusal(ErrorCode.INVALID_CONFIG, str(error))
            except Exception:  # a fault of ours: somebody waits for an answer
                log.exception("settings could not be altered")
                return Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, None)

    async def _alter(self, errand: AlterSettings) -> Refusal | None:
        written, stored = self._running.written, self._store.settings
        refusal = self.refusal or refusal_of(written, stored, errand.changes)
        if refusal is not None:
            return refusal
        after = with_changes(stored, errand.changes)
        callback = await self._prepared(after)
        is_stored = False
        try:
            if errand.validate_only:
                return None
            refusal = await self._stored(errand)
            # Another gateway may have changed them, too.
            is_stored = refusal is None and self._store.settings == after
        finally:
            if callback is not None and not is_stored:
                self._gateway.quota_callback.discard(callback)
        if is_stored:
            self._put_in_force(after, callback)
        elif refusal is None:
            await self._catch_up()
        return refusal

    async def follow(self) -> None:
        """Put in force what other gateways have stored, and what could not be in force before, until cancelled."""
        while True:
            await self._wait()
            async with self._gateway.quota_callback.changing:
                try:
                    await self._catch_up()
                except Exception:  # a fault of ours must not end the traffic
                    log.exception("settings could not be followed")

    async def _wait(self) -> None:
        """Until others are stored; where those that are stored are not in force, until these are tried again."""
        quota_callback = self._gateway.quota_callback
        while not self._changed.is_set():
            is_behind = self._store.settings != self._running.settings
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), self._retry_s if is_behind else None)
            self._retry_s = min(2 * self._retry_s, _RETRY_S_MAX)
            if (
                is_behind and not quota_callback.is_loading
            ):  # where one hangs, another one would, too
                break
        if self._changed.is_set():
            self._changed.clear()
            self._retry_s = _RETRY_S

    async def _catch_up(self) -> None:
        """Put in force what is stored; what cannot be is said once, and the settings in force stay."""
        failed = None
        while (settings := self._store.settings) not in (self._running.settings, failed):
            try:
                callback = await self._prepared(settings)
            except KvotaError as error:
                failed, words = settings, not_in_force(error)
                if words != self._running.said:
                    log.error("%s", words)  # noqa: TRY400  (its text says all)
                self._running.said = words
            else:
                self._put_in_force(settings, callback)

    async def _prepared(self, settings: Settings) -> PreparedCallback | None:
        """The callback of these settings; None: it is the one in force.

        Raises:
            UsageError: they cannot be in force.
        """
        chosen = overlaid(self._running.written, settings).kafka.callback
        if chosen == self._running.config.kafka.callback:
            return None
        return await self._gateway.quota_callback.prepare(chosen, self._store.quotas.configured())

    async def _stored(self, errand: AlterSettings) -> Refusal | None:
        done: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        self._store.alter(StoreQuotas((), errand.by, errand.changes), done.set_result)
        return await done

    def _put_in_force(self, settings: Settings, callback: PreparedCallback | None) -> None:
        running, gateway = self._running, self._gateway
        names = sorted(
            name
            for name in {**running.settings, **settings}
            if running.settings.get(name) != settings.get(name)
        )
        if not names:
            return
        running.replace(running.written, settings)
        running.said = ""
        config = running.config
        gateway.put_in_force(
            gateway.shared.engine.quotas,
            enforced=config.gateway.connection.enforced,
            windows=config.windows,
            buckets=config.quotas.buckets,
            factored=config.factored,
            callback=callback,
            connection_rates=config.gateway.connection_rates,
        )
        log.info("other settings are in force now: %s", ", ".join(names))


def not_in_force(error: KvotaError) -> str:
    """What is said where stored settings cannot be put in force."""
    return (
        f"the settings that are set dynamically are not in force: {error}. They are tried again; set others, "
        "or delete them"
    )


def begin_with(
    config: GatewayConfig, store: QuotaStore
) -> tuple[RunningConfig, ClientQuotaCallback]:
    """Begin with the stored settings and their callback; where these cannot be had, with the file's.

    Raises:
        ConfigurationError: the file's callback cannot be had, either.
    """
    quotas = store.quotas.configured()
    of_file = config.kafka.callback
    try:
        running = RunningConfig(config, store.settings)
        chosen = running.config.kafka.callback
        if chosen != of_file:
            return running, CallbackLoading(chosen, quotas).result()
    except KvotaError as error:
        running = RunningConfig(config)
        running.said = not_in_force(error)
        log.error("%s", running.said)  # noqa: TRY400  (its text says all)
    try:
        return running, CallbackLoading(of_file, quotas).result()
    except ConfigurationError as error:
        raise placed(error, config) from None
