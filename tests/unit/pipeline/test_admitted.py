"""A plan replayed as a whole lets in what each kernel of replay lets in."""

import random
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from kvota.model.quota_type import Algorithm, QuotaType
from kvota.pipeline.admitted import Loop, Planned, Proof, Together, replayed_parts, seconds_of
from kvota.pipeline.charged import Counted
from kvota.pipeline.direct import whole_counters
from kvota.pipeline.event_columns import Events
from kvota.pipeline.grid import Grid, GridRun
from kvota.pipeline.packing_choice import Packing
from kvota.pipeline.unpack import Rows
from kvota.record.event_schema import EVENT_SCHEMA
from kvota.testing.recorded_traffic import RecordedTraffic


@pytest.fixture(scope="module")
def recorded() -> Rows:
    rows = RecordedTraffic(3, run_id="run-1", enforced=False).rows(6_000)
    columns = [
        pa.array(column, part.type)
        for column, part in zip(zip(*rows, strict=True), EVENT_SCHEMA, strict=True)
    ]
    table = pa.Table.from_arrays(columns, schema=EVENT_SCHEMA)
    gateway = table["gateway"][0].as_py()
    packing = Packing(by="user", runs={(gateway, "run-1"): (0, True)})
    found = whole_counters(Events(table), packing)
    assert found is not None
    return found


def cut(rows: Rows, places: list[int]) -> Iterator[Rows]:
    """Cut rows anywhere; what goes on stands first in the next part."""
    bounds = [0, *places, int(rows.starts[-1])]
    before = 0
    for start, end in pairwise(bounds):
        first = before
        last = int(np.searchsorted(rows.starts, end, side="left")) - 1
        last = max(last, first)
        starts = np.clip(rows.starts[first : last + 2], start, end) - start
        columns = {name: column[start:end] for name, column in rows.columns.items()}
        yield Rows(rows.names.slice(first, last + 1 - first), starts, start > 0, columns)
        before = last


def replayed(
    parts: Iterator[Rows], quotas: dict[int, float], loop: Loop, counted: Counted
) -> dict[int, Proof]:
    planned = Planned(quotas=quotas, from_us=0, until_us=2**60, loop=loop, counted=counted)
    found: dict[int, Proof] = {}
    for rows, here in replayed_parts(parts, planned):
        for place, key in enumerate(rows.names.column("counter_id").to_pylist()):
            events, over, worst_ms = here.proofs[:, place].tolist()
            found[key] = Proof(int(events), int(over), worst_ms)
    return found


@pytest.mark.parametrize("algorithm", list(Algorithm))
@pytest.mark.parametrize("loop", ["open", "backlog"])
def test_it_throttles_what_replay_throttles(
    recorded: Rows, algorithm: Algorithm, loop: Loop
) -> None:
    counted = Counted(algorithm=algorithm, debt_max_ms=10_000_000)
    ids = recorded.names.column("counter_id").to_pylist()
    means = [
        recorded.columns["value"][start:end].sum() / 60 if end > start else 1.0
        for start, end in zip(recorded.starts[:-1], recorded.starts[1:], strict=True)
    ]
    quotas = {key: max(1.0, float(mean)) for key, mean in zip(ids, means, strict=True)}

    run = GridRun(
        Grid(of_counters={k: (q,) for k, q in quotas.items()}, mode=loop, counted=counted)
    )
    done, last = run.replay(recorded)
    wanted = {
        row["counter_id"]: (row["events"], row["over"])
        for row in [*done.to_pylist(), *last.to_pylist()]
    }
    found = replayed(iter([recorded]), quotas, loop, counted)

    strict = {
        key
        for key, name in zip(ids, recorded.names.to_pylist(), strict=True)
        if loop == "open" and name["quota_type"] == QuotaType.CONTROLLER_MUTATION
    }
    assert sum(over for _, over in wanted.values()) > 100
    # Who is refused comes again here, also where the others do not wait.
    assert {key: (one.events, one.over) for key, one in found.items() if key not in strict} == {
        key: each for key, each in wanted.items() if key not in strict
    }


def test_nothing_depends_on_how_rows_are_cut(recorded: Rows) -> None:
    rng = random.Random(5)
    ids = recorded.names.column("counter_id").to_pylist()
    quotas = dict.fromkeys(ids, 100_000.0)
    whole = replayed(iter([recorded]), quotas, "backlog", Counted())

    for _ in range(5):
        places = sorted(rng.sample(range(1, int(recorded.starts[-1])), 7))
        assert replayed(cut(recorded, places), quotas, "backlog", Counted()) == whole


def test_without_quotas_all_is_let_in_when_it_came(recorded: Rows) -> None:
    first_us, last_us = (
        int(recorded.columns["ts_us"][f()])
        for f in (recorded.columns["ts_us"].argmin, recorded.columns["ts_us"].argmax)
    )
    planned = Planned(quotas={}, from_us=first_us, until_us=last_us + 1)

    ((rows, found),) = replayed_parts(iter([recorded]), planned)
    batch = seconds_of(rows, found.admitted_ms, planned)

    assert (found.admitted_ms == rows.columns["ts_us"] // 1000).all()
    total = rows.columns["value"].sum()
    assert sum(batch.column("value").to_pylist()) == pytest.approx(total)


@pytest.mark.parametrize(
    ("seconds", "over", "is_kept"),
    [(10, 1, True), (10, 2, False), (5000, 5, True), (5000, 6, False)],
)
def test_one_second_in_a_thousand_may_be_above_the_capacity(
    seconds: int,
    over: int,
    is_kept: bool,
) -> None:
    whole = Together(
        quota_type=QuotaType.PRODUCE,
        node_id=0,
        seconds=seconds,
        seconds_over=over,
        most=2.0,
        usual_most=1.0,
    )

    assert whole.is_kept is is_kept
