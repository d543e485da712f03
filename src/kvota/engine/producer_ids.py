"""The quota on new producer ids (KIP-936): who makes a producer per message fills the brokers' memory.

For each user, an id that has not produced within the window costs a token, and a token comes back every
``window / rate``; an id that has produced within it is known, and never refused. What is known stands in
layered Bloom filters: 3.3 to 15.3 bytes an id, whoever makes them, and a false positive only ever lets an
id through. Refused ids are not remembered.
"""

from collections import OrderedDict
from math import ceil, isnan
from typing import NamedTuple

from kvota.engine.arithmetic import (
    BLOCKED_THROTTLE_MS,
    id_burst_ms,
    id_gate_ms,
    is_blocked,
    unit_ms,
)
from kvota.engine.bloom import mixed
from kvota.engine.debt_bucket import MUST_WAIT, DebtBucket
from kvota.engine.layered_bloom import LayeredBloomFilter, Layering, LayerMemory
from kvota.engine.recent_count import RecentCount
from kvota.model.clock import Clock
from kvota.model.quota_type import FACTS, QuotaType
from kvota.model.quota_window import QuotaWindow

# What ``admit`` answers where it does not refuse: a known id, or nothing to count; and a new one.
KNOWN, NEW = 0, -1

# KIP-936's default, an int's largest: no quota.
UNLIMITED_FROM = 2**31 - 1

# With 200 bytes around each of the smallest layers, some 300 MB at most beside the filters' bits.
USERS_MAX = 100_000
FILTER_BYTES_MAX = 256 * 1024 * 1024

# Ids that are awaited in a layer's time where no quota says how many.
_ROOM_UNLIMITED = 1_000
# So many idle users are looked for where there is no place for a new one.
_LOOK_FOR_IDLE = 16


class ProducerIdReading(NamedTuple):
    """What an observer sees of one user.

    Attributes:
        rate: the quota, new ids per window; None where ids are only remembered.
        distinct_ids: that have produced within the window, known and new, but for false positives.
        new_per_s: how many new ones were admitted per second, over the window's samples.
        new_ids: those of them that cost a token, in the layers that live: of the last window, or up to
            a layer's time less.
        tokens: how many new ids may come now; below 1 the next one is refused.
        throttle_ms: for how long it is; 0: it is not.
    """

    rate: float | None
    distinct_ids: int
    new_per_s: float
    new_ids: int
    tokens: float
    throttle_ms: int


class UserIds(LayeredBloomFilter):
    """The ids of one user, and what new ones cost.

    Attributes:
        rate: the quota, new ids per window; None: they are only remembered.
        bucket: what is owed; None where the rate is too small to be one, and where there is none. Only new ids
            and refused ones touch it, and these have rows: so the record can be replayed exactly.
        untold_ms: what was owed when the first of them came to this bucket, until a row has said so.
        recent: new ids that were admitted lately, for observers.
    """

    __slots__ = ("_has_begun", "bucket", "rate", "recent", "untold_ms")

    def __init__(
        self, memory: LayerMemory, rate: float | None, now_ms: int, recent: RecentCount
    ) -> None:
        super().__init__(memory, now_ms, room=1)
        self.recent = recent
        self.bucket: DebtBucket | None = None
        self.untold_ms: int | None = None
        self._has_begun = False
        self.configure(rate, now_ms)

    def configure(self, rate: float | None, now_ms: int) -> None:
        """Replace the quota; what is known stays, and what is owed, as time."""
        layering = self._memory.layering
        self.rate = rate
        is_counted = rate is not None and rate < UNLIMITED_FROM
        self.room = ceil(rate / layering.layers) if is_counted and rate else _ROOM_UNLIMITED
        if not is_counted or rate is None:
            self.bucket = None
            return
        limit = rate * 1000.0 / layering.window_ms
        if is_blocked(limit, FACTS[QuotaType.PRODUCER_ID].floor):
            self.room, self.bucket = 1, None
            return
        token_ms = unit_ms(limit)
        # One id at least: a rate below 1 is one id in more than a window.
        window = QuotaWindow(1, id_burst_ms(layering.window_ms, token_ms))
        gate_ms = id_gate_ms(token_ms)
        if self.bucket is None:
            self.bucket = DebtBucket(window, limit, debt_max_ms=gate_ms, born_ms=now_ms)
            self._has_begun = False
        self.bucket.configure(window, limit, keeps_time=True)
        self.bucket.set_debt_max(gate_ms)

    def restore_owed(self, last_ms: int, debt_ms: float) -> bool:
        """Owe what ``DebtBucket.owed`` has told; False: it is not a number."""
        if isnan(debt_ms):
            return False
        self.bucket = DebtBucket.owing(last_ms, debt_ms, QuotaWindow(), debt_max_ms=0)
        self.configure(self.rate, self.last_ms)
        return True

    def spend(self, now_ms: int) -> int:
        """Spend a token: 0; or, where there is none, the throttle in ms, at least 1.

        A refusal touches the bucket, too: from a clock that went back on, tokens come back as before.
        """
        bucket = self.bucket
        if bucket is None:
            return BLOCKED_THROTTLE_MS
        if not self._has_begun:
            self._has_begun, self.untold_ms = True, bucket.begin(now_ms)
        if bucket.charge(1.0, now_ms) != MUST_WAIT:
            return 0
        bucket.reject(now_ms)
        return _throttle_ms(bucket, now_ms)

    def is_idle(self, now_ms: int) -> bool:
        """True when a new user would be treated the same."""
        return self.is_empty(now_ms) and (self.bucket is None or self.bucket.is_as_new(now_ms))

    def peek_tokens(self, now_ms: int) -> float:
        """How many new ids may come; changes nothing."""
        if self.bucket is None or not self.rate:
            return 0.0
        return -self.bucket.peek_debt_ms(now_ms) / (self._memory.layering.window_ms / self.rate)


class ProducerIds:
    """Decides for every user which producer ids may produce.

    In every interval no more new ids of a user are admitted than ``rate / window * elapsed + burst``, where
    the burst is ``rate``, at least 1 (so at most twice the rate within one window); and an id that
    produces at least every ``window - layer`` is never refused after its first time. Nothing here waits,
    and everything is bounded: by user, in users, in bytes.

    >>> ids = ProducerIds()
    >>> now_ms = 1_700_000_000_000
    >>> [ids.admit("alice", 2.0, producer_id, now_ms) for producer_id in (1000, 1001, 1000, 1002)]
    [-1, -1, 0, 1800000]

    Attributes:
        admitted: how many new ids so far.
        refused: how many times one was.
        untracked: how many ids passed uncounted because there was no place for their user.
        hash_key: with which ids are mixed.
        learns_until_ms: until then (Unix ms) an unknown id is remembered and costs nothing: what was known is lost.
        rate_window: over which observers' rate is measured.
        users: the ids of each user, those that ``sweep`` has not looked at for longest first.
        memory: what all filters take together.
    """

    __slots__ = (
        "admitted",
        "hash_key",
        "learns_until_ms",
        "memory",
        "rate_window",
        "refused",
        "untracked",
        "users",
        "users_max",
    )

    def __init__(
        self,
        layering: Layering | None = None,
        *,
        hash_key: int = 0,
        rate_samples: int = 11,
        users_max: int = USERS_MAX,
        filter_bytes_max: int = FILTER_BYTES_MAX,
    ) -> None:
        """Of nobody.

        Args:
            layering: window, layers and false positives; None: its defaults.
            hash_key: a secret random number, 0 to 2**64-1. Who knows it can choose ids that pass uncounted.
            rate_samples: in so many samples, with the running one, the rate is measured that observers see; 2 or more.
            users_max: who comes when there are so many passes uncounted.
            filter_bytes_max: what the bits of all filters take; see ``LayerMemory``.
        """
        self.memory = LayerMemory(layering or Layering(), bytes_max=filter_bytes_max)
        self.hash_key = hash_key
        self.learns_until_ms = 0
        sample_ms = max(1, self.memory.layering.window_ms // (rate_samples - 1))
        self.rate_window = QuotaWindow(rate_samples, sample_ms)
        self.users_max = users_max
        self.users: OrderedDict[str, UserIds] = OrderedDict()
        self.admitted = self.refused = self.untracked = 0

    def __len__(self) -> int:
        """How many users there are."""
        return len(self.users)

    def admit(self, user: str, rate: float | None, producer_id: int, now_ms: int, /) -> int:
        """Decide about one id that produces: ``KNOWN``, ``NEW``, or the throttle in ms, at least 1.

        Args:
            user: whose id it is; clients of one user share a quota.
            rate: new ids per window, 0 or more; None, and ``UNLIMITED_FROM`` or more: no quota, and what
                is known of the user is forgotten.
            producer_id: as it stands in a batch; below 0 there is none, and nothing to count.
            now_ms: Unix ms.

        Raises:
            ValueError: the rate is negative or not a number.
        """
        if producer_id < 0:
            return KNOWN
        ids = self.users.get(user)
        if ids is None or ids.rate != rate or not ids.last_ms <= now_ms < ids.due_ms:
            if rate is None or rate >= UNLIMITED_FROM:
                self.forget(user)
                return KNOWN
            ids = self._settled(user, rate, now_ms)
            if ids is None:
                return KNOWN
        else:
            ids.last_ms = now_ms
        word = mixed(producer_id, self.hash_key)
        if ids.seen(word, now_ms):
            return KNOWN
        costs = now_ms >= self.learns_until_ms
        throttle_ms = ids.spend(now_ms) if costs else 0
        if throttle_ms:
            self.refused += 1
            return throttle_ms
        ids.remember(word, now_ms).counted += costs
        if costs:
            self.admitted += 1
            ids.recent.add(now_ms)
        return NEW if costs else KNOWN

    def knows(self, user: str, rate: float, producer_id: int, now_ms: int, /) -> bool:
        """True where ``admit`` would answer ``KNOWN`` (and has remembered it as that does); else nothing is done."""
        if producer_id < 0:
            return True
        ids = self.users.get(user)
        if ids is None or ids.rate != rate or not ids.last_ms <= now_ms < ids.due_ms:
            return False
        ids.last_ms = now_ms
        return ids.seen(mixed(producer_id, self.hash_key), now_ms)

    def take_untold_ms(self, user: str) -> int | None:
        """What a user's bucket owed before the ids that were just decided on, in ms, below 0 what there is to spend.

        None unless they were the first that came to this bucket: what it owes then does not follow from the rows
        before, so the next row has to say it. Asked again it is None.
        """
        ids = self.users.get(user)
        if ids is None or ids.untold_ms is None:
            return None
        untold_ms, ids.untold_ms = ids.untold_ms, None
        return untold_ms

    def learn(self, user: str, rate: float | None, producer_id: int, now_ms: int, /) -> bool:
        """Remember an id without a charge; True when it was known, or is none (below 0).

        For a time of grace, when what was known is lost. The rate sizes the filter.

        Raises:
            ValueError: the rate is negative or not a number.
        """
        if producer_id < 0:
            return True
        ids = self._settled(user, rate, now_ms)
        if ids is None:
            return False
        word = mixed(producer_id, self.hash_key)
        if ids.seen(word, now_ms):
            return True
        ids.remember(word, now_ms)
        return False

    def forget(self, user: str) -> None:
        """Forget what is known of a user, and what is owed."""
        ids = self.users.pop(user, None)
        if ids is not None:
            ids.clear()

    def sweep(self, now_ms: int, *, at_most: int) -> int:
        """Look at so many users, the next time at the next ones; returns how many were idle and are gone.

        Who was idle for a window (with a rate below 1: until its token is back) is as a new user is. Of
        the others, layers that have expired give their memory back.
        """
        users = self.users
        gone = 0
        for _ in range(min(at_most, len(users))):
            user, ids = users.popitem(last=False)
            if ids.is_idle(now_ms):
                ids.clear()
                gone += 1
                continue
            users[user] = ids
            if now_ms >= ids.due_ms:
                ids.settle(now_ms)
        return gone

    def reading(self, user: str, now_ms: int) -> ProducerIdReading | None:
        """What there is to see of a user; None: nothing is known. Changes nothing."""
        ids = self.users.get(user)
        if ids is None:
            return None
        distinct_ids, new_ids = ids.peek_distinct(now_ms), ids.peek_counted(now_ms)
        tokens = ids.peek_tokens(now_ms)
        throttle_ms = 0
        if ids.rate is not None and ids.rate < UNLIMITED_FROM:
            throttle_ms = 0 if _is_enough(ids.bucket, now_ms) else _throttle_ms(ids.bucket, now_ms)
        new_per_s = ids.recent.peek_rate(now_ms)
        return ProducerIdReading(ids.rate, distinct_ids, new_per_s, new_ids, tokens, throttle_ms)

    def new_user(self, rate: float | None, now_ms: int) -> UserIds:
        """One of whom nothing is known."""
        return UserIds(self.memory, rate, now_ms, RecentCount(self.rate_window))

    def _settled(self, user: str, rate: float | None, now_ms: int) -> UserIds | None:
        """The user's ids, made or brought to the time; None: there is no place for another user."""
        if rate is not None and not rate >= 0.0:
            msg = (
                f"rate: {rate} is not 0 or more new producer ids per window; give None for no quota"
            )
            raise ValueError(msg)
        ids = self.users.get(user)
        if ids is None:
            if len(self.users) >= self.users_max and not self.sweep(now_ms, at_most=_LOOK_FOR_IDLE):
                self.untracked += 1
                return None
            ids = self.users[user] = self.new_user(rate, now_ms)
            return ids
        if ids.rate != rate:
            ids.configure(rate, now_ms)
        ids.settle(now_ms)
        return ids


class ProducerIdQuotaManagerCache:
    """KIP-936's class of this name: it tells which ids a principal was seen with in the last window.

    It refuses nothing; ``ProducerIds`` does.

    >>> from kvota.testing.manual_clock import ManualClock
    >>> cache = ProducerIdQuotaManagerCache(0.01, 3600, 4, clock=ManualClock())
    >>> [cache.track("alice", 100, producer_id) for producer_id in (1000, 1001, 1000)]
    [False, False, True]
    """

    __slots__ = ("_clock", "_ids")

    def __init__(
        self,
        false_positive_rate: float,
        window_length_s: int,
        layer_count: int,
        *,
        clock: Clock,
        hash_key: int = 0,
    ) -> None:
        """Of nobody.

        Args:
            false_positive_rate: of all layers together, above 0, at most 0.5.
            window_length_s: an id that was not tracked for so many seconds is new.
            layer_count: into how many layers the window is divided, 1 to 64.
            clock: tells the time.
            hash_key: as of ``ProducerIds``.

        Raises:
            ValueError: one of them is out of its range.
        """
        layering = Layering(
            window_ms=window_length_s * 1000,
            layers=layer_count,
            false_positive_rate=false_positive_rate,
        )
        self._clock = clock
        self._ids = ProducerIds(layering, hash_key=hash_key)

    def track(self, principal: str, producer_id_rate: float, producer_id: int) -> bool:
        """See to it that the id is known as seen in the last window; True when it was before.

        Args:
            principal: whose id it is.
            producer_id_rate: about how many new ids a window is to see, 0 or more; sizes the filter.
            producer_id: below 0 there is none, and nothing is new.

        Raises:
            ValueError: the rate is negative or not a number.
        """
        now_ms = self._clock.now_us() // 1000
        return self._ids.learn(principal, producer_id_rate, producer_id, now_ms)

    def cleanup(self) -> int:
        """Forget every principal that was not seen for a window; returns how many."""
        return self._ids.sweep(self._clock.now_us() // 1000, at_most=len(self._ids))


def _is_enough(bucket: DebtBucket | None, now_ms: int) -> bool:
    return bucket is not None and bucket.turn_in_ms(now_ms) == 0


def _throttle_ms(bucket: DebtBucket | None, now_ms: int) -> int:
    if bucket is None:
        return BLOCKED_THROTTLE_MS
    return max(1, bucket.turn_in_ms(now_ms))
