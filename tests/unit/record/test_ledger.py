"""Which rows have been taken: as a set of their numbers would say it, whatever order they come in."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.record.record_files import ROWS, as_table

from kvota.record.ledger import Hole, Ledger, Taken, spans_in

SEQS = st.integers(0, 40)
STEPS = st.lists(
    st.one_of(
        st.lists(SEQS, min_size=1, max_size=12),
        st.tuples(SEQS, st.integers(1, 12)).map(lambda run: list(range(run[0], sum(run)))),
    ),
    min_size=1,
    max_size=8,
)


@given(STEPS, st.tuples(SEQS, st.integers(0, 6)))
def test_each_number_is_taken_at_its_first_place_and_never_again(
    steps: list[list[int]], asked: tuple[int, int]
) -> None:
    taken, before = Taken(), set[int]()
    for seqs in steps:
        mask = taken.take(np.array(seqs))
        for seq, is_new in zip(seqs, mask.tolist(), strict=True):
            assert is_new == (seq not in before)
            before.add(seq)

    spans = taken.spans
    assert [seq for first, last in spans for seq in range(first, last + 1)] == sorted(before)
    assert all(before_[1] + 1 < behind[0] for before_, behind in pairwise(spans))
    assert taken.missing == max(before) - min(before) + 1 - len(before)
    first, last = asked[0], sum(asked)
    there = [seq in before for seq in range(first, last + 1)]
    assert (taken.meets(first, last), taken.has_all(first, last)) == (any(there), all(there))
    assert Taken(reversed(spans)).spans == spans


def test_runs_are_told_apart_and_their_gaps_are_named() -> None:
    rows = as_table(ROWS)
    ledger = Ledger()

    assert ledger.take(rows.slice(0, 100)).num_rows == 100
    assert ledger.take(rows.slice(150, rows.num_rows)).num_rows == rows.num_rows - 150
    assert ledger.take(rows).num_rows == 50
    assert ledger.take(rows).num_rows == 0

    assert ledger.runs == spans_in(rows)
    assert set(ledger.runs) == {("gateway-1", "run-1"), ("gateway 2", "run-2")}
    assert ledger.missing == 0
    ledger.add({("gateway-1", "run-1"): [(5_000, 5_001), (5_010, 5_010)]})
    assert list(ledger.holes()) == [
        Hole("gateway-1", "run-1", 800, 4_999),
        Hole("gateway-1", "run-1", 5_002, 5_009),
    ]
    assert ledger.missing == 4_208


def test_repeated_rows_within_one_table_are_taken_once() -> None:
    rows = as_table([*ROWS[:10], *ROWS[5:15], *reversed(ROWS[:20])])

    new = Ledger().take(rows)

    assert sorted(new["seq"].to_pylist()) == list(range(20))


def test_what_lacks_at_the_beginning_of_a_run_is_missing_where_it_should_have_come() -> None:
    key, other = ("gateway-1", "run-1"), ("gateway-1", "run-2")
    spans = {key: [(3, 5), (8, 8)], other: [(7, 9)]}

    ledger = Ledger(spans, from_first=[key, ("gateway-1", "none")])

    assert list(ledger.holes()) == [Hole(*key, 0, 2), Hole(*key, 6, 7)]
    assert ledger.missing == 5
    ledger.add({key: [(0, 7)]})  # it was late
    assert (ledger.missing, list(ledger.holes())) == (0, [])
