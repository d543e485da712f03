"""Looks at the volumes again and again, and puts the factor that follows in force."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from kvota.model.quota_type import QuotaType
from kvota.session.shared import Shared
from kvota.volumes import Observation, VolumeThrottle

log = logging.getLogger(__name__)

# So often it is looked whether the last observation is still valid: a look that hangs must not delay it.
_VALIDITY_LOOK_S = 10.0
# A factor that goes down in a line is logged at each such step, not at each look.
_STEP = 0.1

Observe = Callable[[], Awaitable[Observation]]


class VolumeWatch:
    """One task that looks, one that minds the time; both end with their task group.

    Args:
        observe: one look at all volumes; it never raises, and ends by itself.
        throttle: what follows from it.
        shared: where the factor is laid over the limits of PRODUCE.
        look_again: lets connections know that limits have changed.
        now_ms: tells how much time has passed, by a clock that nobody sets back or forth.
        interval_ms: from the end of one look to the next.
        on_look: called with each look when what follows from it is in force.
    """

    def __init__(  # noqa: PLR0913  (all of it is wired in one place)
        self,
        observe: Observe,
        throttle: VolumeThrottle,
        shared: Shared,
        *,
        look_again: Callable[[], None],
        now_ms: Callable[[], int],
        interval_ms: int,
        on_look: Callable[[Observation], None],
    ) -> None:
        self._observe = observe
        self._throttle = throttle
        self._shared = shared
        self._look_again = look_again
        self._now_ms = now_ms
        self._interval_s = interval_ms / 1000
        self._on_look = on_look
        self._in_force: Mapping[int | None, float] = {None: 1.0}
        self._logged = 1.0
        self._fallbacks = 0
        self._failed = False

    async def run(self) -> None:
        """Look until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._mind_the_time())
            while True:
                observation = await self._observe()
                self._throttle.take(observation, self._now_ms())
                self._say_how_it_went(observation)
                self._put_in_force()
                self._on_look(observation)
                await asyncio.sleep(self._interval_s)

    async def _mind_the_time(self) -> None:
        while True:
            await asyncio.sleep(_VALIDITY_LOOK_S)
            self._throttle.look(self._now_ms())
            self._put_in_force()

    def _put_in_force(self) -> None:
        self._say_fallback()
        factors = self._throttle.factors
        if factors == self._in_force:
            return
        engine = self._shared.engine
        for node_id in [node for node in self._in_force if node not in factors]:
            engine.set_factor(QuotaType.PRODUCE, 1.0, node_id=node_id)
        of_all = factors.get(None, 1.0)
        for node_id, factor in factors.items():
            # The engine multiplies a broker's own by that of all.
            own = factor if node_id is None or not of_all else factor / of_all
            engine.set_factor(QuotaType.PRODUCE, own, node_id=node_id)
        self._in_force = factors
        self._say_factor()
        self._look_again()

    def _say_how_it_went(self, observation: Observation) -> None:
        """Once when looks begin to fail, and once when they succeed again."""
        failed = not observation.succeeded
        if failed and not self._failed:
            log.warning(
                "volumes: %s: %s. The factor %.2f stays until its validity ends, then the fallback",
                observation.status,
                observation.reason,
                self._throttle.factor,
            )
        elif self._failed and not failed:
            log.info("volumes: they can be looked at again")
        self._failed = failed

    def _say_fallback(self) -> None:
        """Once when it comes into force, also where it is the factor that there was."""
        fallbacks, self._fallbacks = self._fallbacks, self._throttle.fallbacks
        if self._fallbacks > fallbacks and self._throttle.factors == self._in_force:
            log.warning(
                "volumes: produce factor %.2f, now as the fallback: no look has succeeded for the validity",
                self._throttle.factor,
            )

    def _say_factor(self) -> None:
        factor = self._throttle.factor
        is_at_an_end = factor in {0.0, 1.0} or self._logged in {0.0, 1.0}
        if factor == self._logged or not (is_at_an_end or abs(factor - self._logged) >= _STEP):
            return
        before, self._logged = self._logged, factor
        if self._throttle.is_fallback:
            log.warning("volumes: produce factor %.2f -> %.2f: the fallback", before, factor)
            return
        severe = self._throttle.verdict.most_severe
        if severe is None:
            log.info("volumes: produce factor %.2f -> %.2f", before, factor)
            return
        log.warning(
            "volumes: produce factor %.2f -> %.2f: broker %d %s has %d of %d bytes available",
            before,
            factor,
            severe.broker_id,
            severe.log_dir,
            severe.available_bytes,
            severe.total_bytes,
        )
