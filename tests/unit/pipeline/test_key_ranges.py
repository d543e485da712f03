"""A record is cut so that every key is in one range, and every range names all groups that may have its keys."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvota.pipeline.key_ranges import (
    LEAST,
    Cut,
    Key,
    KeyRange,
    Room,
    RowGroup,
    after,
    cut,
    tightened,
)

NAMES = ("a", "b", "c", "d", "e")
keys = st.tuples(st.sampled_from(("FETCH", "PRODUCE")), st.sampled_from(NAMES), st.integers(0, 2))


@st.composite
def records(draw: st.DrawFn) -> tuple[list[RowGroup], dict[tuple[int, int], list[Key]]]:
    """Files that are sorted, cut into groups anywhere, and some that are not sorted, with their rows' keys."""
    groups, rows = [], {}
    for file in range(draw(st.integers(1, 5))):
        of_file = draw(st.lists(keys, min_size=1, max_size=30))
        is_sorted = draw(st.booleans())
        if is_sorted:
            of_file.sort()
        length = draw(st.integers(1, 8)) if is_sorted else len(of_file)
        for group, start in enumerate(range(0, len(of_file), length)):
            here = of_file[start : start + length]
            first, last = (here[0], here[-1]) if is_sorted else (LEAST, None)
            groups.append(RowGroup(file, group, len(here), first, last))
            rows[file, group] = here
    return groups, rows


def room(begun_max: int, open_max: int, *, kept_bytes_max: int = 1_000) -> Room:
    return Room(begun_max=begun_max, open_max=open_max, kept_bytes_max=kept_bytes_max)


def ranges_of(found: Cut) -> list[KeyRange]:
    return [*(one for ranges in found.tasks for one in ranges), *found.large]


def is_in(key: Key, one: KeyRange) -> bool:
    return one.start <= key and (one.end is None or key < one.end)


@settings(max_examples=200, deadline=None)
@given(
    record=records(), tasks=st.integers(1, 4), at_once=st.integers(1, 20), most=st.integers(1, 60)
)
def test_every_row_is_read_once_whatever_the_cut(
    record: tuple[list[RowGroup], dict[tuple[int, int], list[Key]]],
    tasks: int,
    at_once: int,
    most: int,
) -> None:
    groups, rows = record

    found = cut(groups, tasks, rows_at_once=at_once, room=room(most, 2 * most))

    assert len(found.tasks) <= tasks
    for (file, group), of_group in rows.items():
        for key in of_group:
            holding = [one for one in ranges_of(found) if is_in(key, one)]
            assert len(holding) == 1
            assert (file, group) in {(one.file, one.group) for one in holding[0].groups}
    for one in (one for ranges in found.tasks for one in ranges):
        if one.is_streamed:
            assert one.end == after(one.start)
        else:
            assert one.rows_begun <= most
            assert one.rows_open <= 2 * most
        assert [group for group in one.groups if not group.reaches(one.start)] == []


def test_tasks_get_neighbours_and_about_as_many_rows() -> None:
    groups = [
        RowGroup(file, group, 10, ("PRODUCE", f"{group:02}", 0), ("PRODUCE", f"{group:02}", 2))
        for file in range(3)
        for group in range(20)
    ]

    found = cut(groups, 4, rows_at_once=30, room=room(100, 100))

    assert [len(ranges) for ranges in found.tasks] == [5, 5, 5, 5]
    assert found.rows_read(0) == 600
    assert not found.large
    starts = [one.start for ranges in found.tasks for one in ranges]
    assert starts == sorted(starts)


HOT = ("PRODUCE", "m", 0)


def groups_of_a_hot_key(passes: int) -> list[RowGroup]:
    ends = [(("PRODUCE", "a", 0), HOT), *[(HOT, HOT)] * 8, (HOT, ("PRODUCE", "z", 0))]
    return [
        RowGroup(0, number, 10, *keys, begin=number, passes=passes, kept_bytes=1)
        for number, keys in enumerate(ends)
    ]


@pytest.mark.parametrize("passes", [1, 2])
def test_a_key_with_too_many_rows_is_streamed(passes: int) -> None:
    found = cut(groups_of_a_hot_key(passes), 1, rows_at_once=10, room=room(50, 1_000))

    assert not found.large
    ((before, hot, behind),) = found.tasks
    assert (before.end, hot.start, hot.end, behind.start) == (HOT, HOT, after(HOT), after(HOT))
    assert [one.is_streamed for one in (before, hot, behind)] == [False, True, False]
    assert [len(one.groups) for one in (before, hot, behind)] == [1, 10, 1]
    # The first and the last group are kept for what is behind, where there is room.
    assert found.rows_read(1) == 100 + 90 * (passes - 1)
    assert found.rows_read(0) == 120 + 100 * (passes - 1)


@pytest.mark.parametrize("passes", [0, 3])
def test_a_key_that_cannot_be_streamed_is_a_large_range(passes: int) -> None:
    found = cut(groups_of_a_hot_key(passes), 2, rows_at_once=10, room=room(50, 1_000))

    assert [(one.start, one.end) for one in found.large] == [(HOT, None)]  # in one piece
    assert len(found.large[0].groups) == 10
    ((before,),) = found.tasks
    assert (before.start[1], before.end) == ("a", HOT)


def bounds(rows: list[Key]) -> tuple[Key, Key]:
    """What a footer says of a group: the least and the most of each column."""
    types, names, nodes = zip(*rows, strict=True)
    return (min(types), min(names), min(nodes)), (max(types), max(names), max(nodes))


@settings(max_examples=300, deadline=None)
@given(rows=st.lists(keys, min_size=1, max_size=40), data=st.data())
def test_groups_of_a_file_in_order_keep_all_their_rows_between_closer_bounds(
    rows: list[Key], data: st.DataObject
) -> None:
    rows.sort()
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(rows) - 1)), max_size=12)))
    parts = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True) if rows[a:b]]
    groups = [RowGroup(0, place, len(part), *bounds(part)) for place, part in enumerate(parts)]

    found = tightened(groups)

    for group, closer, part in zip(groups, found, parts, strict=True):
        assert group.first <= closer.first <= part[0]
        assert closer.last is not None
        assert group.last is not None
        assert part[-1] <= closer.last <= group.last


def test_groups_that_are_in_order_only_each_by_itself_stay_as_they_are() -> None:
    groups = [
        RowGroup(0, 0, 10, ("PRODUCE", "m", 0), ("PRODUCE", "z", 0)),
        RowGroup(0, 1, 10, ("PRODUCE", "a", 0), ("PRODUCE", "k", 0)),
    ]

    assert tightened(groups) == groups


def test_the_brokers_of_a_name_are_told_by_the_neighbours() -> None:
    one, two = ("PRODUCE", "a"), ("PRODUCE", "b")
    groups = [
        RowGroup(0, 0, 10, (*one, 0), (*one, 1)),
        RowGroup(0, 1, 10, (*one, 0), (*two, 2)),  # broker 2 of a, brokers 0 and 1 of b
        RowGroup(0, 2, 10, (*two, 1), (*two, 2)),
        RowGroup(0, 3, 10, LEAST, None),  # nobody knows
    ]

    found = tightened(groups)

    assert [(group.first, group.last) for group in found] == [
        ((*one, 0), (*one, 1)),
        ((*one, 1), (*two, 1)),
        ((*two, 1), (*two, 2)),
        (LEAST, None),
    ]


def test_many_rows_of_one_name_are_streamed_broker_by_broker() -> None:
    ends = (("a", 0), ("m", 0), ("m", 1), ("m", 2), ("z", 2))
    groups = [
        RowGroup(file, place, 10, ("PRODUCE", *ends[place]), ("PRODUCE", *ends[place + 1]))
        for file in range(4)
        for place in range(4)
    ]

    found = cut(groups, 1, rows_at_once=10, room=room(35, 1_000))

    assert not found.large
    (ranges,) = found.tasks
    streamed = [one.start[1:] for one in ranges if one.is_streamed]
    assert streamed == [("a", 0), ("m", 0), ("m", 1), ("m", 2)]
    rest = [(one.start[1:], one.end and one.end[1:]) for one in ranges if not one.is_streamed]
    assert rest == [(("a", 1), ("m", 0)), (("m", 3), None)]


@pytest.mark.parametrize("has_room", [True, False])
def test_what_lies_between_two_names_is_read_by_the_task_that_keeps_its_groups(
    *, has_room: bool
) -> None:
    # Of many files each has one group with the end of one name and the beginning of the next; most rows are theirs.
    ends = (("a", 0), ("m", 0), ("z", 0))
    groups = [
        RowGroup(
            file, place, 10, ("PRODUCE", *ends[place]), ("PRODUCE", *ends[place + 1]), kept_bytes=5
        )
        for file in range(20)
        for place in range(2)
    ]

    found = cut(
        groups, 1, rows_at_once=10, room=room(35, 200, kept_bytes_max=100 if has_room else 99)
    )

    between, without_end = ("PRODUCE", "a", 1), ("PRODUCE", "m", 1)
    large = [without_end] if has_room else [between, without_end]
    assert [one.start for one in found.large] == large
    (one,) = (each for each in ranges_of(found) if each.start == between)
    assert (one.end, one.rows_begun, one.rows_open) == (("PRODUCE", "m", 0), 0, 200)


@pytest.mark.parametrize(
    ("nodes", "files", "streamed"),
    [
        ((0, 2), 8, [0, 1, 2]),  # broker 1 is there as well, most likely
        ((101, 201), 4, [101, 201]),  # nobody is between them, but nobody knows
    ],
)
def test_brokers_that_are_told_are_streamed_and_what_lies_between_is_read(
    nodes: tuple[int, int], files: int, streamed: list[int]
) -> None:
    low, high = nodes
    ends = (("a", low), ("m", low), ("m", low), ("m", high), ("m", high), ("z", high))
    groups = [
        RowGroup(file, place, 10, ("PRODUCE", *ends[place]), ("PRODUCE", *ends[place + 1]))
        for file in range(files)
        for place in range(5)
    ]

    found = cut(groups, 1, rows_at_once=40, room=room(35, 1_000))

    every = sorted(ranges_of(found), key=lambda one: one.start)
    assert [one.start for one in every[1:]] == [one.end for one in every[:-1]]
    hot = [one for one in found.tasks[0] if one.start[1] == "m"]
    assert [one.start[2] for one in hot if one.is_streamed] == streamed
    between = [one.end for one in hot if not one.is_streamed and one.end is not None]
    assert between == ([("PRODUCE", "m", 201)] if high == 201 else [])
