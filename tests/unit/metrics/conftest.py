"""What the tests of metrics share: rows by hand."""

from collections.abc import Callable
from itertools import count

import pytest

from kvota.metrics.cells import Cell, Cells
from kvota.metrics.tally import Tally
from kvota.model.decision_sink import ADMITTED, NO_ANSWER, ChargeMemo
from kvota.model.quota_type import Algorithm, QuotaType, counter_node_id
from kvota.record.row_batch import ROW, RowBatch

START_MS = 1_790_000_000_000
_generations = count(10**9)


def memo(
    user: str = "alice",
    *,
    quota_type: QuotaType = QuotaType.PRODUCE,
    enforced: bool = True,
    limit: float | None = 1000.0,
    tags: str = "",
) -> ChargeMemo:
    return ChargeMemo(
        node_id=counter_node_id(quota_type, 1),
        quota_type=quota_type,
        connection=7,
        user=user,
        client_id="app",
        tags=tags or f"client-id=,user={user}",
        api_key=0,
        api_version=9,
        limit=limit,
        samples=11,
        sample_ms=1000,
        algorithm=Algorithm.SAMPLED_RATE,
        enforced=enforced,
    )


class Rows:
    """Rows for a tally, some at a time."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.seq = 0

    def add(self, *rows: tuple) -> None:
        """Each: memo, ms since the start, value, throttle_ms, outcome, upstream_ms."""
        batch = RowBatch(len(rows))
        batch.generation = next(_generations)
        for one, at_ms, value, *rest in rows:
            throttle_ms, outcome, upstream_ms = [*rest, *(0, ADMITTED, NO_ANSWER)[len(rest) :]]
            if one.generation != batch.generation:
                batch.enlist(one)
            columns = (self.seq, (START_MS + at_ms) * 1000, float(value), throttle_ms)
            ROW.pack_into(batch.rows, batch.offset, *columns, upstream_ms, one.index, outcome)
            batch.offset += ROW.size
            self.seq += 1
        self.tally.take(batch.columns(0, batch.offset), batch.memos)


class Held:
    """Remembers who was held back."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def held(self, cells, now_ms: int) -> None:
        self.keys += [cell.key.tags for cell in cells]

    def look(self, now_ms: int) -> None: ...


@pytest.fixture
def make_tally() -> Callable[..., tuple[Tally, Rows]]:
    def make(shown_max: int = 100) -> tuple[Tally, Rows]:
        tally = Tally(Cells(shown_max=shown_max), Held())
        return tally, Rows(tally)

    return make


def cell_of(tally: Tally, user: str) -> Cell:
    return next(
        cell for key, cell in tally.cells.of_key.items() if key.tags == f"client-id=,user={user}"
    )
