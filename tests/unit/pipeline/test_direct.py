"""What is read range by range from merged files is what comes of chunks, to the bit, however a record was cut."""

import errno
import os
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.pipeline.packed_events import Second, seconds_by_counter
from tests.unit.record.record_files import put

from kvota.model.errors import KvotaError
from kvota.model.quota_type import QuotaType
from kvota.pipeline import chunk_schema as s
from kvota.pipeline import direct, key_ranges, row_groups
from kvota.pipeline.direct import counter_ids, cut_for_tasks, rows_in
from kvota.pipeline.event_columns import Events
from kvota.pipeline.key_ranges import LEAST, Cut, KeyRange, Room, RowGroup, after, cut
from kvota.pipeline.pack import pack
from kvota.pipeline.packing_choice import Packing
from kvota.pipeline.row_groups import (
    FILE_CHANGED,
    GroupReader,
    group_file,
    groups_of,
    joined,
    unreadable,
)
from kvota.pipeline.seconds import of_whole_counters, sums_of_rows
from kvota.pipeline.unpack import Rows, unpack
from kvota.record import event_parquet
from kvota.record.compact import compact
from kvota.record.event_file import EventFile
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.record.found_events import FoundEvents, find_events
from kvota.record.period import Period
from kvota.testing.recorded_traffic import EventRow, RecordedTraffic

TS_US, SEQ, GATEWAY, TAGS, USER, VALUE, LIMIT, ENFORCED = (
    EVENT_SCHEMA.names.index(name)
    for name in ("ts_us", "seq", "gateway", "tags", "user", "value", "limit", "enforced")
)
BYS: tuple[s.By, ...] = ("counter", "user", "client", "user-client", "tags")
FURTHER = frozenset({"throttle_ms", "upstream_throttle_ms", "tags"})


@pytest.fixture(scope="module")
def rows() -> list[EventRow]:
    """Restarted gateways, ties, and a name with characters of all lengths."""
    of_runs = [
        *RecordedTraffic(7, run_id="run-1", enforced=False).rows(2_000),
        *RecordedTraffic(8, run_id="run-2", gateway="gateway 2", enforced=True).rows(700),
        *RecordedTraffic(9, run_id="run-3", gateway="gateway 2", enforced=True).rows(500),
    ]
    made = []
    for number, row in enumerate(of_runs):
        changed = list(row)
        changed[TS_US] -= changed[TS_US] % 40_000  # many at the same time
        if number % 11 == 0:
            changed[USER] = "größe\0" * (number % 5)
            changed[TAGS] = f"client-id=,user={'x' * (number % 70)}"
        made.append(tuple(changed))
    return made


def record(
    rows: list[EventRow], folder: Path, monkeypatch: pytest.MonkeyPatch, *, seed: int, unmerged: int
) -> FoundEvents:
    """The rows in merged files of several folders, and so many of them in files as gateways write them."""
    rng = random.Random(seed)
    monkeypatch.setattr(event_parquet, "_MERGED_GROUP_ROWS", rng.choice((64, 200)))
    here = rows if seed % 2 else rng.sample(rows, len(rows))
    merged, raw = here[unmerged:], here[:unmerged]
    cuts = sorted(rng.sample(range(1, len(merged)), 4))
    for place, (a, b) in enumerate(zip([0, *cuts], [*cuts, len(merged)], strict=True)):
        put(folder / str(place), merged[a:b])
        compact(folder / str(place), now_us=0, every_hour=True)
    if raw:
        put(folder / "raw", raw)
    return find_events([folder])


def of_runs(found: FoundEvents, by: s.By, **how: object) -> Packing:
    runs = {(run.gateway, run.run_id): (rank, rank != 1) for rank, run in enumerate(found.runs)}
    return Packing(by=by, runs=runs, further=FURTHER, **how)  # type: ignore[arg-type]


def files_of(found: FoundEvents) -> list[EventFile]:
    return sorted(found.files, key=lambda file: (file.first_us, str(file.path)))


def read(found: FoundEvents, packing: Packing, how: Cut) -> Iterator[Rows]:
    for ranges in (*how.tasks, *((one,) for one in how.large)):
        yield from rows_in(reader_of(found, packing), ranges)


def reader_of(found: FoundEvents, packing: Packing) -> GroupReader:
    files = tuple(group_file(file, packing) for file in files_of(found))
    return GroupReader(files, packing, "")


def all_groups(found: FoundEvents, packing: Packing) -> list[RowGroup]:
    return [g for n, file in enumerate(files_of(found)) for g in groups_of(n, file, packing)]


def room(begun_max: int, open_max: int) -> Room:
    return Room(begun_max=begun_max, open_max=open_max, kept_bytes_max=1 << 20)


def cut_small(found: FoundEvents, packing: Packing, tasks: int, at_once: int) -> Cut:
    groups = all_groups(found, packing)
    return cut(groups, tasks, rows_at_once=at_once, room=room(10_000, 10_000))


Found = dict[tuple[object, ...], list[tuple[float, ...]]]


def numbers_of(parts: Iterable[Rows]) -> Found:
    """The numbers of each counter, in order, as bits; a counter may go on from one part to the next."""
    found: Found = defaultdict(list)
    before: tuple[object, ...] | None = None
    for rows in parts:
        columns = [rows.columns[name] for name in s.INTS]
        columns += [rows.columns[name].view(np.int64) for name in s.DOUBLES]
        assert all(column.flags.c_contiguous and column.flags.writeable for column in columns)
        numbers = list(zip(*(column.tolist() for column in columns), strict=True))
        for place, name in enumerate(rows.names.to_pylist()):
            key = tuple(name.values())
            if place or not rows.continues:
                assert key not in found
            else:
                assert key == before
            found[key] += numbers[rows.starts[place] : rows.starts[place + 1]]
            before = key
    return dict(found)


def through_chunks(found: FoundEvents, packing: Packing) -> Found:
    chunks = chunks_of(found, packing)
    return numbers_of(unpack(chunks.to_batches(), as_recorded=packing.by == "counter"))


def chunks_of(found: FoundEvents, packing: Packing) -> pa.Table:
    packed = [
        chunks
        for file in found.files
        if (chunks := pack(Events(pq.read_table(file.path)), packing)) is not None
    ]
    table = pa.Table.from_batches(packed, s.CHUNK).combine_chunks()
    ids = counter_ids([table[name].chunk(0) for name in s.COUNTER_COLUMNS])
    table = table.append_column("counter_id", pa.array(ids))
    return table.sort_by([("counter_id", "ascending"), ("first", "ascending")])


@pytest.mark.parametrize("by", BYS)
@pytest.mark.parametrize(("seed", "unmerged"), [(1, 0), (2, 0), (3, 300), (4, 300)])
def test_ranges_have_the_rows_of_chunks(
    rows: list[EventRow],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by: s.By,
    seed: int,
    unmerged: int,
) -> None:
    found = record(rows, tmp_path, monkeypatch, seed=seed, unmerged=unmerged)
    packing = of_runs(found, by)
    expected = through_chunks(found, packing)

    for tasks, at_once in ((1, 100_000), (2, 900), (4, 150), (3, 1)):
        how = cut_small(found, packing, tasks, at_once)
        assert numbers_of(read(found, packing, how)) == expected
    assert sum(map(len, expected.values())) == len(rows)
    assert any(len(ranges) > 1 for ranges in how.tasks)


@pytest.mark.parametrize("by", BYS)
@pytest.mark.parametrize(("seed", "found_max"), [(1, 150), (2, 20), (3, 600)])
def test_a_range_with_more_rows_than_may_be_there_at_once_is_worked_off_in_parts(
    rows: list[EventRow],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by: s.By,
    seed: int,
    found_max: int,
) -> None:
    found = record(rows[::2], tmp_path, monkeypatch, seed=seed, unmerged=50 * seed)
    packing = of_runs(found, by)
    expected = through_chunks(found, packing)
    monkeypatch.setattr(direct, "_FOUND_MAX", found_max)
    monkeypatch.setattr(direct, "_SUMMED_AT_ONCE", 64)
    monkeypatch.setattr(direct, "_CHUNKS_AT_ONCE", 3)
    if seed == 1:  # there is room for a few groups only; others are read again
        monkeypatch.setattr(row_groups, "KEPT_BYTES_MAX", 40_000)

    for tasks, at_once in ((1, 100_000), (2, 700)):
        parts = list(read(found, packing, cut_small(found, packing, tasks, at_once)))
        assert numbers_of(parts) == expected
        # Of one key, which cannot be cut, chunks are unpacked some at a time.
        assert max(part.starts[-1] for part in parts) <= found_max + 200


@pytest.mark.parametrize("kept_bytes_max", [0, 1 << 40])
@pytest.mark.parametrize(("seed", "unmerged"), [(1, 0), (3, 300)])
def test_it_is_known_before_how_many_rows_are_read(
    rows: list[EventRow],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    unmerged: int,
    kept_bytes_max: int,
) -> None:
    found = record(rows, tmp_path, monkeypatch, seed=seed, unmerged=unmerged)
    packing = of_runs(found, "counter")
    how = cut_small(found, packing, 3, 200)
    assert not how.large
    monkeypatch.setattr(row_groups, "KEPT_BYTES_MAX", kept_bytes_max)
    done: list[int] = []
    read_group = GroupReader.read

    def counted(reader: GroupReader, group: RowGroup) -> Events:
        done.append(group.rows)
        return read_group(reader, group)

    monkeypatch.setattr(GroupReader, "read", counted)

    assert sum(map(len, numbers_of(read(found, packing, how)).values())) == len(rows)

    assert sum(done) == how.rows_read(kept_bytes_max)


def test_about_how_much_memory_a_kept_group_takes(
    rows: list[EventRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of groups as large as real ones are: where these are small, what each array takes by itself counts."""
    monkeypatch.setattr(event_parquet, "_MERGED_GROUP_ROWS", 1 << 16)
    many = [(*row[:1], seq, *row[2:]) for seq, row in enumerate(rows * 20)]
    put(tmp_path / "merged", many)
    compact(tmp_path / "merged", now_us=0, every_hour=True)
    put(tmp_path / "raw", [(*row[:3], "other", *row[4:]) for row in many])
    for by in BYS:
        found = find_events([tmp_path])
        packing = of_runs(found, by)
        reader = reader_of(found, packing)
        for group in all_groups(found, packing):
            if group.rows > 10_000:
                keyed = row_groups._keyed(reader.read(group), packing.by)
                assert 0.5 < group.kept_bytes / keyed.size_bytes < 2


@pytest.mark.parametrize("by", BYS)
@pytest.mark.parametrize("order", ["ts_us", "value"])
def test_a_merged_file_that_somebody_wrote_anew_in_another_order_is_read_as_it_lies(
    rows: list[EventRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: s.By, order: str
) -> None:
    record(rows, tmp_path, monkeypatch, seed=1, unmerged=0)
    before = find_events([tmp_path])
    for file in before.files[1:]:
        table = pq.read_table(file.path).sort_by(order)
        pq.write_table(table, file.path, row_group_size=64)
    found = find_events([tmp_path])
    assert all(file.is_compacted for file in found.files)  # its footer still says so
    packing = of_runs(found, by)

    for tasks, at_once in ((1, 100_000), (2, 900), (4, 150), (3, 1)):
        how = cut_small(found, packing, tasks, at_once)
        assert numbers_of(read(found, packing, how)) == through_chunks(found, packing)


@pytest.mark.parametrize(
    ("by", "how"),
    [
        ("counter", {}),
        ("user", {"gateways_apart": True}),
        ("user", {"modes_apart": True}),
        ("client", {"quota_types": frozenset({"PRODUCE"}), "period": True}),
    ],
)
@pytest.mark.parametrize(
    "seed", [1, 2]
)  # files one after the other in time, and files that overlap
def test_a_counter_too_large_for_a_task_is_streamed_and_has_the_rows_of_chunks(
    rows: list[EventRow],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by: s.By,
    how: dict[str, object],
    seed: int,
) -> None:
    if "period" in how:
        times = sorted(row[TS_US] for row in rows)
        how = how | {"period": Period(times[100], times[-100])}
    found = record(rows[::3], tmp_path, monkeypatch, seed=seed, unmerged=100 * (seed - 1))
    packing = of_runs(found, by, **how)
    expected = through_chunks(found, packing)
    monkeypatch.setattr(key_ranges, "_PASSES_MAX", 9)
    monkeypatch.setattr(direct, "_ROWS_AT_ONCE", 50)

    groups = all_groups(found, packing)
    cut_here = cut(groups, 2, rows_at_once=50, room=room(80, 10_000))
    parts = list(read(found, packing, cut_here))

    assert numbers_of(parts) == expected
    streamed = [one for ranges in cut_here.tasks for one in ranges if one.is_streamed]
    assert streamed
    assert all(one.end == after(one.start) for one in streamed)
    in_parts = [part for part in parts if part.continues and len(part.names) == 1]
    assert in_parts or (by, seed) != ("counter", 1)


@pytest.mark.parametrize("by", ["counter", "tags"])
def test_names_too_long_for_a_footer_leave_their_neighbours_whole(
    rows: list[EventRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: s.By
) -> None:
    """A footer has no bounds of texts beyond 4 KB, or only one of both."""
    with_long = []
    for number, row in enumerate(rows[:1_500]):
        changed = list(row)
        if number % 7 == 0:
            changed[TAGS] = f"client-id=,user={'mno'[number % 3] * (5_000 + number % 2)}"
        with_long.append(tuple(changed))
    found = record(with_long, tmp_path, monkeypatch, seed=1, unmerged=0)
    packing = of_runs(found, by)

    how = cut_small(found, packing, 3, 100)

    assert numbers_of(read(found, packing, how)) == through_chunks(found, packing)
    assert any(group.last is None for group in all_groups(found, packing))
    assert sum(map(len, how.tasks)) > 5


@pytest.mark.parametrize("by", BYS)
def test_what_no_gateway_records_comes_out_of_a_merged_record_as_it_went_in(
    rows: list[EventRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: s.By
) -> None:
    names = ("a\0", "\n", "😀" * 40, "x" * 65_536, "", "\u2028", "a")
    values = (float("nan"), float("inf"), -float("inf"), -1.0, 2.0**63, -0.0, 0.0)
    strange = []
    for number, row in enumerate(rows[:1_200]):
        changed = list(row)
        if number % 3 == 0:
            changed[USER] = names[number % 7]
            changed[VALUE] = values[number // 3 % 7]
        if number % 5 == 0:
            changed[LIMIT] = values[number // 5 % 7]
        if number >= 400:  # a footer tells neither 0 from -0 nor of NaN beside one number
            changed[VALUE], changed[LIMIT] = ((0.0, 5.0), (-0.0, float("nan")))[number % 2]
        strange.append(tuple(changed))
    found = record(strange, tmp_path, monkeypatch, seed=1, unmerged=60)
    packing = of_runs(found, by)

    how = cut_small(found, packing, 3, 100)

    assert numbers_of(read(found, packing, how)) == through_chunks(found, packing)
    if by == "user":
        kept = {name[5] for name in through_chunks(found, packing)}
        assert len(kept) > len(names)


@pytest.mark.parametrize("by", ["user", "client", "tags"])
@pytest.mark.parametrize("how", ["at once", "streamed", "in parts"])
@pytest.mark.parametrize("seed", [1, 4])
def test_sums_of_seconds_are_those_of_chunks(
    rows: list[EventRow],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by: s.By,
    how: str,
    seed: int,
) -> None:
    found = record(rows, tmp_path, monkeypatch, seed=seed, unmerged=100)
    packing = of_runs(found, by, modes_apart=True)
    charges = unpack(chunks_of(found, packing).to_batches(), as_recorded=False)
    expected = seconds_by_counter(of_whole_counters(sums_of_rows(charges)))
    summed = replace(packing, is_summed=True)
    monkeypatch.setattr(key_ranges, "_PASSES_MAX", 99)
    monkeypatch.setattr(direct, "_ROWS_AT_ONCE", 50)

    groups = all_groups(found, summed)
    begun_max = 80 if how == "streamed" else 100_000
    if how == "in parts":
        monkeypatch.setattr(direct, "_FOUND_MAX", 90)
        monkeypatch.setattr(direct, "_SUMMED_AT_ONCE", 40)
    cut_here = cut(groups, 2, rows_at_once=50, room=room(begun_max, 10_000))

    streamed = [one for ranges in cut_here.tasks for one in ranges if one.is_streamed]
    assert bool(streamed) == (how == "streamed")
    got: dict[tuple[object, ...], list[Second]] = {}
    charges_seen = 0
    for ranges in (*cut_here.tasks, *((one,) for one in cut_here.large)):
        parts = list(rows_in(reader_of(found, summed), ranges))
        charges_seen += sum(each.charges for each in parts)
        got |= seconds_by_counter(of_whole_counters(parts))
    assert got == expected
    assert charges_seen == len(rows)


def test_a_key_of_several_counters_that_nobody_knows_is_not_streamed(
    rows: list[EventRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = record(rows, tmp_path, monkeypatch, seed=2, unmerged=0)

    for by in ("counter", "user-client"):  # three runs in a file; any number of client ids
        groups = all_groups(found, of_runs(found, by))
        cut_here = cut(groups, 2, rows_at_once=50, room=room(100, 10_000))
        assert cut_here.large
        assert not any(one.is_streamed for ranges in cut_here.tasks for one in ranges)


def test_a_group_without_a_row_of_the_counter_is_not_read_again(
    rows: list[EventRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shadow = [row for row in rows if not row[ENFORCED]]
    found = record(shadow, tmp_path, monkeypatch, seed=1, unmerged=0)
    packing = of_runs(found, "user", modes_apart=True)
    (first, *_) = all_groups(found, packing)
    whole = KeyRange(LEAST, None, (first,), is_streamed=True)
    reader = reader_of(found, packing)

    assert reader.events_of(first, whole, (("enforced", False),)).rows == first.rows
    monkeypatch.setattr(GroupReader, "read", lambda *_: pytest.fail("it was read"))
    assert reader.events_of(first, whole, (("enforced", True),)).rows == 0


def test_gateways_apart_are_counters_of_their_own(
    rows: list[EventRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = record(rows, tmp_path, monkeypatch, seed=6, unmerged=100)
    packing = of_runs(found, "user", gateways_apart=True)

    got = numbers_of(read(found, packing, cut_small(found, packing, 3, 500)))

    recorded = {row[GATEWAY] for row in rows}
    assert got == through_chunks(found, packing)
    assert {key[1] for key in got} == recorded
    assert len(recorded) > 1


@pytest.mark.parametrize("by", ["counter", "user"])
def test_a_part_of_the_rows_is_the_same_part(
    rows: list[EventRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: s.By
) -> None:
    found = record(rows, tmp_path, monkeypatch, seed=5, unmerged=100)
    times = sorted(row[TS_US] for row in rows)
    packing = of_runs(
        found,
        by,
        quota_types=frozenset({"FETCH", "PRODUCE"}),
        other_types=frozenset({"FETCH"}),
        period=Period(times[200], times[2_000]),
        modes_apart=by == "user",
    )

    got = numbers_of(read(found, packing, cut_small(found, packing, 2, 500)))

    assert got == through_chunks(found, packing)
    assert {key[4] for key in got} == {"PRODUCE"}


def test_columns_of_one_value_are_not_read(
    rows: list[EventRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same = [(*row[:LIMIT], None, *row[LIMIT + 1 :]) for row in rows[:500]]
    found = record(same, tmp_path, monkeypatch, seed=1, unmerged=0)
    packing = of_runs(found, "counter")

    (group, *_) = groups_of(0, files_of(found)[0], packing)
    events = reader_of(found, packing).read(group)

    assert {"gateway", "run_id", "limit"} <= events.same.keys()
    assert events.same["limit"] is None
    assert {"ts_us", "seq", "value"} <= set(events.table.column_names)
    assert not events.same.keys() & set(events.table.column_names)


def test_columns_of_one_value_in_some_groups_are_put_together_with_others() -> None:
    def part(name: str | None, *users: str) -> Events:
        numbers = pa.table({"seq": pa.array(range(len(users)), pa.int64())})
        if len(users) < 2:
            return Events(numbers, {"user": name, "enforced": True, "limit": None})
        texts = pa.array(users).dictionary_encode()
        return Events(numbers.append_column("user", texts), {"enforced": True, "limit": None})

    both = joined([part("a", ""), part(None, ""), part("", "b", "c", "b")])

    assert both.same == {"enforced": True, "limit": None}
    assert both.table["user"].to_pylist() == ["a", None, "b", "c", "b"]
    assert both.table["seq"].to_pylist() == [0, 0, 0, 1, 2]


def test_a_file_that_has_gone_or_changed_is_named(
    rows: list[EventRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = record(rows[:300], tmp_path, monkeypatch, seed=1, unmerged=0)
    first, second, *_ = files_of(found)
    packing = of_runs(found, "counter")
    files = (group_file(first, packing), group_file(second, packing))
    groups = [groups_of(0, first, packing)[0], groups_of(1, second, packing)[0]]
    second.path.write_bytes(first.path.read_bytes())
    first.path.unlink()

    with pytest.raises(RuntimeError, match=f"{FILE_CHANGED}.*is gone"):
        GroupReader(files, packing, "").read(groups[0])
    with pytest.raises(RuntimeError, match=f"{FILE_CHANGED}.*is another one now"):
        GroupReader(files, packing, "").read(groups[1])


def test_a_file_that_is_damaged_behind_its_footer_is_named(
    rows: list[EventRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = record(rows[:300], tmp_path, monkeypatch, seed=1, unmerged=0)
    file = files_of(found)[0]
    packing = of_runs(found, "counter")
    (group, *_) = groups_of(0, file, packing)
    content = bytearray(file.path.read_bytes())
    footer_bytes = int.from_bytes(content[-8:-4], "little")
    content[4 : -8 - footer_bytes] = bytes(len(content) - 12 - footer_bytes)
    file.path.write_bytes(content)
    os.utime(file.path, ns=(file.modified_ns, file.modified_ns))  # nobody can tell from outside

    with pytest.raises(RuntimeError, match=rf"{file.path}: its rows cannot be read \(.+\)"):
        GroupReader((group_file(file, packing),), packing, "").read(group)
    kept = group_file(file, packing)
    refused = unreadable(kept, OSError(errno.EMFILE, "Too many open files"))
    assert str(refused) == f"{file.path}: its rows cannot be read ([Errno 24] Too many open files)"
    file.path.write_bytes(content[:-1])
    assert FILE_CHANGED in str(unreadable(kept, OSError("Couldn't deserialize thrift")))


def test_two_counters_of_one_id_are_refused(
    rows: list[EventRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = record(rows[:300], tmp_path, monkeypatch, seed=1, unmerged=0)
    packing = of_runs(found, "counter")
    monkeypatch.setattr(direct, "counter_ids", lambda columns: np.zeros(len(columns[0]), np.int64))

    with pytest.raises(KvotaError, match="two counters have the same counter_id"):
        list(read(found, packing, cut_small(found, packing, 1, 1_000)))


def test_it_is_shuffled_where_reading_ranges_does_not_pay(
    rows: list[EventRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = record(rows, tmp_path, monkeypatch, seed=1, unmerged=100)
    total = found.rows
    groups = all_groups(found, of_runs(found, "counter"))
    monkeypatch.setattr(direct, "_ROWS_AT_ONCE_MIN", 50)

    assert cut_for_tasks(groups, 4, total) is not None
    monkeypatch.setattr(direct, "_READ_MAX", 1.0)  # every task reads the unmerged rows
    monkeypatch.setattr(direct, "_ROWS_AT_ONCE", 50)
    assert cut_for_tasks(groups, 4, total) is None
    monkeypatch.setattr(direct, "_READ_MAX", 2.0)
    monkeypatch.setattr(direct, "_OPEN_MAX", 10)
    assert cut_for_tasks(groups, 4, total) is None
    assert cut_for_tasks([], 4, total) == Cut(tasks=((),), large=())


def test_it_is_shuffled_where_bounds_do_not_tell_where_rows_lie(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All groups end at the same key: the last range may have all rows, though few begin in it."""
    names = [f"user-{number:03}" for number in range(40)]
    groups = [
        RowGroup(place, 0, 100, ("PRODUCE", name, 0), ("PRODUCE", "z", 0))
        for place, name in enumerate(names)
    ]
    in_order = [replace(group, last=group.first) for group in groups]
    monkeypatch.setattr(direct, "_ROWS_AT_ONCE", 400)
    monkeypatch.setattr(direct, "_ROWS_AT_ONCE_MIN", 400)

    assert cut_for_tasks(groups, 1, 4_000) is not None  # all of it may be there at once
    monkeypatch.setattr(direct, "_FOUND_MAX", 1_000)
    assert cut_for_tasks(groups, 1, 4_000) is None
    assert cut_for_tasks(in_order, 1, 4_000) is not None


def test_a_part_of_a_table_has_its_own_texts() -> None:
    texts = pa.array(["a", "b", None, "c", "b", "a"]).dictionary_encode()
    events = Events(pa.table({"user": texts, "seq": pa.array(range(6))}), {"tags": "t"})

    part = events.take(np.array([2, 4])).with_own_texts()

    assert part.table["user"].to_pylist() == [None, "b"]
    assert part.table["user"].chunk(0).dictionary.to_pylist() == ["b"]
    assert part.table.schema == events.table.schema
    assert part.same == events.same
    runs = Events(pa.table({"seq": [1]}), {}, pa.table({"tags": texts.slice(1, 1), "rows": [1]}))
    assert runs.with_own_texts().runs["tags"].chunk(0).dictionary.to_pylist() == ["b"]


@pytest.mark.parametrize(
    ("kinds", "first", "last", "wanted"),
    [
        (None, "FETCH", "PRODUCE", True),
        ({"PRODUCER_ID"}, "FETCH", "PRODUCE", False),
        ({"PRODUCE"}, "FETCH", "REQUEST", True),
        ({"FETCH"}, "FETCH", "FETCH", True),
        ({"FETCH"}, "PRODUCE", "PRODUCE", False),
        (None, "REQUEST", "REQUEST", False),
    ],
)
def test_groups_without_a_wanted_quota_type_are_passed_over(
    kinds: set[str] | None, first: str, last: str, wanted: bool
) -> None:
    packing = Packing(
        by="counter",
        runs={},
        quota_types=None if kinds is None else frozenset(kinds),
        other_types=frozenset({QuotaType.REQUEST.value}),
    )

    assert packing.wants_type_between(first, last) is wanted
