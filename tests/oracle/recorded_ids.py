"""Rows of new producer ids as a gateway writes them, made by its own quota, without a gateway."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from kvota.engine.layered_bloom import Layering
from kvota.engine.producer_ids import ProducerIds
from kvota.engine.saved_producer_ids import from_bytes, to_bytes
from kvota.model.client_quotas import PRODUCER_IDS_KEY, KeyChange
from kvota.model.decision_sink import NO_ANSWER, ChargeMemo
from kvota.model.quota_entity import QuotaEntity
from kvota.pipeline import chunk_schema as s
from kvota.pipeline.event_columns import Events
from kvota.pipeline.pack import pack
from kvota.pipeline.packing_choice import Packing
from kvota.pipeline.unpack import Rows, unpack
from kvota.record.event_table import event_table
from kvota.record.row_batch import ROW, ROW_COLUMNS
from kvota.session.id_decisions import Asker, Decisions
from kvota.session.producer_id_quota import ProducerIdQuota
from kvota.wire.producer_ids import BatchProducer
from kvota.wire.steps import Steps


@dataclass
class RecordedIds:
    """A gateway's quota on new producer ids and what it records, run after run.

    Attributes:
        layering: of its filters.
        enforced: false: shadow mode.
        now_us: its clock.
        name: of the gateway.
        tables: the rows so far, of each run those that came before it was started again.
    """

    layering: Layering
    enforced: bool = True
    now_us: int = 1_900_000_000_000_000
    name: str = "g"
    tables: list[pa.Table] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Start its first run."""
        self._rates: dict[str, float | None] = {}
        self._run = 0
        self._begin(ProducerIds(self.layering))

    def set_rate(self, user: str, rate: float | None) -> None:
        """Another quota is in force."""
        self._rates[user] = rate
        self._quota.change([KeyChange(QuotaEntity(user=user), PRODUCER_IDS_KEY, rate)])

    def sweep(self) -> None:
        """Forget idle users."""
        self._quota.sweep(self.now_us // 1000, share=1.0)

    def restart(self, *, saved: bool) -> None:
        """End this run and begin another; ``saved``: with what was known, else all of it is lost."""
        self.close()
        ids = ProducerIds(self.layering)
        if saved:
            ids = from_bytes(to_bytes(self._quota.ids), name="ids", like=ids)
        else:
            ids.learns_until_ms = self.now_us // 1000 + self.layering.window_ms
        self._begin(ids)

    def produce(self, user: str, connection: int, producer_ids: Sequence[int]) -> Steps[None]:
        """A request with a batch of each; others may come between two steps."""
        batches = [
            BatchProducer(b"orders", number, producer_id, 0, 0)
            for number, producer_id in enumerate(producer_ids)
        ]
        asker = Asker(user, connection, self.enforced, awaits_answer=True)
        yield from self._quota.judge(asker, batches, lambda: self.now_us, self._note)

    def close(self) -> None:
        """Write down the rows of the run that ends."""
        if self._packed:
            packed = np.frombuffer(bytes(self._packed), dtype=ROW_COLUMNS)
            self.tables.append(
                event_table(
                    packed, self._memos, gateway=self.name, run_id=f"{self.name}-{self._run}"
                )
            )

    def _begin(self, ids: ProducerIds) -> None:
        self._quota = ProducerIdQuota(ids)
        self._run += 1
        self._packed = bytearray()
        self._memos: list[ChargeMemo] = []
        for user, rate in self._rates.items():
            self.set_rate(user, rate)

    def _note(self, decisions: Decisions) -> None:
        for memo, count, throttle_ms, outcome in decisions.rows(
            client_id="app", api_key=0, api_version=9
        ):
            place = len(self._memos)
            self._memos.append(memo)
            self._packed += ROW.pack(
                place, decisions.at_us, float(count), throttle_ms, NO_ANSWER, place, outcome
            )


def rows_of(
    tables: Sequence[pa.Table],
    further: Iterable[str],
    *,
    by: s.By = "counter",
    rows_in_chunk: int = 1_000_000,
) -> Iterator[Rows]:
    """These rows as a task of the pipeline gets them, from complete runs."""
    table = pa.concat_tables(tables)
    runs = {
        run: (rank, True)
        for rank, run in enumerate(
            dict.fromkeys(
                zip(table["gateway"].to_pylist(), table["run_id"].to_pylist(), strict=True)
            )
        )
    }
    packing = Packing(by=by, runs=runs, further=frozenset(further), modes_apart=by != "counter")
    batches = [
        pack(Events(table.slice(start, rows_in_chunk)), packing)
        for start in range(0, len(table), rows_in_chunk)
    ]
    chunks = pa.Table.from_batches(batches)
    keys = [tuple(key.values()) for key in chunks.select(["run_id", "tags"]).to_pylist()]
    ids = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    named = chunks.append_column("counter_id", pa.array([ids[key] for key in keys], pa.int64()))
    ordered = named.sort_by([("counter_id", "ascending"), ("first", "ascending")])
    yield from unpack(ordered.to_batches(max_chunksize=2), as_recorded=by == "counter")
