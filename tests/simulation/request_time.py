"""REQUEST in a world: who has how much of the thread, and how long each step takes of it."""

from collections import defaultdict
from random import Random

from tests.simulation.watch import InvariantError, TimedRows, Watch

from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.testing.stage import Row

Entries = dict[QuotaEntity, dict[QuotaType, float]]

REQUEST = QuotaType.REQUEST
_NS_PER_PERCENT_S = 10_000_000
# One count of the engine's; so much of each row, or of what is left at an end, is not in the record.
_COUNT_NS = 77
_ENTITIES = (
    QuotaEntity(user=DEFAULT),
    QuotaEntity(user="alice"),
    QuotaEntity(client_id=DEFAULT),
    QuotaEntity(client_id="app"),
    QuotaEntity(user=DEFAULT, client_id=DEFAULT),
)
# From always too little to hardly ever, in percent.
_LIMITS = (1e-4, 0.1, 5.0, 1_000.0)
_STEPS_NS = (2_000, 2_000, 50_000, 1_000_000, 30_000_000)


class RequestTimes:
    """Draws from a source of its own, so that all else in the world is drawn as without it.

    Args:
        seed: of the world.
        enforced: false: shadow mode.

    Attributes:
        spent_ns: what has been said to have been spent, by connection.
    """

    def __init__(self, seed: int, *, enforced: bool) -> None:
        self._rng = Random(f"request {seed}")
        self.enforced = frozenset({REQUEST}) if enforced else frozenset()
        self.spent_ns: dict[int, int] = defaultdict(int)

    def added_to(self, entries: Entries) -> Entries:
        """These quotas, and some on time."""
        rng = self._rng
        more = {entity: dict(limits) for entity, limits in entries.items()}
        for entity in rng.sample(_ENTITIES, rng.choice((1, 1, 2))):
            limit = round(rng.choice(_LIMITS) * rng.uniform(0.9, 1.1), 8)
            more.setdefault(entity, {})[REQUEST] = limit
        return more

    def spend(self, connection: int) -> int:
        """One step of a connection has taken so long, in ns."""
        spent_ns = self._rng.choice(_STEPS_NS)
        self.spent_ns[connection] += spent_ns
        return spent_ns

    def told_ms(self, watch: Watch, rows: list[Row]) -> tuple[int, ...]:
        """What answers of this connection may tell on behalf of REQUEST."""
        held = {
            row.throttle_ms
            for row in rows
            if row.memo.connection == watch.number
            and row.memo.quota_type is REQUEST
            and row.memo.enforced
        }
        return tuple(sorted(held - {0}))

    def check(self, rows: TimedRows, watches: list[Watch], exempt_ns: int) -> None:
        """What was charged was spent; who was over the quota was muted; nobody else is charged for it.

        Raises:
            InvariantError: it is not so.
        """
        of = defaultdict(list)
        for row in rows.rows:
            if row.memo.quota_type is REQUEST:
                of[row.memo.connection].append(row)
        spent = charged = 0.0
        for watch in watches:
            mine = of.pop(watch.number, [])
            spent_ns = self.spent_ns[watch.number]
            charged_ns = sum(row.value for row in mine) * _NS_PER_PERCENT_S
            if not 0 <= charged_ns <= spent_ns:
                raise watch.fail(f"{spent_ns} ns were spent, {charged_ns} are charged")
            spent, charged = spent + spent_ns, charged + charged_ns
            _check_mutes(rows, watch, mine)
        if of:
            raise InvariantError(f"charged for time, and no connection: {of}")
        if charged + exempt_ns > spent:
            raise InvariantError(f"{charged} and {exempt_ns} ns, of {spent} that were spent")


def _check_mutes(rows: TimedRows, watch: Watch, mine: list[Row]) -> None:
    """Each row over the quota, in force, has a mute of its length, asked for at once."""
    mutes = {(at_ms, for_ms) for _, at_ms, for_ms in watch.mutes}
    for row in mine:
        if row.memo.enforced and row.throttle_ms > 0:
            at_ms = rows.decided[row.seq][1]
            if (at_ms, row.throttle_ms) not in mutes:
                raise watch.fail(f"over its time, and not muted: {row}")
