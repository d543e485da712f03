"""Counters that are put away: a crowd of them takes 300 bytes each instead of 4,000.

A client chooses its own id, and thousands of new ones a second each leave a counter behind that must not
be forgotten before its window is over, or its debt is paid. Put away, it has no name (a digest stands
for it) and no object, so that the garbage collector has nothing to walk over; taken out again, it
decides as if it had been there all the time.
"""

from collections import OrderedDict
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from kvota.engine.answer_room import NOTHING_OWED, Owed
from kvota.engine.arithmetic import counter_expired
from kvota.engine.counter import Counter
from kvota.engine.counting import Counting
from kvota.engine.debt_bucket import DebtBucket
from kvota.engine.lane import Lane
from kvota.engine.sampled_rate import SampledRate
from kvota.model.quota_type import Algorithm

# Of one quota type, some 140 MB: what no longer fits is forgotten although it still counts. New names come
# at 15,000/s at most, each with a window of 11 s; more than this takes debts of minutes behind every name.
PACKED_MAX = 500_000
# No two counters of a cluster have the same one by chance, nor by anybody's effort.
_DIGEST_BYTES = 16
# What it counts by, which asking of all limits its limit is from, whether it has one, the limit; what is owed
# for an answer larger than its window, since when, and until when under the limit that was in force.
_HEAD = Struct("<BqBddqq")
# What both kinds begin with.
_LAST_MS = Struct("<q").unpack_from
_SAMPLED_RATE, _DEBT_BUCKET = 1, 2
_KINDS = {Algorithm.SAMPLED_RATE: _SAMPLED_RATE, Algorithm.TOKEN_BUCKET: _DEBT_BUCKET}


class PutAway(NamedTuple):
    """One counter, as it was put away.

    Attributes:
        counter: an algorithm with its contents.
        configured_limit: per second; None: unlimited.
        asking: which asking of all limits that limit is from.
        owed: what is still to be paid for an answer larger than its window.
    """

    counter: Counter
    configured_limit: float | None
    asking: int
    owed: Owed = NOTHING_OWED


class PackedCounters:
    """The counters of one quota type that are put away, in the order in which they are looked at.

    Attributes:
        lost: how many were forgotten although they still counted, because there were ``PACKED_MAX``.
    """

    __slots__ = ("_by_digest", "lost")

    def __init__(self) -> None:
        self.lost = 0
        # Not a plain dict: finding its first key costs a walk over all that have left.
        self._by_digest: OrderedDict[bytes, bytes] = OrderedDict()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._by_digest)

    def put(self, lane: Lane, now_ms: int, *, asking: int) -> bool:
        """Put a lane's counter away with its configured limit; False: this kind stays as it is.

        ``asking`` says which asking of all limits that limit is from; ``take`` gives both back.
        """
        counter = lane.counter
        if isinstance(counter, SampledRate):
            kind, contents = _SAMPLED_RATE, counter.packed()
        elif isinstance(counter, DebtBucket):
            kind, contents = _DEBT_BUCKET, counter.packed()
        else:
            return False
        if len(self._by_digest) >= PACKED_MAX:
            self._by_digest.popitem(last=False)
            self.lost += 1
        owed, unpaid_ms = NOTHING_OWED, 0
        if lane.room is not None:
            owed, unpaid_ms = lane.room.owed, lane.room.peek_unpaid_ms(lane, now_ms)
        head = _head(kind, asking, lane.configured_limit, *owed, now_ms + unpaid_ms)
        self._by_digest[_digest(lane.tags, lane.node_id)] = head + contents
        return True

    def take(self, tags: str, node_id: int, counting: Counting) -> PutAway | None:
        """Take the counter of these tags at this node out."""
        if not self._by_digest:
            return None
        packed = self._by_digest.pop(_digest(tags, node_id), None)
        if packed is None:
            return None
        return _contents(packed, counting)

    def has(self, tags: str, node_id: int) -> bool:
        """True for the counter of these tags at this node, if it is here."""
        return _digest(tags, node_id) in self._by_digest

    def copy_of(self, tags: str, node_id: int, counting: Counting) -> PutAway | None:
        """As ``take``, but what is put away stays so."""
        packed = self._by_digest.get(_digest(tags, node_id))
        return None if packed is None else _contents(packed, counting)

    def forget_some(self, now_ms: int, counting: Counting, *, at_most: int) -> int:
        """Look at so many, the next time at the next ones; returns how many were idle or as good as new."""
        by_digest = self._by_digest
        forgotten = 0
        # Not a sample of a rate is over before; whether a bucket is full again nothing tells as fast.
        surely_kept_ms = 0
        if counting.algorithm is Algorithm.SAMPLED_RATE:
            surely_kept_ms = counting.window.samples * counting.window.sample_ms
        for _ in range(min(at_most, len(by_digest))):
            digest, packed = by_digest.popitem(last=False)
            if now_ms - _LAST_MS(packed, _HEAD.size)[0] < surely_kept_ms:
                by_digest[digest] = packed
                continue
            # One of another algorithm than is in force has not the settings to tell whether it is as new.
            in_crowd = packed[0] == _KINDS[counting.algorithm]
            *_, paid_at_ms = _HEAD.unpack_from(packed)
            is_paid = now_ms >= paid_at_ms
            if is_paid and is_over(_unpacked(packed, counting), now_ms, in_crowd=in_crowd):
                forgotten += 1
            else:
                by_digest[digest] = packed
        return forgotten

    def set_limit(self, tags: str, node_id: int, limit: float | None, *, asking: int) -> None:
        """Replace the configured limit of the counter of these tags at this node, if it is here."""
        digest = _digest(tags, node_id)
        packed = self._by_digest.get(digest)
        if packed is not None:
            kind, _, _, _, *owed = _HEAD.unpack_from(packed)
            head = _head(kind, asking, limit, *owed)
            self._by_digest[digest] = head + packed[_HEAD.size :]


def is_over(counter: Counter, now_ms: int, *, in_crowd: bool) -> bool:
    """True when a counter may be forgotten: after an hour, in a crowd as soon as it is as good as new."""
    if in_crowd and counter.is_as_new(now_ms):
        return True
    return counter_expired(counter.last_ms, now_ms) and (
        not isinstance(counter, DebtBucket) or counter.is_as_new(now_ms)
    )


def _head(kind: int, asking: int, limit: float | None, *owed: float) -> bytes:
    return _HEAD.pack(kind, asking, limit is not None, 0.0 if limit is None else limit, *owed)


def _digest(tags: str, node_id: int) -> bytes:
    # A user name may hold half a surrogate pair, which is no UTF-8.
    name = f"{node_id} {tags}".encode("utf-8", "surrogatepass")
    return blake2b(name, digest_size=_DIGEST_BYTES, usedforsecurity=False).digest()


def _contents(packed: bytes, counting: Counting) -> PutAway:
    _, asking, has_limit, limit, owed_bytes, since_ms, _ = _HEAD.unpack_from(packed)
    counter = _unpacked(packed, counting)
    return PutAway(counter, limit if has_limit else None, asking, Owed(owed_bytes, since_ms))


def _unpacked(packed: bytes, counting: Counting) -> SampledRate | DebtBucket:
    contents = packed[_HEAD.size :]
    if packed[0] == _SAMPLED_RATE:
        return counting.rate_class.unpacked(contents, counting.window)
    return DebtBucket.unpacked(contents, counting.window, debt_max_ms=counting.debt_max_ms)
