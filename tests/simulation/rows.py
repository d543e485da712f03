"""Checks of the record: each charge has one row, and each row a charge."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from kio.schema.errors import ErrorCode
from tests.simulation.answers import results_of
from tests.simulation.asks import FETCHES, Ask, Fate
from tests.simulation.faults import Limits
from tests.simulation.further_quota import TAGS
from tests.simulation.watch import InvariantError, TimedRows, Upward, Watch

from kvota.model.decision_sink import NO_ANSWER, REJECTED
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.testing.frames import CREATE_TOPICS, FETCH, PRODUCE, decoded, topic_id
from kvota.testing.scripted_broker import Reply
from kvota.testing.scripted_cluster import TopicOutcome
from kvota.testing.share_frames import SHARE_FETCH
from kvota.testing.stage import Row

# Kafka charges a Fetch with 4 bytes and the answer's body.
_SIZE_FIELD = 4
_FLEXIBLE_FETCH_FROM = 12
_FREE_BYTES_MAX = 256


def check_sequence(rows: TimedRows) -> None:
    """Numbers are dense: nothing that was decided is missing, and nothing stands there twice."""
    seqs = sorted(row.seq for row in rows.rows)
    if seqs != list(range(len(rows.decided))):
        raise InvariantError(f"{len(rows.decided)} decisions, and rows {seqs}")


def check_limits(
    rows: TimedRows, limits: list[Limits], *, for_ms: Callable[[QuotaType], float]
) -> None:
    """Each charge is held against a limit that was in force when it was decided.

    Where the callback has to be asked the one before may count for so long behind a change.
    """
    for row in rows.rows:
        tick, at_ms = rows.decided[row.seq]
        quota_type, limit = row.memo.quota_type, row.memo.limit
        late_ms = for_ms(quota_type)
        known = [one for one in limits if one.tick < tick]
        ends_ms = [following.at_ms for following in known[1:]]
        in_force = known[-1:] + [
            one
            for one, end_ms in zip(known, ends_ms, strict=False)
            if end_ms + late_ms >= at_ms and late_ms
        ]
        if limit is not None and not any(limit in one.of_type[quota_type] for one in in_force):
            raise InvariantError(f"a limit that was no more in force: {row.columns()}")


def check_modes(
    rows: TimedRows, modes: list[tuple[int, frozenset[QuotaType], frozenset[QuotaType]]]
) -> None:
    """Each charge is counted, and holds its client back or not, as was in force when it was decided.

    Not of mutations: what is corrected behind the answer is of the mode in which it was charged.
    """
    for row in rows.rows:
        memo = row.memo
        if memo.tags == TAGS or memo.quota_type is QuotaType.CONTROLLER_MUTATION:
            continue
        tick, _ = rows.decided[row.seq]
        enforced, buckets = [(forced, of) for since, forced, of in modes if since < tick][-1]
        algorithm = Algorithm.TOKEN_BUCKET if memo.quota_type in buckets else Algorithm.SAMPLED_RATE
        if memo.samples == 0:
            algorithm = memo.algorithm
        if (memo.enforced, memo.algorithm) != (memo.quota_type in enforced, algorithm):
            raise InvariantError(f"a mode that was no more in force: {row.columns()}")


def rows_of(rows: TimedRows) -> dict[tuple[int, QuotaType], list[Row]]:
    """Rows of each connection and quota type, in the order of decisions."""
    found: dict[tuple[int, QuotaType], list[Row]] = defaultdict(list)
    for row in sorted(rows.rows, key=lambda row: row.seq):
        found[row.memo.connection, row.memo.quota_type].append(row)
    return found


def match_produce(
    watch: Watch, rows: list[Row], reply_of: dict[Upward, Reply]
) -> dict[Upward, tuple[Row, ...]]:
    """One row for each Produce that went up whole; one more where there is a further quota.

    One that broke off was charged at its head, by a bucket, or not at all.
    """
    further = [row for row in rows if row.memo.tags == TAGS]
    # What waits in line is not charged: its row says so, and nothing has gone up for it.
    rows = [row for row in rows if row.memo.tags != TAGS and not _waited(row)]
    given_back = [row for row in rows if row.value < 0]
    rows = [row for row in rows if row.value >= 0]
    charged = [one for one in watch.upward if one.ask is not None and one.ask.key == PRODUCE]
    half = watch.half_forwarded()
    broken_off: list[Upward] = []
    if half is not None and half.ask is not None and half.ask.key == PRODUCE:
        broken_off.append(half)
    if broken_off and len(rows) > len(charged):
        if rows[-1].memo.algorithm is not Algorithm.TOKEN_BUCKET or not rows[-1].memo.samples:
            raise watch.fail(f"charged, and never came: {rows[-1]}")
        charged += broken_off
    if [row.value for row in rows] != [upward.size for upward in charged]:
        raise watch.fail(
            f"Produce rows of {[row.value for row in rows]}, forwarded {[one.size for one in charged]}"
        )
    if given_back:
        _check_given_back(watch, rows, given_back, half)
    asked_further = (
        [*charged, *(one for one in broken_off if one not in charged)] if further else []
    )
    if len(further) != len(asked_further):
        raise watch.fail(f"{len(rows)} rows, and {len(further)} of the further quota")
    for row, upward in zip(further + rows, asked_further + charged, strict=True):
        assert upward.ask is not None
        _check_memo(watch, row, upward.ask, upward.user)
        answered = upward.is_answered and upward.ask.is_answered
        told_ms = reply_of[upward].throttle_ms if answered else NO_ANSWER
        if row.upstream_ms != told_ms:
            raise watch.fail(f"the broker's throttle was {told_ms}, recorded {row}")
    both = zip(further, rows, strict=False) if further else ((row,) for row in rows)
    return dict(zip(charged, both, strict=True))


def _check_given_back(
    watch: Watch, rows: list[Row], given_back: list[Row], half: Upward | None
) -> None:
    """Of a request that never came whole, once, behind its row, and no more than has not come."""
    (row,) = given_back if len(given_back) == 1 else (None,)
    if row is None or half is None or row.seq < rows[-1].seq:
        raise watch.fail(f"given back: {given_back}, behind {rows[-1:]}, of {half}")
    if -row.value > half.size + 4 - len(watch.up):
        raise watch.fail(f"{len(watch.up)} of {half.size} bytes have gone up, given back: {row}")


def match_fetch(
    watch: Watch,
    rows: list[Row],
    reply_of: dict[Upward, Reply],
    *,
    is_asked: bool,
    is_bucket: bool,
) -> dict[Upward, tuple[Row, ...]]:
    """One row for each Fetch answer whose head has arrived, emptied or not; waits have rows of their own.

    An answer does not wait until the callback has been asked about a new user, nor until the gateway knows
    which broker it has reached instead of the one planned: then the last one pays.
    """
    charges = [row for row in rows if row.upstream_ms != NO_ANSWER]
    fetches = [one for one in watch.upward if one.ask is not None and one.ask.key in FETCHES]
    whole = sum(one.is_answered for one in fetches)
    # Where a connection broke, a large answer may have been charged and not have arrived whole.
    if not whole <= len(charges) <= whole + bool(watch.down):
        raise watch.fail(f"{len(charges)} Fetch rows, {whole} answers")
    for upward, row in zip(fetches, charges, strict=False):
        assert upward.ask is not None
        if not is_asked and watch.node_ids <= {watch.node_id}:
            _check_memo(watch, row, upward.ask, upward.answered_user)
        reply = reply_of[upward]
        is_shared = upward.ask.key == SHARE_FETCH
        head = 9 if is_shared or upward.ask.version >= _FLEXIBLE_FETCH_FROM else 8
        if row.value != len(reply.answer) - head + _SIZE_FIELD:
            raise watch.fail(f"an answer of {len(reply.answer)} bytes is charged as {row.value}")
        if row.upstream_ms != reply.throttle_ms:
            raise watch.fail(f"the broker's throttle was {reply.throttle_ms}, recorded {row}")
        if is_shared and row.memo.enforced:
            # What asked for nothing costs nothing, unless it names much that is wrong.
            is_free = _max_bytes(reply.request) <= 0 and row.value <= _FREE_BYTES_MAX
            if is_free != (row.outcome == REJECTED):
                raise watch.fail(f"a ShareFetch counts unless it asks for nothing: {row}")
    if not is_bucket:  # there a wait has another row where the clock steps back
        _check_waits(watch, len(rows) - len(charges), len(charges))
    return {upward: (row,) for upward, row in zip(fetches, charges, strict=False)}


def _max_bytes(share_fetch: bytes) -> int:
    asked: int = decoded(share_fetch, SHARE_FETCH, share_fetch[7], is_answer=False).max_bytes
    return asked


def _waited(row: Row) -> bool:
    return row.outcome == REJECTED and row.memo.enforced


def _check_waits(watch: Watch, waits: int, charges: int) -> None:
    """A wait for room has one row, however often it was looked at: one for each answer at most."""
    local = sum(ask.key == FETCH and ask.fate is not Fate.FORWARDED for ask in watch.asks)
    if waits > charges + local + 1:
        raise watch.fail(f"{waits} rows of waits, {charges} answers, {local} of the gateway's own")


def _check_memo(watch: Watch, row: Row, ask: Ask, user: str) -> None:
    memo = row.memo
    expected = (ask.key, ask.version, user, ask.client_id or "")
    if memo.node_id not in watch.node_ids:
        raise watch.fail(f"one of the nodes {watch.node_ids} and not {memo.node_id}")
    if (memo.api_key, memo.api_version, memo.user, memo.client_id) != expected:
        raise watch.fail(f"{memo.user!r} {memo.client_id!r} is charged for {ask}, {expected}")


def in_doubt(watch: Watch, reply_of: dict[Upward, Reply], *, are_shared: bool) -> set[object]:
    """Names and ids of topics of which nobody was told what a mutation of theirs has become.

    Nor can anybody say what those were like that are shared, when one of several mutations came.
    """
    found: set[object] = set()
    for upward in watch.upward:
        if upward.ask is None or not upward.ask.is_mutation:
            continue
        outcomes = reply_of[upward].outcomes if upward in reply_of else ()
        times_out = any(one.error_code == ErrorCode.request_timed_out.value for one in outcomes)
        if are_shared or times_out or not upward.is_answered:
            found |= _named(upward)
    return found


def _named(upward: Upward) -> set[object]:
    """What the topics of a mutation are named by, each both ways."""
    found: set[object] = set()
    for topic in upward.topics:
        name = topic if isinstance(topic, str) else getattr(topic, "name", None)
        found |= {getattr(topic, "topic_id", None)} if name is None else {name, topic_id(name)}
    return found


def check_mutations(
    watch: Watch, rows: list[Row], reply_of: dict[Upward, Reply], doubtful: set[object]
) -> None:
    """What was charged and not given back is what the cluster has really changed.

    In shadow mode a rejected topic goes up all the same: its row says what it would have cost, and
    nothing of it is given back. Of topics that are in doubt no more can be said than that all was charged.
    """
    admitted = sum(row.value for row in rows if row.outcome != REJECTED)
    rejected = sum(row.value for row in rows if row.outcome == REJECTED and not row.memo.enforced)
    changed = unsure = 0.0
    is_in_doubt = False
    for upward in watch.upward:
        if upward.ask is None or not upward.ask.is_mutation or not upward.is_answered:
            continue
        reply = reply_of[upward]
        is_in_doubt |= not doubtful.isdisjoint(_named(upward))
        for outcome in reply.outcomes:
            if upward.ask.validate_only:
                continue
            changed += outcome.partitions
            if outcome.error_code == ErrorCode.request_timed_out.value:
                perhaps = _perhaps_created(upward, outcome)  # what may have been done stays charged
                changed += perhaps or 0
                unsure += perhaps is None and float("inf")
        # Neither its answer nor, where the topic was rejected in shadow mode, its row says how many.
        if upward.ask.key == CREATE_TOPICS and (upward.ask.version < 5 or rejected):
            asked = [getattr(topic, "num_partitions", 0) for topic in upward.topics]
            if -1 in asked and not all(
                getattr(topic, "assignments", ()) for topic in upward.topics
            ):
                unsure = float("inf")
    # A connection that breaks leaves charges behind whose end nobody knows.
    most = float("inf") if watch.is_broken or is_in_doubt else changed + unsure
    least = changed if unsure == 0 else 0
    if not least <= admitted + rejected or not admitted <= most:
        raise watch.fail(f"{changed} partitions were changed, {admitted} (+{rejected}) are charged")
    refused = sum(
        result.error_code is ErrorCode.throttling_quota_exceeded
        for (answer, _, _), ask in zip(
            watch.answers, (ask for ask in watch.asks if ask.is_answered), strict=False
        )
        if ask.is_mutation
        for result in results_of(ask, answer)
    )
    rows_refused = sum(row.outcome == REJECTED and row.memo.enforced for row in rows)
    if refused > rows_refused or (refused < rows_refused and not watch.is_broken):
        raise watch.fail(f"{refused} topics were refused, {rows_refused} rows say so")


def _perhaps_created(upward: Upward, outcome: TopicOutcome) -> int | None:
    """How many partitions a topic may have that timed out; None: who knows."""
    if upward.ask is None or upward.ask.key != CREATE_TOPICS:
        return 0  # there is no topic of this name to delete or to grow
    asked: Any = next(one for one in upward.topics if getattr(one, "name", None) == outcome.name)
    if asked.assignments:
        return len(asked.assignments)
    return None if asked.num_partitions == -1 else asked.num_partitions


def reply_of(watch: Watch, replies: list[Reply]) -> dict[Upward, Reply]:
    """What the broker said to each frame that reached it; it sees them in the order they went up."""
    if len(replies) > len(watch.upward):
        raise watch.fail(f"{len(watch.upward)} frames went up, the broker saw {len(replies)}")
    if len(replies) < len(watch.upward) and not watch.is_broken:
        raise watch.fail(f"{len(watch.upward)} frames went up, the broker saw {len(replies)} only")
    return dict(zip(watch.upward, replies, strict=False))
