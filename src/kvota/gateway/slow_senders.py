"""Closes connections whose request does not arrive, or stands still where others need its room."""

from typing import NamedTuple

from kvota.gateway.driver import Driver
from kvota.gateway.places import Places
from kvota.gateway.settings import GatewayLimits
from kvota.session.pausing import AT_ONCE, Reason


class _Seen(NamedTuple):
    """A request that had begun when it was looked at last."""

    requests: int  # of its connection, before it
    arrived_bytes: int
    since_ms: float


class SlowSenders:
    """Looks at all connections from time to time, and remembers which requests it has seen.

    Args:
        places: where the connections are.
        limits: how long a request may take, and how much room there is.
    """

    def __init__(self, places: Places, limits: GatewayLimits) -> None:
        self._places = places
        self._limits = limits
        self._seen: dict[int, _Seen] = {}  # by number: it must not keep connections alive

    def sweep(self, now_ms: float) -> None:
        """Close who has taken too long, on a monotonic clock."""
        seen_before, self._seen = self._seen, {}
        for driver in self._places:
            reason = self._why_in_the_way(driver)
            if not reason and _waits_for_client(driver):
                number = driver.number
                before = seen_before.get(number)
                now = _Seen(driver.machine.requests, driver.machine.arrived_bytes, now_ms)
                if before is None or before.requests != now.requests:
                    self._seen[number] = now
                    continue
                self._seen[number] = now._replace(since_ms=before.since_ms)
                reason = self._why_too_late(driver, before, now)
            if reason:
                driver.close(reason)

    def _why_in_the_way(self, driver: Driver) -> str:
        """A reason when a request that waits here keeps room in the budget from others."""
        machine = driver.machine
        waits = machine.pausing.reasons & ~AT_ONCE and not machine.is_inside_frame
        if not waits or not machine.keeps_others_waiting:
            return ""
        return (
            f"muted with {machine.arrived_bytes} bytes of a request, and others wait for room "
            "(limits.announced_bytes_max)"
        )

    def _why_too_late(self, driver: Driver, before: _Seen, now: _Seen) -> str:
        limits, machine = self._limits, driver.machine
        allowed_ms = limits.frame_ms + now.arrived_bytes * 1000 // limits.frame_bytes_per_s_min
        if now.since_ms - before.since_ms < allowed_ms:
            if now.arrived_bytes != before.arrived_bytes or not machine.keeps_others_waiting:
                return ""
            return (
                f"its request stands still at {now.arrived_bytes} bytes, and others wait for room "
                "(limits.announced_bytes_max)"
            )
        if machine.pausing.reasons & Reason.BUDGET:
            return (
                f"no room for its request in {allowed_ms} ms (limits.announced_bytes_max, "
                f"{limits.announced_bytes_max} bytes)"
            )
        return f"no whole request in {allowed_ms} ms; {now.arrived_bytes} bytes of one are here"


def _waits_for_client(driver: Driver) -> bool:
    """True while it is the client's turn: a request has begun and not ended, or none has gone on."""
    return driver.machine.incomplete or not driver.has_asked
