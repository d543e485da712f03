"""Worlds of adversaries: users who want more than their quota, and more memory than is theirs.

They come again and again on many connections, log in ahead of what they ask, send all they have at once,
cut anywhere, heed no throttle and leave at any byte. The bounds that they are held to are reckoned from what
went up to the brokers and what came to the clients, not from the record.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.simulation.mutation_bound import MutationBound
from tests.simulation.relays import Relay
from tests.simulation.watch import InvariantError, Upward, Watch

from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.session.budget import AnnouncedBudget, AnnouncedBudgets
from kvota.session.due import Due
from kvota.session.exchanges.mutation import Mutation
from kvota.session.shared import Shared
from kvota.session.whole_requests import WholeRequests
from kvota.testing.frames import FETCH
from kvota.testing.scripted_broker import Reply

RATIO = 0.15
_LIMITS = (300.0, 2_000.0, 20_000.0)
_FETCH_LIMITS = (2_000.0, 20_000.0, 200_000.0)
_MUTATION_LIMITS = (0.1, 1.0, 5.0, 20.0)
# Of them: nearly all of their clients change topics, and all the same ones; or send large requests, with a higher quota.
_OF_TOPICS_RATIO, _OF_ROOM_RATIO, _TIMES_FOR_ROOM = 0.4, 0.3, 100
# What requests take that are kept whole: room for one or two of them, or for all.
_SMALL_BYTES, _LARGE_BYTES = (3_000, 10_000, 32 * 2**20), (800_000, 64 * 2**20)
# No larger is an answer that the gateway has emptied; nor does it say when an answer is as small.
_EMPTY_BYTES_MAX = 100
# From then on nobody has a quota (``Faults.lift_in_the_end``).
_LIFTED_MS = 3_600_000
_BURSTS_MS, _DEBTS_MAX_MS = (1, 1_000, 5_000), (0, 1_000, 10_000)
# A frame waits until so much of it is here; see session/heads.
_SIZE_FIELD_BYTES = 4
_ANSWER_HEAD_BYTES_MAX = 5
# As ``whole_requests`` has measured it.
_TIMES_ITS_BYTES, _TOPIC_BYTES = 7, 750
_Counter = tuple[int, str]  # a broker and a user
_HEAD_BYTES = 16_384 + _SIZE_FIELD_BYTES


@dataclass(frozen=True)
class Adversaries:
    """What is drawn for such a world: quotas of every user, that nobody changes.

    Attributes:
        limit: bytes/s of PRODUCE of each user at each broker, under ``token_bucket``.
        fetch_limit: the same of FETCH.
        is_fetch_bucket: FETCH counts by ``token_bucket``, too; else by ``sampled_rate``.
        mutations: partitions/s of topic mutations of each user, and what has become of it.
        shares_topics: they want topics most of all, and all of them the same.
        wants_room: they want the room for what is announced most of all.
        small_bytes, large_bytes: the memory for requests that are kept whole.
    """

    limit: float
    bucket: BucketSettings
    fetch_limit: float
    is_fetch_bucket: bool
    mutations: MutationBound
    shares_topics: bool
    wants_room: bool
    small_bytes: int
    large_bytes: int
    _given: dict[_Counter, list[tuple[int, int, int]]] = field(default_factory=dict)
    _fetched: dict[_Counter, list[tuple[int, int]]] = field(default_factory=dict)

    @classmethod
    def drawn(cls, rng: Random, seed: int) -> "Adversaries":
        bucket = BucketSettings(
            burst_ms=rng.choice(_BURSTS_MS), debt_max_ms=rng.choice(_DEBTS_MAX_MS)
        )
        limit = rng.choice(_LIMITS) * rng.uniform(0.9, 1.1)
        own = Random(f"adversaries {seed}")
        wants = own.random()
        shares_topics = wants < _OF_TOPICS_RATIO
        wants_room = not shares_topics and wants < _OF_TOPICS_RATIO + _OF_ROOM_RATIO
        return cls(
            limit * (_TIMES_FOR_ROOM if wants_room else 1),
            bucket,
            fetch_limit=own.choice(_FETCH_LIMITS) * own.uniform(0.9, 1.1),
            is_fetch_bucket=own.random() < 0.5,
            small_bytes=own.choice(_SMALL_BYTES),
            large_bytes=own.choice(_LARGE_BYTES),
            mutations=MutationBound(
                own.choice(_MUTATION_LIMITS) * own.uniform(0.9, 1.1), lifted_ms=_LIFTED_MS
            ),
            shares_topics=shares_topics,
            wants_room=wants_room,
        )

    @property
    def quotas(self) -> dict[QuotaEntity, dict[QuotaType, float]]:
        limits = {
            QuotaType.PRODUCE: self.limit,
            QuotaType.FETCH: self.fetch_limit,
            QuotaType.CONTROLLER_MUTATION: self.mutations.limit,
        }
        return {QuotaEntity(user=DEFAULT): limits}

    @property
    def buckets(self) -> frozenset[QuotaType]:
        """What counts by ``token_bucket``."""
        of_fetch = {QuotaType.FETCH} if self.is_fetch_bucket else set()
        return frozenset({QuotaType.PRODUCE} | of_fetch)

    def limit_memory(self, shared: Shared) -> None:
        """Give requests that are kept whole as much memory as was drawn; before anybody connects."""
        whole = shared.whole_requests
        whole.small = shared.budgets.another(limit_bytes=self.small_bytes)
        whole.large = shared.budgets.another(limit_bytes=self.large_bytes)

    def note_given(self, watch: Watch, produced: Iterable[Upward]) -> None:
        """What went up of one connection; of a request that never came whole, what has come of it."""
        for upward in produced:
            given = self._given.setdefault((watch.node_id, upward.user), [])
            is_whole = any(upward is one for one in watch.upward)
            size = upward.size if is_whole else max(0, len(watch.up) - _SIZE_FIELD_BYTES)
            given.append((upward.tick, upward.at_ms, size))

    def note_fetched(self, watch: Watch, reply_of: Mapping[Upward, Reply]) -> None:
        """What has come to the client of one connection, with the answer that it has not got whole."""
        up_of = {upward.ask: upward for upward in watch.upward if upward.ask is not None}
        sizes = [len(answer) for answer, _, _ in watch.answers]
        sizes += [len(watch.out)] * bool(watch.out)
        asks = (ask for ask in watch.asks if ask.is_answered)
        for size, at_ms, ask in zip(sizes, watch.begun_ms, asks, strict=False):
            upward = up_of.get(ask)
            if ask.key != FETCH or upward is None or size <= _EMPTY_BYTES_MAX:
                continue
            # Names of brokers are others in the client's answer, and Kafka does not count an answer's head.
            counted = min(size, len(reply_of[upward].answer)) - _ANSWER_HEAD_BYTES_MAX
            of_user = self._fetched.setdefault((watch.node_id, upward.answered_user), [])
            if at_ms < _LIFTED_MS:
                of_user.append((at_ms, counted))

    def check_bounds(self) -> None:
        """In every interval a user was given no more than limit x (elapsed + burst + debt_max) + 1 request.

        Or one answer; of what is fetched under ``sampled_rate`` no more than a broker delivers.
        """
        for counter, requests in self._given.items():
            given = [(at_ms, size) for _, at_ms, size in sorted(requests)]
            self._check_bucket(counter, given, self.limit)
        for counter, answers in self._fetched.items():
            if self.is_fetch_bucket:
                self._check_bucket(counter, sorted(answers), self.fetch_limit)
            else:
                self._check_rate(counter, sorted(answers))
        self.mutations.check()

    def _check_bucket(
        self, counter: _Counter, given: list[tuple[int, int]], limit_bytes_per_s: float
    ) -> None:
        allowed_ms = self.bucket.burst_ms + self.bucket.debt_max_ms
        over_ms, seen_ms = 0.0, 0
        for at_ms, size in given:
            over_ms = max(0.0, over_ms - (at_ms - seen_ms))
            seen_ms = at_ms
            # Whole milliseconds: a request may come in the last part of one.
            if over_ms > allowed_ms + 1:
                raise InvariantError(
                    f"{counter} was given {size} bytes at {at_ms} ms, when it had had "
                    f"{over_ms - allowed_ms:.3f} ms of {limit_bytes_per_s:.0f} bytes/s too much"
                )
            over_ms += size / limit_bytes_per_s * 1000

    def _check_rate(self, counter: _Counter, answers: list[tuple[int, int]]) -> None:
        """What came in a window fits into it; what fits into none is paid for before the next answer.

        A sample counts for a window behind its last record, and Kafka divides by the time since the oldest one
        began (``Rate``): by a sample more than a window at most.
        """
        window = QuotaWindow()
        window_ms = window.samples * window.sample_ms
        fits_bytes = self.fetch_limit * (window_ms - window.sample_ms) / 1000
        paid_ms = 0.0
        for number, (at_ms, size) in enumerate(answers):
            # Whole milliseconds, as above.
            if at_ms + 1 < paid_ms:
                raise InvariantError(
                    f"{counter} was given {size} bytes at {at_ms} ms, before it had paid at {paid_ms:.0f} ms"
                )
            if size > fits_bytes:
                paid_ms = at_ms + size / self.fetch_limit * 1000
                continue
            recent = (one for ms, one in answers[: number + 1] if at_ms - window_ms < ms)
            if (total := sum(recent)) > self.fetch_limit * (window_ms + window.sample_ms) / 1000:
                raise InvariantError(
                    f"{counter} was given {total} bytes in the {window_ms} ms until {at_ms} ms, "
                    f"of {self.fetch_limit:.0f} bytes/s"
                )


def check_memory(shared: Shared, relays: Sequence[Relay], limit_bytes: int) -> None:
    """What connections have announced and what they hold stays within what it may be, at every step."""
    _check_announced(shared.budgets, relays, limit_bytes)
    _check_whole(shared.whole_requests, relays)


def _check_whole(whole: WholeRequests, relays: Sequence[Relay]) -> None:
    """All that is kept whole is taken of its budget, which one request alone may be larger than."""
    taken: dict[AnnouncedBudget, list[int]] = {whole.small: [], whole.large: []}
    for relay in relays:
        share = relay.machine.caller.whole._share
        if share is not None and share.taken_bytes:
            taken[share._budget].append(share.taken_bytes)
        for entry in relay.machine.caller.due:
            if entry[1] == Due.EXCHANGE and isinstance(entry[2], Mutation):
                _check_is_taken(relay, entry[2], 0 if share is None else share.taken_bytes)
    for budget, parts in taken.items():
        if budget.used_bytes != sum(parts):
            raise InvariantError(f"{budget.used_bytes} bytes are in use, {parts} are taken")
        if sum(parts) > budget.limit_bytes and len(parts) > 1:
            raise InvariantError(f"{parts} bytes are taken of {budget.limit_bytes}")


def _check_is_taken(relay: Relay, mutation: Mutation, taken_bytes: int) -> None:
    correlation = mutation._head.correlation
    asks = (one for one in relay.watch.asks if one.is_mutation)
    ask = next(one for one in asks if one.correlation == correlation)
    least = _TIMES_ITS_BYTES * (len(ask.frame) - _SIZE_FIELD_BYTES) + _TOPIC_BYTES * len(ask.topics)
    if taken_bytes < least:
        raise relay.watch.fail(f"{taken_bytes} bytes are taken for {ask}, which takes {least}")


def _check_announced(budgets: AnnouncedBudgets, relays: Sequence[Relay], limit_bytes: int) -> None:
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
