"""Why a client is treated as it is: which quotas match, which counters it shares, what happens next.

Nothing is moved by looking: no counter is made, no sample expired, no callback asked that has to be waited for.
"""

from dataclasses import dataclass
from enum import StrEnum

from kvota.callbacks import DefaultQuotaCallback
from kvota.callbacks.default import Level
from kvota.engine.engine import QuotaEngine
from kvota.engine.question import Answer, ask
from kvota.engine.reading import Reading, read_lane
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import CLUSTER_NODE_ID, CONFIGURABLE_TYPES, Algorithm, QuotaType
from kvota.model.tags import Tags
from kvota.session.settings import ConnectionSettings


class Outlook(StrEnum):
    """What becomes of the next request that is charged on a counter."""

    PASSES = "passes"  # at once; its own size may be more than there is room for
    THROTTLED = "throttled"  # it goes on, and its client has to wait behind it
    WAITS = "waits"  # it is kept back, for its turn or for room; a Fetch that has gone up brings nothing
    REFUSED = (
        "refused"  # error 89, and its client has to wait; requests of old versions are throttled
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterOutlook:
    """One counter of a client.

    Attributes:
        reading: what it shows.
        is_new: there is no such counter yet; it would begin like this, at any broker.
        outlook: of the next request, if its type is enforced.
        wait_ms: how long its client has to wait then, at least; 0 where it passes.
        room: how much it may take without having to wait, in the unit of the type; None: unlimited.
    """

    reading: Reading
    is_new: bool
    outlook: Outlook
    wait_ms: int
    room: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaExplanation:
    """One quota type for one client.

    Attributes:
        quota_type: of the quota.
        enforced: false: shadow mode, nobody is held back.
        exists: false: nobody has a quota of this type, and nothing is counted.
        levels: Kafka's eight, most specific first; empty where another callback decides.
        decided_by: the entity whose quota it is; None: nobody's, or another callback decides.
        tags: of its counters; None: the callback has not been asked about this client yet.
        tags_text: the same, as records carry it.
        limit: configured for them, per second; None: unlimited.
        algorithm: that counts.
        counters: one for each broker where there is one, else a new one; none where nothing is counted.
    """

    quota_type: QuotaType
    enforced: bool
    exists: bool
    levels: tuple[Level, ...]
    decided_by: QuotaEntity | None
    tags: Tags | None
    tags_text: str
    limit: float | None
    algorithm: Algorithm
    counters: tuple[CounterOutlook, ...]


def explain(
    engine: QuotaEngine,
    settings: ConnectionSettings,
    user: str,
    client_id: str,
    now_ms: int,
) -> tuple[QuotaExplanation, ...]:
    """Explain all quota types of a client."""
    return tuple(
        _explained(engine, settings, quota_type, user, client_id, now_ms)
        for quota_type in CONFIGURABLE_TYPES
    )


def _explained(
    engine: QuotaEngine,
    settings: ConnectionSettings,
    quota_type: QuotaType,
    user: str,
    client_id: str,
    now_ms: int,
) -> QuotaExplanation:
    callback = engine.callback
    answer: Answer | None
    levels: tuple[Level, ...] = ()
    decided_by = None
    if callback.answers_at_once:
        asked = ask(callback, quota_type, CLUSTER_NODE_ID, user, client_id)
        answer = engine.as_counted(quota_type, user, asked)
    else:
        answer = engine.remembered(quota_type, user, client_id)
    if isinstance(callback, DefaultQuotaCallback) and answer is not None:
        levels = callback.levels(quota_type, user, client_id)
        decided_by = callback.deciding_entity(quota_type, answer.tags)
    exists = callback.enabled(quota_type) if answer is None else answer.is_counted
    counters: tuple[CounterOutlook, ...] = ()
    if answer is not None and exists:
        counters = _counters(engine, quota_type, answer, now_ms)
    return QuotaExplanation(
        quota_type=quota_type,
        enforced=quota_type in settings.enforced,
        exists=exists,
        levels=levels,
        decided_by=decided_by,
        tags=None if answer is None else answer.tags,
        tags_text="" if answer is None else answer.text,
        limit=None if answer is None else answer.limit,
        algorithm=engine.counters.counting(quota_type).algorithm,
        counters=counters,
    )


def _counters(
    engine: QuotaEngine, quota_type: QuotaType, answer: Answer, now_ms: int
) -> tuple[CounterOutlook, ...]:
    lanes = engine.counters.observed(quota_type, answer)
    is_new = not lanes
    outlooks = []
    for lane in lanes or [engine.counters.imagined(quota_type, answer, now_ms)]:
        reading = read_lane(lane, now_ms)
        outlook, wait_ms = outlook_of(reading)
        room = None if reading.limit is None else lane.allowance(now_ms)
        outlooks.append(
            CounterOutlook(
                reading=reading, is_new=is_new, outlook=outlook, wait_ms=wait_ms, room=room
            )
        )
    return tuple(outlooks)


def outlook_of(reading: Reading) -> tuple[Outlook, int]:
    """What becomes of the next request on this counter, and how long its client waits then, in ms."""
    if reading.limit is None:
        return Outlook.PASSES, 0
    if reading.quota_type is QuotaType.CONTROLLER_MUTATION:
        is_refused = reading.is_blocked or (reading.tokens is not None and reading.tokens < 0)
        return (Outlook.REFUSED, max(0, reading.throttle_ms)) if is_refused else (Outlook.PASSES, 0)
    if reading.debt_ms is not None or reading.turn_in_ms > 0:
        if reading.turn_in_ms > 0 or reading.waiting:
            return Outlook.WAITS, max(reading.turn_in_ms, 0)
        return (
            (Outlook.THROTTLED, reading.throttle_ms)
            if reading.throttle_ms > 0
            else (Outlook.PASSES, 0)
        )
    wait_ms = max(reading.throttle_ms, reading.unpaid_ms)
    if reading.quota_type is QuotaType.FETCH and (wait_ms > 0 or reading.waiting):
        return Outlook.WAITS, max(wait_ms, 0)
    return (Outlook.THROTTLED, wait_ms) if wait_ms > 0 else (Outlook.PASSES, 0)
