"""Charges of another record become rows of the events table, in the order in which they were charged."""

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from kvota.model.decision_sink import ADMITTED, NO_ANSWER, REJECTED, THROTTLED, ChargeMemo
from kvota.model.quota_type import FACTS, QuotaType, Scope, counter_node_id
from kvota.pipeline.arrow_columns import Array
from kvota.pipeline.sources.log_quotas import LogQuotas
from kvota.pipeline.sources.quick_lines import QuickLines
from kvota.pipeline.sources.request_line import PERCENT_PER_MS, Charge, Who
from kvota.record.event_table import event_table
from kvota.record.row_batch import ROW_COLUMNS

_FETCH = 1
# By API key, whose Produces and Fetches a kernel reads.
_QUICK_TYPES = (QuotaType.PRODUCE, QuotaType.FETCH)
# Memo, line, time, value, throttle and outcome of a row.
_KINDS = ("<i8", "<i8", "<i8", "<f8", "<i8", "<i8")

# A number of milliseconds that a column holds at most.
_MS_MAX = 2**31 - 1


class ChargeRows:
    """Takes charges, and makes a table of them."""

    def __init__(self, node_id: int, quotas: LogQuotas) -> None:
        """Begins without rows.

        Args:
            node_id: of the broker that charged.
            quotas: in force.
        """
        self._node_id, self._quotas = node_id, quotas
        self._forget()

    def _forget(self) -> None:
        self._count = 0  # of rows in arrays
        self._arrays: list[tuple[Array, ...]] = []
        self._of_quick = np.empty(
            (2, 0), np.int64
        )  # memos by a quick reader's codes; below 0: none yet
        self._places: dict[Who, dict[QuotaType, int]] = {}
        self._memos: list[ChargeMemo] = []
        self._memo: list[int] = []
        self._line: list[int] = []
        self._ts_us: list[int] = []
        self._value: list[float] = []
        self._throttle_ms: list[int] = []
        self._outcome: list[int] = []

    def add(self, charges: Iterable[Charge], who: Who, ts_us: int, line: int) -> None:
        """Take what a request was charged.

        Args:
            charges: of the request.
            who: has sent it.
            ts_us: when, Unix microseconds.
            line: its number; of two charges of the same microsecond that of the lower one comes first.
        """
        for quota_type, value, throttle_ms, outcome, producer_id in charges:
            self._memo.append(self._place_of(quota_type, who, producer_id))
            self._line.append(line)
            self._ts_us.append(ts_us)
            self._value.append(value)
            self._throttle_ms.append(throttle_ms)
            self._outcome.append(outcome)

    def add_quick(self, read: QuickLines, first_line: int) -> None:
        """Take what lines were charged that a kernel has read.

        Args:
            read: the lines.
            first_line: the number of the first one of the block.
        """
        key, throttle_ms = read["api_key"], read["throttle_ms"]
        of_bytes, of_time = self._places_of(read)
        ts_us = read["line_us"] - np.rint(read.answered_ms * 1000).astype(np.int64)
        line = read.places + first_line
        sized = np.flatnonzero(key <= _FETCH)
        refused = (key == _FETCH) & (throttle_ms > 0) & (read["answered"] == 0)
        outcome = np.where(throttle_ms > 0, THROTTLED, ADMITTED)
        value = np.where(refused, 0, read["value"]).astype(np.float64)
        self._arrays.append(
            tuple(
                column[sized]
                for column in (
                    *(of_bytes, line, ts_us, value, throttle_ms),
                    np.where(refused, REJECTED, outcome),
                )
            )
        )
        timed = np.flatnonzero(read["acks"] != 0)
        # A Produce and a Fetch tell their clients one throttle time, which stands with their bytes.
        is_other = key[timed] > _FETCH
        told_ms = np.where(is_other, throttle_ms[timed], 0)
        percent = read.local_ms[timed] * PERCENT_PER_MS
        of_other = np.where(is_other, outcome[timed], ADMITTED)
        self._arrays.append((of_time[timed], line[timed], ts_us[timed], percent, told_ms, of_other))
        self._count += len(sized) + len(timed)

    @property
    def count(self) -> int:
        """Return how many rows are in it."""
        return self._count + len(self._memo)

    def table(self, *, gateway: str, run_id: str) -> pa.Table:
        """Return the rows as a table, in the order of time, seq from 0; then there are none any more.

        Args:
            gateway: a name for where they come from.
            run_id: and for which part of it.
        """
        one_by_one = (
            self._memo,
            self._line,
            self._ts_us,
            self._value,
            self._throttle_ms,
            self._outcome,
        )
        memo, line, ts_us, value, throttle_ms, outcome = (
            np.concatenate([np.array(column, kind), *arrays]).astype(kind)
            for column, kind, arrays in zip(one_by_one, _KINDS, _columns(self._arrays), strict=True)
        )
        # What a request is charged on one quota stands before what it is charged on the next one.
        order = np.lexsort((line, ts_us))
        packed = np.empty(len(ts_us), ROW_COLUMNS)
        packed["seq"] = np.arange(len(ts_us))
        packed["ts_us"] = ts_us[order]
        packed["value"] = value[order]
        packed["throttle_ms"] = np.minimum(throttle_ms, _MS_MAX)[order]
        packed["memo"] = memo[order]
        packed["outcome"] = outcome[order]
        packed["upstream_throttle_ms"] = NO_ANSWER
        table = event_table(packed, self._memos, gateway=gateway, run_id=run_id)
        self._forget()
        return table

    def _places_of(self, read: QuickLines) -> tuple[Array, Array]:
        """Return the places of each line's two memos: of its bytes, and of its time."""
        more = len(read.whos) - self._of_quick.shape[1]
        if more > 0:
            self._of_quick = np.pad(self._of_quick, ((0, 0), (0, more)), constant_values=-1)
        for code in np.unique(read.codes[self._of_quick[0, read.codes] < 0]).tolist():
            who = read.whos[code]
            of_time = self._place_of(QuotaType.REQUEST, who, None)
            is_sized = who.api_key <= _FETCH
            of_bytes = self._place_of(_QUICK_TYPES[who.api_key], who, None) if is_sized else of_time
            self._of_quick[:, code] = of_bytes, of_time
        return self._of_quick[0, read.codes], self._of_quick[1, read.codes]

    def _place_of(self, quota_type: QuotaType, who: Who, producer_id: int | None) -> int:
        """Return the place of the memo; each new producer id has one of its own."""
        places = self._places.get(who)
        if places is None:
            places = self._places[who] = {}
        place = places.get(quota_type)
        if place is None or producer_id is not None:
            place = places[quota_type] = len(self._memos)
            self._memos.append(self._memo_of(quota_type, who, producer_id))
        return place

    def _memo_of(self, quota_type: QuotaType, who: Who, producer_id: int | None) -> ChargeMemo:
        counted = self._quotas.counted(quota_type, who.user, who.client_id)
        # A broker's threads are its own, whatever those of a gateway are.
        is_of_broker = quota_type is QuotaType.REQUEST or FACTS[quota_type].scope is Scope.BROKER
        return ChargeMemo(
            node_id=self._node_id if is_of_broker else counter_node_id(quota_type, self._node_id),
            quota_type=quota_type,
            connection=_number_of(who.connection),
            user=who.user,
            client_id=who.client_id,
            tags=counted.tags,
            api_key=who.api_key,
            api_version=who.api_version,
            limit=counted.limit,
            samples=counted.samples,
            sample_ms=counted.sample_ms,
            algorithm=counted.algorithm,
            enforced=True,
            producer_id=producer_id,
        )


def _columns(arrays: Sequence[tuple[Array, ...]]) -> list[tuple[Array, ...]]:
    return list(zip(*arrays, strict=True)) if arrays else [()] * len(_KINDS)


@lru_cache(maxsize=100_000)
def _number_of(connection: str) -> int:
    """Return a number that stands for a connection: the same in every part of a log."""
    digest = hashlib.blake2b(connection.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) >> 1
