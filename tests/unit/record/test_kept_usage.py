"""What is kept of usage is what the record's decisions come to, whatever comes in which order, and wherever it is killed."""

import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.record.record_files import as_table, put, put_record, rows_of
from tests.unit.record.usage_oracle import assert_maxima, expected, kept, lines_of

from kvota.model.errors import CorruptDataError, UsageError
from kvota.record.compact import compact
from kvota.record.found_events import find_events
from kvota.record.ingested import FOLDER, IngestFolder, write_ready
from kvota.record.kept_usage import kept_usage, usage_minutes
from kvota.record.ledger import Ledger
from kvota.record.period import Period
from kvota.record.places import USAGE_FOLDER
from kvota.record.usage_state import LATE_US, SILENT_US, Usage, moved_on, open_from_s
from kvota.record.usage_store import UsageStore, read_minutes, read_seconds, write_seconds
from kvota.record.usage_sums import LEVELS, joined, minutes_of
from kvota.testing.recorded_traffic import START_US, EventRow, RecordedTraffic

MINUTE_US = 60_000_000
# Minutes of two gateways at the same time.
GATEWAYS = [
    list(RecordedTraffic(seed, gateway=f"g{seed}", enforced=seed == 1).rows(3_000))
    for seed in (1, 2)
]
ROWS = sorted((row for rows in GATEWAYS for row in rows), key=lambda row: row[0])


class Taking:
    """Takes batches into a record; each piece of a batch becomes a file."""

    def __init__(self, into: Path, **options: int | Callable[[], int]) -> None:
        self.into = into
        self.options = options
        self.batch = 0

    def take(self, *pieces: Sequence[EventRow]) -> None:
        folder = IngestFolder.open(self.into, **self.options)
        try:
            files = []
            for number, piece in enumerate(pieces):
                # Each worker leaves out what was taken before, and what it has twice.
                rows = Ledger(folder.ledger.runs).take(as_table(piece))
                if rows.num_rows:
                    name = f"events-ingest-q-{self.batch:012d}-{number}.parquet"
                    files.append(write_ready(self.into, name, rows))
            folder.publish("q", self.batch, files, repeated=0)
        finally:
            folder.close()
        self.batch += 1


def batches(rows: Sequence[EventRow], each: int) -> Iterator[Sequence[EventRow]]:
    yield from (rows[begin : begin + each] for begin in range(0, len(rows), each))


def assert_exact(into: Path, rows: Sequence[EventRow], *, has_late: bool = False) -> None:
    """Usage is that of the rows; maxima as well, or where some came late not above."""
    for level in LEVELS:
        lines = usage_minutes(into, level)
        assert kept(lines) == expected(rows, level)
        assert_maxima(lines, lines_of(rows, level))
        assert has_late or set(lines["parts"].to_pylist()) <= {1}


def stretched(rows: Sequence[EventRow], factor: int) -> list[EventRow]:
    """The same rows with more time between them."""
    first_us = rows[0][0]
    return [(first_us + (row[0] - first_us) * factor, *row[1:]) for row in rows]


def names(into: Path) -> list[str]:
    return sorted(path.name for path in (into / USAGE_FOLDER).iterdir())


@pytest.mark.timeout(120)
def test_what_comes_in_its_order_is_counted_exactly_and_closed_minutes_are_merged(
    tmp_path: Path,
) -> None:
    taking = Taking(tmp_path)
    for count, batch in enumerate(batches(ROWS, 350), 1):
        taking.take(batch[::2], batch[1::2])
        if count % 5 == 0:
            assert_exact(tmp_path, ROWS[: 350 * count])

    there = names(tmp_path)
    assert sum(name.startswith("seconds") for name in there) <= 6
    assert any(name.startswith("usage-minutes") for name in there)
    # Readers of decisions pass over it, and so does what merges these.
    assert rows_of(tmp_path) == sorted(ROWS, key=lambda row: (row[2], row[3], row[1]))
    compact(tmp_path, now_us=10 * START_US)
    for path in tmp_path.glob("*.parquet"):
        path.unlink()
    assert names(tmp_path) == there
    assert_exact(tmp_path, ROWS)


@pytest.mark.timeout(120)
def test_what_comes_late_twice_and_in_any_order_is_counted_once(tmp_path: Path) -> None:
    rng = random.Random(3)
    taking = Taking(tmp_path)
    late = rng.sample(ROWS, 450)
    in_time = [row for row in ROWS if row not in set(late)]
    for batch in batches(in_time, 750):
        again = rng.sample(in_time, 150)  # of what was, and of what will be
        mixed = [*batch, *again]
        rng.shuffle(mixed)
        half = len(mixed) // 2
        taking.take(mixed[:half], mixed[half - 100 :], batch[:200])
    for batch in batches(late, 150):
        taking.take(batch, batch)

    assert_exact(tmp_path, ROWS, has_late=True)
    lines = usage_minutes(tmp_path)
    assert max(lines["parts"].to_pylist()) > 1


def test_files_of_an_hour_become_one_and_old_ones_go(tmp_path: Path) -> None:
    hour = stretched(ROWS[:2_300], 60)
    hour = [row for row in hour if row[0] < ROWS[0][0] + 40 * MINUTE_US]
    taking = Taking(tmp_path, usage_age_us=20 * MINUTE_US)
    for minute in range(40):
        begin_us = ROWS[0][0] + minute * MINUTE_US
        batch = [row for row in hour if begin_us <= row[0] < begin_us + MINUTE_US]
        if batch:
            taking.take(batch)

    newest_us = max(row[0] for row in hour)
    assert len([name for name in names(tmp_path) if name.startswith("usage-minutes")]) <= 9
    lines = usage_minutes(tmp_path)
    # A file goes when all of its minutes are too old.
    young = [row for row in hour if row[0] // MINUTE_US >= newest_us // MINUTE_US - 20]
    assert expected(young, "user").items() <= kept(lines).items()


class Killed(BaseException):
    """In place of ``kill -9``."""


class Switch:
    """Lets so many steps on the disk happen, and none after them, also where somebody cleans up."""

    def __init__(self) -> None:
        self.left: int | None = None
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.left is None or not event.startswith(
            ("os.rename", "os.remove", "os.mkdir", "open")
        ):
            return
        if event == "open" and arguments[1] in {"r", "rb"}:
            return
        if self.left == 0:
            raise Killed
        self.left -= 1

    @contextmanager
    def after(self, steps: int) -> Iterator[None]:
        self.left = steps
        try:
            yield
        finally:
            self.left = None


@pytest.mark.timeout(120)
def test_killed_at_any_step_usage_is_that_of_the_decisions_that_were_taken(tmp_path: Path) -> None:
    # The last batch closes minutes, merges what the first ones have left, and has rows twice.
    rows = stretched(ROWS[:1_000], 20)
    before, last = rows[:800], rows[800:]
    first = Taking(tmp_path / "first")
    for batch in batches(before, 200):
        first.take(batch)
    assert "usage-minutes" in " ".join(names(first.into))
    sums = {len(part): expected(part, "user") for part in (before, rows)}
    pieces = (last, [*last[:50], *before[:20]])
    switch = Switch()
    seen = []
    for steps in range(1_000):
        taking = Taking(shutil.copytree(first.into, tmp_path / str(steps)))
        taking.batch = first.batch
        try:
            with switch.after(steps):
                taking.take(*pieces)
        except Killed:
            pass
        else:
            break
        # Whoever reads now may find files of events that have no names yet; what is counted is whole.
        counted = kept(usage_minutes(taking.into))
        taking.take()
        seen.append(find_events([taking.into]).rows)
        assert counted == kept(usage_minutes(taking.into)) == sums[seen[-1]]
        taking.batch = 100  # what is begun again has names of its own
        taking.take(*pieces)
        assert kept(usage_minutes(taking.into)) == sums[len(rows)]
    assert seen == sorted(seen)
    assert set(seen) == sums.keys()
    assert_exact(taking.into, rows)


def test_silent_gateways_and_clocks_that_are_ahead_keep_nothing_open(tmp_path: Path) -> None:
    taking = Taking(tmp_path, now_us=lambda: START_US + 3_600_000_000)
    far = [(START_US + 10**15, *GATEWAYS[1][0][1:])]
    taking.take(GATEWAYS[0][:100], far)
    rows = [row for row in GATEWAYS[0][100:] if row[0] < START_US + 30 * MINUTE_US]
    for batch in batches(rows, 500):
        taking.take(batch)

    assert_exact(tmp_path, [*GATEWAYS[0][:100], *rows, *far])


def test_open_rows_and_files_are_few(tmp_path: Path) -> None:
    tmp_path.joinpath(USAGE_FOLDER).mkdir()
    summed = [
        write_seconds(tmp_path, str(number), as_table(rows))
        for number, rows in enumerate(batches(ROWS[:1_000], 10))
    ]
    for rows_max in (10_000, 300):
        store = UsageStore(tmp_path, open_rows_max=rows_max)
        usage = Usage()
        were_closed = False
        for item in summed:
            usage = store.with_batch(usage, [item])
            assert len(usage.seconds) <= 64
            assert sum(file.rows for file in usage.seconds) <= rows_max
            were_closed |= bool(usage.minutes)
        # Within one minute nothing is closed, unless there is too much of it.
        assert were_closed == (rows_max == 300)
        parts = [read_minutes(tmp_path, file) for file in usage.minutes]
        parts += [minutes_of(read_seconds(tmp_path, file)) for file in usage.seconds]
        lines = joined(pa.concat_tables(parts))
        of_users = lines.filter(pa.compute.equal(lines["level"], "user"))
        assert kept(of_users) == expected(ROWS[:1_000], "user")


def test_a_part_of_it_is_whole_minutes(tmp_path: Path) -> None:
    Taking(tmp_path).take(ROWS)
    first_us = ROWS[0][0]
    since_us, until_us = first_us + 90_000_000, first_us + 200_000_000
    inside = [
        row
        for row in ROWS
        if since_us // MINUTE_US <= row[0] // MINUTE_US <= (until_us - 1) // MINUTE_US
    ]

    assert kept(usage_minutes(tmp_path, period=Period(since_us, until_us))) == expected(inside, "user")  # fmt: skip
    newest = max(row[0] for row in ROWS) // MINUTE_US
    for last_s, minutes in ((1, 1), (60, 1), (61, 2), (600, 10)):
        of_last = [row for row in ROWS if row[0] // MINUTE_US > newest - minutes]
        found = kept_usage(tmp_path, "user", last_s=last_s)
        assert kept(found.lines) == expected(of_last, "user")


def test_what_was_there_before_is_not_counted_and_that_is_told(tmp_path: Path) -> None:
    put_record(tmp_path, ROWS[:500])
    Taking(tmp_path).take(ROWS[400:600])

    found = kept_usage(tmp_path, "user")

    assert kept(found.lines) == expected(ROWS[500:600], "user")
    assert found.uncounted == 500
    Taking(tmp_path).take()
    assert kept_usage(tmp_path, "user").uncounted == 500


def test_where_the_folder_was_removed_it_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taking = Taking(tmp_path)
    taking.take(ROWS[:500])
    for name in names(tmp_path):
        (tmp_path / USAGE_FOLDER / name).unlink()
    with pytest.raises(CorruptDataError, match="are gone"):
        usage_minutes(tmp_path)

    taking.take(ROWS[500:600])

    assert f"files of {tmp_path / USAGE_FOLDER} are gone" in caplog.text
    found = kept_usage(tmp_path, "user")
    assert kept(found.lines) == expected(ROWS[500:600], "user")
    assert found.uncounted == 500


@pytest.mark.parametrize("damage", ["cut", "other bytes", "gone"])
@pytest.mark.parametrize("kind", ["seconds", "usage-minutes"])
def test_damage_of_usage_keeps_no_decision_from_being_taken(
    kind: str, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Each batch closes a minute before, and the eighth file of an hour makes them one.
    hour_us = START_US // 3_600_000_000 * 3_600_000_000
    folder = IngestFolder.open(tmp_path)
    came: list[EventRow] = []
    for minute in range(20):
        batch = [
            (hour_us + minute * MINUTE_US + number, *row[1:])
            for number, row in enumerate(GATEWAYS[0][50 * minute : 50 * minute + 50])
        ]
        ready = write_ready(tmp_path, f"events-ingest-q-{minute}.parquet", as_table(batch))
        folder.publish("q", minute, [ready], repeated=0)
        came += batch
        if minute == 3:
            first = next(name for name in names(tmp_path) if name.startswith(kind))
            damaged_at = tmp_path / USAGE_FOLDER / first
            whole = damaged_at.read_bytes()
            half = len(whole) // 2
            damaged_at.unlink()
            if damage != "gone":
                damaged_at.write_bytes(whole[:half] + bytes(half if damage == "other bytes" else 0))
        if caplog.messages:
            break
    folder.close()

    assert rows_of(tmp_path) == sorted(came, key=lambda row: (row[2], row[3], row[1]))
    (message,) = caplog.messages
    assert "usage by the minute is kept anew" in message
    assert damaged_at.name in message
    found_usage = kept_usage(tmp_path, "user")
    assert kept(found_usage.lines) == expected(batch, "user")
    assert found_usage.uncounted == len(came) - len(batch)


def test_more_lines_than_can_be_read_are_refused(tmp_path: Path) -> None:
    rows = stretched(ROWS[:2_000], 60)
    taking = Taking(tmp_path)
    for batch in batches(rows, 500):
        taking.take(batch)
    every = usage_minutes(tmp_path, "user-client")
    users = usage_minutes(tmp_path, "user")
    few = users.num_rows

    with pytest.raises(UsageError, match=f"at most {few}.*--last.*by user or by client alone"):
        kept_usage(tmp_path, "user-client", lines_max=few)

    assert every.num_rows > few
    assert kept_usage(tmp_path, "user", lines_max=few).lines == users
    of_last = kept_usage(tmp_path, "user-client", last_s=60, lines_max=few)
    assert 0 < of_last.lines.num_rows < few
    with pytest.raises(UsageError, match="Ask for less time"):
        kept_usage(tmp_path, "user", lines_max=3)


def test_what_is_too_old_when_it_comes_is_said(tmp_path: Path) -> None:
    taking = Taking(tmp_path, usage_age_us=20 * MINUTE_US)
    old = ROWS[:100]
    new = [(row[0] + 60 * MINUTE_US, *row[1:]) for row in ROWS[100:200]]
    taking.take(new)
    taking.take(old)

    decisions = sum(line.decisions for line in lines_of(old, "user").values())
    assert kept_usage(tmp_path, "user").uncounted == decisions
    assert kept(usage_minutes(tmp_path)) == expected(new, "user")


def test_damage_is_named(tmp_path: Path) -> None:
    Taking(tmp_path).take(ROWS)
    for name in names(tmp_path):
        path = tmp_path / USAGE_FOLDER / name
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(CorruptDataError, match=f"{name} cannot be read"):
            usage_minutes(tmp_path)
        path.write_bytes(whole)


def test_other_places_are_refused(tmp_path: Path) -> None:
    put(tmp_path, ROWS[:10])
    for place in (tmp_path, tmp_path / "none", "s3a://bucket/record"):
        with pytest.raises(UsageError, match="has no usage by the minute"):
            usage_minutes(place)
    (tmp_path / FOLDER).mkdir()
    with pytest.raises(UsageError, match="is kept by user, client, user-client"):
        usage_minutes(tmp_path, "counter")
    assert find_events([tmp_path]).rows == 10


TIMES = st.integers(-(10**15), 3 * 10**15)
STEPS = st.lists(
    st.tuples(st.dictionaries(st.sampled_from("abcd"), TIMES, max_size=4), TIMES), max_size=8
)


@given(STEPS, st.booleans())
def test_a_minute_is_closed_when_all_that_are_waited_for_are_past_it(
    steps: list[tuple[dict[str, int], int]], has_clock: bool
) -> None:
    newest: dict[str, int] = {}
    for came, now_us in steps:
        before = newest
        newest = moved_on(before, came, now_us=now_us if has_clock else None)
        told = {**before, **{g: min(us, now_us) if has_clock else us for g, us in came.items()}}
        every = {gateway: max(us, before.get(gateway, us)) for gateway, us in told.items()}
        latest_us = max(every.values(), default=0)
        # Nobody is waited for who is silent and far behind, and everybody who is not.
        waited_for = {g for g, us in every.items() if us >= latest_us - SILENT_US} | came.keys()
        assert newest == {g: every[g] for g in waited_for}
        end_s = open_from_s(newest)
        assert (end_s is None) == (not newest)
        if end_s is not None:
            assert end_s % 60 == 0
            assert all(us >= end_s * 1_000_000 + LATE_US for us in newest.values())
            assert any(us < (end_s + 60) * 1_000_000 + LATE_US for us in newest.values())
