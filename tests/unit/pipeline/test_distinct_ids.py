"""Different ids are counted, whatever pieces they come in."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kvota.pipeline.distinct_ids import DistinctIds

IDS = st.integers(-(2**63), 2**63 - 1)


@given(pieces=st.lists(st.lists(IDS | st.integers(0, 9))), wait_for=st.integers(0, 20))
def test_each_is_counted_once(pieces: list[list[int]], wait_for: int) -> None:
    distinct = DistinctIds(wait_for=wait_for)
    seen: set[int] = set()
    for piece in pieces:
        distinct.add(np.array(piece, np.int64))
        seen.update(piece)
        if len(piece) % 2:  # asked in between, too
            assert len(distinct) == len(seen)

    assert len(distinct) == len(seen)
