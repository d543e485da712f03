"""Worlds of adversaries: users who want more than their quota, and more memory than is theirs.

They come again and again on many connections, log in ahead of what they ask, send all they have at once,
cut anywhere, heed no throttle and leave at any byte. The bound that they are held to is reckoned from what
went up to the brokers, not from the record.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from tests.simulation.relays import Relay
from tests.simulation.watch import InvariantError, Upward, Watch

from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.session.budget import AnnouncedBudgets

RATIO = 0.15
_LIMITS = (300.0, 2_000.0, 20_000.0)
_BURSTS_MS, _DEBTS_MAX_MS = (1, 1_000, 5_000), (0, 1_000, 10_000)
# A frame waits until so much of it is here; see session/heads.
_SIZE_FIELD_BYTES = 4
_HEAD_BYTES = 16_384 + _SIZE_FIELD_BYTES


@dataclass(frozen=True)
class Adversaries:
    """What is drawn for such a world: one quota, of every user, that nobody changes.

    Attributes:
        limit: bytes/s of PRODUCE of each user at each broker, under ``token_bucket``.
    """

    limit: float
    bucket: BucketSettings
    _given: dict[tuple[int, str], list[tuple[int, int, int]]] = field(default_factory=dict)

    @classmethod
    def drawn(cls, rng: Random) -> "Adversaries":
        bucket = BucketSettings(
            burst_ms=rng.choice(_BURSTS_MS), debt_max_ms=rng.choice(_DEBTS_MAX_MS)
        )
        return cls(rng.choice(_LIMITS) * rng.uniform(0.9, 1.1), bucket)

    @property
    def quotas(self) -> dict[QuotaEntity, dict[QuotaType, float]]:
        return {QuotaEntity(user=DEFAULT): {QuotaType.PRODUCE: self.limit}}

    def note_given(self, watch: Watch, produced: Iterable[Upward]) -> None:
        """What went up of one connection; of a request that never came whole, what has come of it."""
        for upward in produced:
            given = self._given.setdefault((watch.node_id, upward.user), [])
            is_whole = any(upward is one for one in watch.upward)
            size = upward.size if is_whole else max(0, len(watch.up) - _SIZE_FIELD_BYTES)
            given.append((upward.tick, upward.at_ms, size))

    def check_bound(self) -> None:
        """In every interval a user was given no more than limit x (elapsed + burst + debt_max) + 1 request."""
        for counter, requests in self._given.items():
            self._check_counter(counter, sorted(requests))

    def _check_counter(
        self, counter: tuple[int, str], requests: list[tuple[int, int, int]]
    ) -> None:
        allowed_ms = self.bucket.burst_ms + self.bucket.debt_max_ms
        over_ms, seen_ms = 0.0, requests[0][1]
        for _, at_ms, size in requests:
            over_ms = max(0.0, over_ms - (at_ms - seen_ms))
            seen_ms = at_ms
            # Whole milliseconds: a request may come in the last part of one.
            if over_ms > allowed_ms + 1:
                raise InvariantError(
                    f"{counter} was given {size} bytes at {at_ms} ms, when it had had "
                    f"{over_ms - allowed_ms:.3f} ms of {self.limit:.0f} bytes/s too much"
                )
            over_ms += size / self.limit * 1000


def check_memory(budgets: AnnouncedBudgets, relays: Iterable[Relay], limit_bytes: int) -> None:
    """What connections have announced and what they hold stays within what it may be, at every step."""
    taken_bytes, holders = 0, 0
    for relay in relays:
        requests = relay.machine._requests
        taken = requests.budget.taken_bytes
        taken_bytes += taken
        holders += taken > 0
        if not requests.buffered:
            continue
        whole = max((len(ask.frame) for ask in relay.watch.asks), default=0)
        most = relay.largest_piece + max(whole, _HEAD_BYTES)
        if len(requests.buffered) > most:
            raise relay.watch.fail(f"holds {len(requests.buffered)} bytes, more than {most}")
    if budgets.used_bytes != taken_bytes:
        raise InvariantError(f"budgets of {budgets.used_bytes} bytes, {taken_bytes} are taken")
    if taken_bytes > limit_bytes * len(budgets._of) and holders > len(budgets._of):
        raise InvariantError(f"{holders} frames take {taken_bytes} bytes of {limit_bytes}")
