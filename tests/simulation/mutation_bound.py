"""What users have had changed in a cluster, held against their quota of topic mutations.

All is reckoned from what the brokers have carried out, whether or not anybody was told of it, and from when it went up. The
record is asked for one thing only: that it says no less.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.watch import InvariantError, Upward, Watch

from kvota.model.decision_sink import REJECTED
from kvota.model.quota_window import QuotaWindow
from kvota.model.strict_mutations import STRICT_FROM
from kvota.testing.scripted_broker import Reply
from kvota.testing.stage import Row

# Between a decision and the first byte that goes up others may have their turns.
_LATE_S = 1.0


class _Done(NamedTuple):
    """What one request has changed.

    Attributes:
        tick, at_ms: when it went up.
        connection: its number.
        partitions: of all its topics.
        is_strict: its version can be refused.
        last_partitions: of the topic that has most: it may have taken what there was, and more.
        on_time: of them those that could have been refused (KIP-599): none in older versions, nor what was expected to fail.
    """

    tick: int
    at_ms: int
    connection: int
    partitions: int
    last_partitions: int
    is_strict: bool
    on_time: int


@dataclass
class MutationBound:
    """Of each user: no more than limit x (elapsed + window) + one topic, and none uncharged.

    A request of an older version cannot be refused. It is charged, and its connection is muted until that is paid for: a
    connection that comes again has one, on a broker, too.

    Attributes:
        limit: partitions/s of each user.
        lifted_ms: from then on nobody has a quota.
    """

    limit: float
    lifted_ms: int
    _done: dict[str, list[_Done]] = field(default_factory=lambda: defaultdict(list))
    # Charged when an answer had told that what was expected to fail was carried out.
    _late: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def note(self, watch: Watch, rows: Sequence[Row], reply_of: Mapping[Upward, Reply]) -> None:
        """What the mutations of one connection have changed; its rows say no less.

        Raises:
            InvariantError: something is uncharged.
        """
        charged = sum(row.value for row in rows if row.outcome != REJECTED)
        done = 0
        for upward, late in self._with_late(watch, rows):
            ask, reply = upward.ask, reply_of.get(upward)
            if ask is None or reply is None or ask.validate_only:
                continue
            costs = [outcome.partitions for outcome in reply.outcomes]
            if not sum(costs):
                continue
            done += sum(costs)
            self._late[upward.user] += late
            is_strict = ask.version >= STRICT_FROM[ask.key]
            on_time = max(0, sum(costs) - round(late)) if is_strict else 0
            self._done[upward.user].append(
                _Done(
                    upward.tick,
                    upward.at_ms,
                    watch.number,
                    sum(costs),
                    max(costs),
                    is_strict,
                    on_time,
                )
            )
        if done > charged:
            raise watch.fail(f"{done} partitions were changed, {charged} are charged")

    def _with_late(self, watch: Watch, rows: Sequence[Row]) -> Iterator[tuple[Upward, float]]:
        """Each mutation that went up, and what it was charged afterwards: what had been expected to fail was carried out."""
        mutations = [one for one in watch.upward if one.ask is not None and one.ask.is_mutation]
        late = [
            (watch.rows.decided[row.seq][0], row.value)
            for row in rows
            if row.memo.api_version == 0 and row.value > 0
        ]
        ends = [*(one.tick for one in mutations[1:]), float("inf")]
        for upward, end in zip(mutations, ends, strict=False):
            yield upward, sum(value for tick, value in late if upward.tick < tick < end)

    def check(self) -> None:
        """In every interval, of every user.

        Raises:
            InvariantError: somebody was given more.
        """
        for user, done in self._done.items():
            self._check_user(user, sorted(done), self._late[user])

    def _check_user(self, user: str, done: Sequence[_Done], late: float) -> None:
        window = QuotaWindow()
        burst = self.limit * window.samples * window.sample_ms / 1000
        allowed = burst + self.limit * _LATE_S + late
        over, seen_ms = 0.0, 0
        free_ms: dict[int, float] = {}
        for one in done:
            if one.at_ms >= self.lifted_ms:
                return
            over = max(0.0, over - self.limit * (one.at_ms - seen_ms) / 1000)
            seen_ms = one.at_ms
            if one.on_time and over + one.on_time - one.last_partitions > allowed:
                raise InvariantError(
                    f"{user} had {one} changed, {over - burst:.1f} partitions over {self.limit}/s already"
                )
            over += one.partitions
            if one.is_strict:
                continue
            if one.at_ms < free_ms.get(one.connection, 0):
                raise InvariantError(
                    f"{user} had {one} changed before it had paid for what was before"
                )
            free_ms[one.connection] = one.at_ms + (over - allowed) / self.limit * 1000
