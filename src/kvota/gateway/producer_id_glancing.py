"""What of producer ids an observer is shown: looked at on the gateway's loop, a little at a time, and nothing is moved."""

from collections.abc import Generator, Iterable
from itertools import islice
from math import nan
from operator import attrgetter

from kvota.metrics.counter_key import CounterKey
from kvota.metrics.glance import InitsOfUser, ProducerIdGlance
from kvota.model.quota_type import QuotaType
from kvota.model.tags import USER_TAG, tag_value
from kvota.session.init_producer_ids import InitCounts
from kvota.session.shared import Shared

# Users that have series, or are shown otherwise.
SHOWN_MAX = 500
# Some 50 µs each.
_USERS_PER_STEP = 25


def peek_producer_ids(shared: Shared, key: CounterKey, now_ms: int) -> tuple[float, ...] | None:
    """What ``engine.reading.PEEKED`` names of the quota of one user; None: nothing is known of that user."""
    ids = shared.producer_ids.ids
    reading = ids.reading(tag_value(key.tags, USER_TAG) or "", now_ms)
    if reading is None:
        return None
    limit, tokens = nan, nan
    if reading.rate is not None:
        limit = reading.rate * 1000.0 / ids.memory.layering.window_ms
        tokens = reading.tokens
    return limit, reading.new_per_s, tokens, nan, float(reading.throttle_ms), 0.0


def glance_at_producer_ids(
    shared: Shared, keys: Iterable[CounterKey], now_ms: int, *, of_all: bool
) -> Generator[None, None, ProducerIdGlance]:
    """Look at the users of these counters, and at all where they are few; ``of_all``: add up all users' ids, too."""
    ids = shared.producer_ids.ids
    names = [
        tag_value(key.tags, USER_TAG) or ""
        for key in keys
        if key.quota_type is QuotaType.PRODUCER_ID
    ]
    if len(ids.users) <= SHOWN_MAX:
        names += ids.users
    shown = dict.fromkeys(islice(dict.fromkeys(names), SHOWN_MAX), 0)
    in_all = 0
    for number, user in enumerate(list(ids.users) if of_all else list(shown), 1):
        if number % _USERS_PER_STEP == 0:
            yield
        of_user = ids.users.get(user)
        distinct_ids = 0 if of_user is None else of_user.peek_distinct(now_ms)
        in_all += distinct_ids
        if user in shown:
            shown[user] = distinct_ids
    inits, other_inits = yield from _inits(shared, now_ms)
    quota = shared.producer_ids
    return ProducerIdGlance(
        users=len(ids.users),
        distinct_ids={user: count for user, count in shown.items() if user in ids.users},
        distinct_ids_in_all=in_all if of_all else None,
        window_ms=ids.memory.layering.window_ms,
        filter_bytes=ids.memory.used_bytes,
        refused_partitions=quota.refused_batches.count,
        untracked=ids.untracked,
        overfilled=ids.memory.overfilled,
        connections_closed=quota.connections_closed,
        inits=inits,
        other_inits=other_inits,
    )


def _inits(
    shared: Shared, now_ms: int
) -> Generator[None, None, tuple[tuple[InitsOfUser, ...], InitsOfUser]]:
    """Who has asked for producer ids most, who asks most now first; and all others as one."""
    counted = shared.init_producer_ids
    users = sorted(counted.users.items(), key=_asked, reverse=True)
    shown = []
    for number, (user, counts) in enumerate(users[:SHOWN_MAX], 1):
        if number % _USERS_PER_STEP == 0:
            yield
        per_s = counts.recent.peek_rate(now_ms)
        shown.append(InitsOfUser(user, counts.idempotent, counts.transactional, per_s))
    others = [counts for _, counts in users[SHOWN_MAX:]] + [counted.others]
    shown.sort(key=attrgetter("per_s"), reverse=True)
    idempotent = sum(counts.idempotent for counts in others)
    transactional = sum(counts.transactional for counts in others)
    return tuple(shown), InitsOfUser("", idempotent, transactional, 0.0)


def _asked(user: tuple[str, InitCounts]) -> int:
    return user[1].idempotent + user[1].transactional
