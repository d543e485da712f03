"""One line in the log when somebody's throttling begins, and one when it ends."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvota.metrics.cells import ADMITTED, REJECTED, THROTTLE_MS, THROTTLED, Cell, Cells
from kvota.metrics.counter_key import CounterKey
from kvota.model.quota_type import CLUSTER_NODE_ID
from kvota.model.units import format_duration_ms
from kvota.planning.plan_line import format_quota

log = logging.getLogger("kvota.gateway")

# Who is throttled again so soon has not stopped: each mute is followed by a request that goes through.
_QUIET_MS = 10_000
# A storm of throttled names is said in one line.
_LINES_MAX, _LINES_MS = 20, 10_000


@dataclass(slots=True)
class _Throttled:
    """One counter since it holds somebody back."""

    cell: Cell
    since_ms: int
    sums_before: list[float]


class ThrottleLog:
    """Says whose throttling begins and ends; a ``tally.HeldWatch``.

    Args:
        cells: where the sums are.
        source_of: where a counter's limit comes from, e.g. ``quotas.toml:4``; empty: nobody knows.
    """

    def __init__(self, cells: Cells, source_of: Callable[[CounterKey], str]) -> None:
        self._cells = cells
        self._source_of = source_of
        self._throttled: dict[CounterKey, _Throttled] = {}
        self._lines = 0
        self._unsaid = 0
        self._lines_since_ms = 0

    def held(self, cells: Sequence[Cell], now_ms: int) -> None:
        """Somebody was throttled or rejected on these, in force."""
        for cell in cells:
            known = self._throttled.get(cell.key)
            if known is not None and known.cell is cell:
                continue
            sums = self._cells.sums[:, cell.slot].tolist()
            self._throttled[cell.key] = _Throttled(cell, now_ms, sums)
            if self._may_say(now_ms):
                self._say_begin(cell, now_ms)

    def look(self, now_ms: int) -> None:
        """Some time has passed: whoever was not held back for a while is held back no more."""
        if self._unsaid and now_ms - self._lines_since_ms >= _LINES_MS:
            log.info("throttling begins or ends for %d others, too", self._unsaid)
            self._unsaid = 0
        for one in [one for one in self._throttled.values() if self._is_over(one.cell, now_ms)]:
            del self._throttled[one.cell.key]
            if one.cell.slot >= 0 and self._may_say(now_ms):
                self._say_end(one, now_ms)

    def _is_over(self, cell: Cell, now_ms: int) -> bool:
        """True for one that has left, has waited long enough, or goes on unhindered (its limit was raised)."""
        cells, slot = self._cells, cell.slot
        if slot < 0:
            return True
        last_held_ms = cells.refused_ms[slot]
        return bool(
            now_ms - cells.until_ms[slot] > _QUIET_MS
            or cells.last_ms[slot] - last_held_ms > _QUIET_MS
        )

    def _may_say(self, now_ms: int) -> bool:
        if not 0 <= now_ms - self._lines_since_ms < _LINES_MS:
            self._lines_since_ms, self._lines = now_ms, 0
        self._lines += 1
        if self._lines <= _LINES_MAX:
            return True
        self._unsaid += 1
        return False

    def _say_begin(self, cell: Cell, now_ms: int) -> None:
        limit = (
            ""
            if cell.limit is None
            else f", {format_quota(cell.key.quota_type, cell.limit)} allowed"
        )
        source = self._source_of(cell.key)
        wait_ms = self._cells.until_ms[cell.slot] - now_ms
        log.info(
            "throttling begins: %s%s%s; it has to wait %s",
            counter_text(cell.key),
            limit,
            f" by {source}" if source else "",
            format_duration_ms(max(0.0, wait_ms)),
        )

    def _say_end(self, one: _Throttled, now_ms: int) -> None:
        sums = self._cells.sums[:, one.cell.slot].tolist()
        since = [now - before for now, before in zip(sums, one.sums_before, strict=True)]
        end_ms = min(self._cells.until_ms[one.cell.slot], now_ms)
        log.info(
            "throttling ends: %s, after %s: %d of %d decisions held it back, for %s in all",
            counter_text(one.cell.key),
            format_duration_ms(max(0.0, end_ms - one.since_ms)),
            since[THROTTLED] + since[REJECTED],
            since[ADMITTED] + since[THROTTLED] + since[REJECTED],
            format_duration_ms(since[THROTTLE_MS]),
        )


def counter_text(key: CounterKey) -> str:
    """A counter as people read it; names are encoded as in records, so they stay on their line.

    >>> from kvota.model.quota_type import QuotaType
    >>> counter_text(CounterKey(QuotaType.PRODUCE, "client-id=,user=analytics", 1))
    'analytics PRODUCE at broker 1'
    """
    where = "" if key.node_id == CLUSTER_NODE_ID else f" at broker {key.node_id}"
    return f"{tenant_text(key.tags)} {key.quota_type}{where}"


def tenant_text(tags: str) -> str:
    """Whose counter it is: user/client id, or the tags of a callback of one's own.

    >>> (
    ...     tenant_text("client-id=app,user=alice"),
    ...     tenant_text("client-id=app,user="),
    ...     tenant_text("group=etl"),
    ... )
    ('alice/app', 'client app', 'group=etl')
    """
    values = dict(part.partition("=")[::2] for part in tags.split(",") if part)
    if set(values) != {"user", "client-id"}:
        return tags or "everybody"
    user, client_id = values["user"], values["client-id"]
    if user and client_id:
        return f"{user}/{client_id}"
    return user or f"client {client_id or '(none)'}"
