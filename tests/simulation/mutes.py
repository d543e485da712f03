"""A check that who is muted is not heard: a second account of every mute, from the rows alone."""

from dataclasses import dataclass

from tests.simulation.watch import TimedRows, Upward, Watch

from kvota.model.decision_sink import NO_ANSWER, REJECTED, THROTTLED
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.testing.frames import PRODUCE, decoded
from kvota.testing.scripted_broker import Reply
from kvota.testing.share_frames import SHARE_FETCH
from kvota.testing.stage import Row
from kvota.wire.steps import STEP_PARTS

# By so much a mute's cap may come earlier than this account has it: a wait for room that was looked at
# again (1 s), and a timer that was late (0.25 s), count as part of a mute.
_CAP_EARLY_MS = 1_300
_LOOK_AGAIN_MS = 1_000
_MUTATION = QuotaType.CONTROLLER_MUTATION


@dataclass(slots=True)
class _Mute:
    """From when to when one connection is muted, monotonic.

    Attributes:
        asked: (tick, when, for how long) of each mute that the machine asked for. It may be a window longer
            than a row says, and that counts where a cap begins anew.
    """

    asked: list[tuple[int, int, int]]
    since_ms: int | None = None
    ends_ms: int = 0

    def runs_at(self, at_ms: int) -> bool:
        ends = (when + for_ms for _, when, for_ms in self.asked if when < at_ms)
        return at_ms < max(self.ends_ms, max(ends, default=0))

    def begin(self, at_ms: int, for_ms: float) -> None:
        if self.since_ms is None or not self.runs_at(at_ms):
            self.since_ms = at_ms
        self.ends_ms = max(self.ends_ms, at_ms + int(for_ms))


def check_mutes(
    watch: Watch,
    rows: TimedRows,
    row_of: dict[Upward, tuple[Row, ...]],
    reply_of: dict[Upward, Reply],
    *,
    cap_ms: int,
    excuses_ms: list[int],
    time_ms: tuple[int, ...] = (),
) -> None:
    """No request goes up while a throttle time runs, but one that is no Produce after each cap.

    Args:
        watch: the connection.
        rows: with the time of each decision.
        row_of: the rows of each Produce and Fetch.
        reply_of: what the broker said to what went up.
        cap_ms: after so long one request is let through.
        excuses_ms: when a running mute may have become a shorter one: other quotas are in force, or
            somebody set the wall clock forward, on which what is left behind a cap is reckoned.
        time_ms: throttle times of REQUEST: a mute of theirs began with its row, and not with the answer.
    """
    begins = _fetch_mutes(rows, row_of) + _mutation_mutes(watch, reply_of, time_ms)
    # Where a cap begins is known from the machine alone: a broker's longer throttle hides its own.
    begins += [(tick, at_ms, 0.0) for tick, at_ms, for_ms in watch.mutes if for_ms]
    begins.sort()
    mute = _Mute(watch.mutes)
    is_under_way = False
    has_large = any(len(ask.topics) > STEP_PARTS for ask in watch.asks)
    for upward in watch.upward:
        while begins and begins[0][0] < upward.tick:
            _, at_ms, for_ms = begins.pop(0)
            mute.begin(at_ms, for_ms)
        # A mutation that has begun goes on: its questions and the request itself pass in a mute, too. A large one has
        # begun some steps before its first question.
        goes_on, is_under_way = is_under_way, upward.ask is None
        goes_on |= is_under_way and has_large
        at_ms = upward.at_ms
        if mute.since_ms is not None and mute.runs_at(at_ms) and not goes_on:
            if any(mute.since_ms <= excuse_ms <= at_ms for excuse_ms in excuses_ms):
                return  # from here on this account does not know what the mute is
            # A Produce waits for all of it, as with a broker; another request until the cap.
            is_produce = upward.ask is not None and upward.ask.key == PRODUCE
            capped_ms = mute.since_ms + cap_ms - _CAP_EARLY_MS
            if at_ms < (mute.ends_ms if is_produce else min(mute.ends_ms, capped_ms)):
                raise watch.fail(
                    f"forwarded {at_ms - mute.since_ms} ms after the begin of a mute of "
                    f"{mute.ends_ms - mute.since_ms} ms: {upward.ask}"
                )
            mute.since_ms = at_ms
        for row in row_of.get(upward, ()):
            memo = row.memo
            if memo.quota_type is QuotaType.PRODUCE and memo.enforced and row.outcome == THROTTLED:
                mute.begin(at_ms, row.throttle_ms)


def check_mutes_have_rows(
    watch: Watch,
    rows: TimedRows,
    charged: list[Row],
    *,
    excuses_ms: list[int],
    stepped_back_ms: int,
    time_ms: tuple[int, ...] = (),
) -> None:
    """Nobody is muted for longer than a row says, and everybody whose answer was emptied.

    Args:
        watch: the connection.
        rows: with the time of each decision.
        charged: the rows of this connection.
        excuses_ms: once quotas have changed, running mutes are other ones than the rows say.
        stepped_back_ms: by how much the wall clock was set back in all.
        time_ms: throttle times of REQUEST: what that empties has been muted when the first of it came.
    """
    mutation_ms = max(
        (row.throttle_ms for row in charged if row.memo.quota_type is _MUTATION), default=0
    )
    waits = any(row.outcome == REJECTED for row in charged)
    # Whose answer is emptied waits for what is owed: of that, or of one that another connection got.
    of_fetch = [row for row in rows.rows if row.memo.quota_type is QuotaType.FETCH]
    muted_ms = {at_ms for _, at_ms, for_ms in watch.mutes if for_ms}
    for row in charged:
        if row.throttle_ms <= max(time_ms, default=-1):
            continue
        if _is_emptied(row) and row.memo.enforced and rows.decided[row.seq][1] not in muted_ms:
            raise watch.fail(f"an answer was emptied, and nobody muted: {row}")
    for _, at_ms, for_ms in watch.mutes:
        if any(excuse_ms <= at_ms for excuse_ms in excuses_ms):
            return
        now = [row for row in charged if rows.decided[row.seq][1] == at_ms]
        exact_ms = {row.throttle_ms for row in now}
        exact_ms |= {_with_window_ms(row) for row in now}
        # What is left of a mutation's throttle, and how long a Fetch waits until it is looked at again.
        most_ms = max(mutation_ms and mutation_ms + stepped_back_ms, _LOOK_AGAIN_MS if waits else 0)
        if any(_is_emptied(row) for row in now):
            most_ms = max(most_ms, *map(_with_window_ms, of_fetch))
        if for_ms not in exact_ms and for_ms > most_ms:
            raise watch.fail(f"muted for {for_ms} ms at {at_ms}, and no row says so: {exact_ms}")


def _is_emptied(row: Row) -> bool:
    return _mutes(row) and row.outcome == REJECTED and row.upstream_ms != NO_ANSWER


def _mutes(row: Row) -> bool:
    """A row of FETCH that may mute: a ShareFetch goes up for nothing instead."""
    return row.memo.quota_type is QuotaType.FETCH and row.memo.api_key != SHARE_FETCH


def _with_window_ms(row: Row) -> int:
    """An answer larger than an empty window costs one window more; a bucket's window is its burst."""
    samples = row.memo.samples - (row.memo.algorithm is not Algorithm.TOKEN_BUCKET)
    return row.throttle_ms + samples * row.memo.sample_ms


def _fetch_mutes(
    rows: TimedRows, row_of: dict[Upward, tuple[Row, ...]]
) -> list[tuple[int, int, float]]:
    """(tick, when, for how long) of each mute that an answer to a Fetch has begun."""
    begins = []
    for row in (row for rows_ in row_of.values() for row in rows_):
        memo = row.memo
        if _mutes(row) and memo.enforced and row.outcome == THROTTLED:
            tick, at_ms = rows.decided[row.seq]
            begins.append((tick, at_ms, float(row.throttle_ms)))
    return begins


def _mutation_mutes(
    watch: Watch, reply_of: dict[Upward, Reply], time_ms: tuple[int, ...]
) -> list[tuple[int, int, float]]:
    """The same for answers to mutations that name a longer throttle time than the broker did."""
    asked = [ask for ask in watch.asks if ask.is_answered]
    broker_ms = {upward.ask: reply.throttle_ms for upward, reply in reply_of.items()}
    begins = []
    for (answer, tick, at_ms), ask in zip(watch.answers, asked, strict=False):
        if ask.is_mutation:
            message = decoded(answer, ask.key, ask.version)
            throttle_ms = round(message.throttle_time.total_seconds() * 1000)
            if throttle_ms > broker_ms.get(ask, 0) and throttle_ms not in time_ms:
                begins.append((tick, at_ms, float(throttle_ms)))
    return begins
