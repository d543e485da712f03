"""Compiles the kernels before they are needed, once per machine: ``python -m kvota.pipeline.warm_up``."""

import numpy as np
import pyarrow as pa

from kvota.model.event import EVENT_COLUMNS
from kvota.model.quota_type import Algorithm, QuotaType
from kvota.pipeline.admitted import Planned, replayed_parts
from kvota.pipeline.direct import whole_counters
from kvota.pipeline.event_columns import Events
from kvota.pipeline.grid import Grid, GridRun
from kvota.pipeline.habits import habits_stage
from kvota.pipeline.kernels.kept_code import note_complete
from kvota.pipeline.law_stage import found_by_law
from kvota.pipeline.pack import pack
from kvota.pipeline.packing_choice import Packing
from kvota.pipeline.producer_id_stage import came, id_grid_stage
from kvota.pipeline.sources.quick_lines import LineBegin, QuickReader
from kvota.pipeline.unpack import Rows, unpack
from kvota.pipeline.usage_stage import Windows, usage_stage
from kvota.record.event_schema import EVENT_SCHEMA


def compile_kernels() -> None:
    """Send one row through every kernel; Numba keeps the machine code for all later processes.

    Takes about half a minute of CPU where nothing is kept yet, else a fraction of a second.
    """
    rows = one_row()
    list(found_by_law(iter([rows])))
    list(usage_stage(Windows("user", 0, 1))(iter([rows])))
    list(habits_stage(iter([rows])))
    list(replayed_parts(iter([rows]), Planned(quotas={1: 1.0}, from_us=0, until_us=1)))
    for mode in ("open", "backlog"):
        GridRun(Grid(quotas=(1.0,), mode=mode)).replay(rows)
    of_ids = one_row(QuotaType.PRODUCER_ID)
    list(found_by_law(iter([of_ids])))
    list(came(iter([of_ids])))
    list(id_grid_stage((1.0,))(iter([of_ids])))
    QuickReader().read(
        b"\n", np.zeros(1, np.int64), np.zeros(1, np.int64), LineBegin(b"", 0, 0, b"")
    )
    note_complete()


def one_row(quota_type: QuotaType = QuotaType.PRODUCE) -> Rows:
    """Make the least that a kernel can be sent."""
    row: dict[str, object] = {
        column.name: "" if column.type == "string" else 1 for column in EVENT_COLUMNS
    }
    row |= {"quota_type": quota_type.value, "algorithm": Algorithm.SAMPLED_RATE.value}
    packing = Packing(by="counter", runs={("", ""): (0, True)})
    events = Events(pa.Table.from_pylist([row | {"enforced": False}], EVENT_SCHEMA))
    chunk = pack(events, packing)
    table = pa.Table.from_batches([chunk]).append_column("counter_id", pa.array([1]))
    list(unpack(table.to_batches(), as_recorded=True))
    rows = whole_counters(events, packing)
    assert rows is not None
    return rows


if __name__ == "__main__":
    compile_kernels()
