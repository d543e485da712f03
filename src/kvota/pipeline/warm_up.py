"""Compiles the kernels before they are needed, once per machine: ``python -m kvota.pipeline.warm_up [PART …]``."""

import sys
from collections.abc import Callable, Iterable, Mapping
from math import inf

import numpy as np
import pyarrow as pa

from kvota.model.event import EVENT_COLUMNS
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.pipeline import chunk_schema as s
from kvota.pipeline.admitted import Planned, replayed_parts
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.direct import whole_counters
from kvota.pipeline.event_columns import Events
from kvota.pipeline.grid import Grid, GridRun
from kvota.pipeline.habits import habits_stage
from kvota.pipeline.kernel_parts import OF_LOGS, PARTS
from kvota.pipeline.kernels import closed_kernels, closed_rate_kernel, open_kernels
from kvota.pipeline.kernels import grid_sums as k
from kvota.pipeline.kernels.kept_code import note_complete
from kvota.pipeline.law_stage import found_by_law
from kvota.pipeline.pack import pack
from kvota.pipeline.packing_choice import Packing
from kvota.pipeline.producer_id_stage import came, id_grid_stage
from kvota.pipeline.seconds import of_whole_counters, sums_of_rows
from kvota.pipeline.sources.quick_lines import LineBegin, QuickReader
from kvota.pipeline.unpack import Rows, unpack
from kvota.pipeline.usage_stage import Windows, usage_stage
from kvota.record.event_schema import EVENT_SCHEMA


def compile_kernels(parts: Iterable[str] = PARTS) -> None:
    """Send one row through every kernel of some parts; Numba keeps the machine code for all later processes."""
    for part in parts:
        _COMPILED_BY[part]()
        note_complete(part)


def one_row(quota_type: QuotaType = QuotaType.PRODUCE) -> Rows:
    """Make the least that a kernel can be sent, without one."""
    name = {"counter_id": 1, "node_id": 1, "enforcing": s.SHADOW_ROWS}
    texts = {"gateway": "", "run_id": "", "quota_type": quota_type.value, "tags": ""}
    fields = [pa.field("counter_id", pa.int64()), *map(s.CHUNK.field, s.COUNTER_COLUMNS)]
    columns: dict[str, Array] = {each: np.ones(1, np.int64) for each in s.INTS}
    columns |= {each: np.ones(1) for each in s.DOUBLES}
    names = pa.RecordBatch.from_pylist([name | texts], pa.schema(fields))
    return Rows(names, np.array([0, 1]), continues=False, columns=columns)


def _packing() -> None:
    row: dict[str, object] = {
        column.name: "" if column.type == "string" else 1 for column in EVENT_COLUMNS
    }
    kind = {"quota_type": QuotaType.PRODUCE.value, "algorithm": Algorithm.SAMPLED_RATE.value}
    packing = Packing(by="counter", runs={("", ""): (0, True)})
    events = Events(pa.Table.from_pylist([row | kind | {"enforced": False}], EVENT_SCHEMA))
    table = pa.Table.from_batches([pack(events, packing)])
    list(unpack(table.append_column("counter_id", pa.array([1])).to_batches(), as_recorded=True))
    whole_counters(events, packing)


def _usage() -> None:
    seconds = of_whole_counters(sums_of_rows([one_row()]))
    list(usage_stage(Windows("user", 0, 1))(seconds))


def _open_loops() -> None:
    """Those that ``replay_segments`` calls, as it calls them: so they are compiled beside the others."""
    none = _Nothing()
    open_kernels.debt_open_rows(
        *none.rows, none.flags, *none.how, inf, none.clock, none.doubles, none.doubles, none.sums
    )
    open_kernels.bucket_open_rows(
        *none.rows, none.flags, none.flags, *none.how, none.clock, none.doubles, none.sums
    )
    open_kernels.rate_open_rows(
        *(*none.rows, none.flags, *none.how, np.False_, none.clock),
        *(none.longs, none.longs, none.doubles, none.sums),
    )


def _grid() -> None:
    """The closed loops, as ``replay_segments`` calls them, and then itself, which calls the open ones first."""
    none = _Nothing()
    closed_rate_kernel.closed_rate_rows(
        *(*none.rows, none.flags, *none.how, np.False_, k.BACKLOG, none.clock, none.own),
        *(none.places, none.places, none.totals, none.sums),
    )
    closed_kernels.debt_closed_rows(
        *(*none.rows, none.flags, *none.how, inf, k.BACKLOG, none.clock, none.own),
        *(none.doubles, none.doubles, none.sums),
    )
    closed_kernels.bucket_closed_rows(
        *(*none.rows, none.flags, none.flags, *none.how, k.BACKLOG, none.clock, none.own),
        *(none.doubles, none.sums),
    )
    GridRun(Grid(quotas=(1.0,))).replay(one_row())


class _Nothing:
    """Arguments for no row and no candidate."""

    def __init__(self) -> None:
        self.longs, self.doubles = np.zeros(0, np.int64), np.zeros(0)
        self.flags = np.zeros(0, np.bool_)
        self.rows = (self.longs, self.doubles, self.doubles, self.longs, self.longs)
        self.how = (self.doubles, np.False_, 0.0)
        self.clock = np.zeros(k.CLOCK_SIZE, np.int64)
        self.own, self.sums = np.zeros((k.OWN_ROWS, 0), np.int64), np.zeros((k.SUMS, 0))
        self.places, self.totals = np.zeros((1, 1), np.int64), np.zeros((1, 1))


def _law() -> None:
    list(found_by_law(iter([one_row()])))


def _plan() -> None:
    list(habits_stage(of_whole_counters(sums_of_rows([one_row()]))))
    list(replayed_parts(iter([one_row()]), Planned(quotas={1: 1.0}, from_us=0, until_us=1)))


def _producer_ids() -> None:
    of_ids = one_row(QuotaType.PRODUCER_ID)
    list(found_by_law(iter([of_ids])))
    list(came(iter([of_ids])))
    list(id_grid_stage((1.0,))(iter([of_ids])))


def _request_log() -> None:
    QuickReader().read(
        b"\n", np.zeros(1, np.int64), np.zeros(1, np.int64), LineBegin(b"", 0, 0, b"")
    )


_COMPILED_BY: Mapping[str, Callable[[], None]] = {
    "open loops": _open_loops,
    "grid": _grid,
    "packing": _packing,
    "usage": _usage,
    "law": _law,
    "plan": _plan,
    "producer ids": _producer_ids,
    OF_LOGS: _request_log,
}


if __name__ == "__main__":
    compile_kernels(sys.argv[1:] or PARTS)
