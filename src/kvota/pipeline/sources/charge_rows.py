"""Charges of another record become rows of the events table, in the order in which they were charged."""

import hashlib
from collections.abc import Hashable

import numpy as np
import pyarrow as pa

from kvota.model.decision_sink import NO_ANSWER, ChargeMemo
from kvota.model.quota_type import FACTS, QuotaType, Scope, counter_node_id
from kvota.pipeline.sources.log_quotas import LogQuotas
from kvota.pipeline.sources.request_line import Charge
from kvota.record.event_table import event_table
from kvota.record.row_batch import ROW_COLUMNS

# A number of milliseconds that a column holds at most.
_MS_MAX = 2**31 - 1


class ChargeRows:
    """Takes charges, and makes a table of them.

    Attributes:
        count: of rows that are in it.
    """

    def __init__(self, node_id: int, quotas: LogQuotas) -> None:
        """Begins without rows.

        Args:
            node_id: of the broker that charged.
            quotas: in force.
        """
        self.count = 0
        self._node_id, self._quotas = node_id, quotas
        self._forget()

    def _forget(self) -> None:
        self.count = 0
        self._places: dict[Hashable, int] = {}
        self._memos: list[ChargeMemo] = []
        self._memo: list[int] = []
        self._ts_us: list[int] = []
        self._value: list[float] = []
        self._throttle_ms: list[int] = []
        self._outcome: list[int] = []

    def add(self, charge: Charge, ts_us: int) -> None:
        """Take a charge.

        Args:
            charge: what was charged.
            ts_us: when, Unix microseconds.
        """
        key = (charge[:6], charge[9])
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._memos)
            self._memos.append(self._memo_of(charge))
        self._memo.append(place)
        self._ts_us.append(ts_us)
        self._value.append(charge.value)
        self._throttle_ms.append(charge.throttle_ms)
        self._outcome.append(charge.outcome)
        self.count += 1

    def table(self, *, gateway: str, run_id: str) -> pa.Table:
        """Return the rows as a table, in the order of time, seq from 0; then there are none any more.

        Args:
            gateway: a name for where they come from.
            run_id: and for which part of it.
        """
        ts_us = np.array(self._ts_us, "<i8")
        order = np.argsort(ts_us, kind="stable")
        packed = np.empty(len(ts_us), ROW_COLUMNS)
        packed["seq"] = np.arange(len(ts_us))
        packed["ts_us"] = ts_us[order]
        packed["value"] = np.array(self._value, "<f8")[order]
        throttle_ms = np.minimum(np.array(self._throttle_ms, "<i8"), _MS_MAX)
        packed["throttle_ms"] = throttle_ms[order]
        packed["upstream_throttle_ms"] = NO_ANSWER
        packed["memo"] = np.array(self._memo, "<i4")[order]
        packed["outcome"] = np.array(self._outcome, "<i4")[order]
        table = event_table(packed, self._memos, gateway=gateway, run_id=run_id)
        self._forget()
        return table

    def _memo_of(self, charge: Charge) -> ChargeMemo:
        quota_type = charge.quota_type
        counted = self._quotas.counted(quota_type, charge.user, charge.client_id)
        # A broker's threads are its own, whatever those of a gateway are.
        is_of_broker = quota_type is QuotaType.REQUEST or FACTS[quota_type].scope is Scope.BROKER
        return ChargeMemo(
            node_id=self._node_id if is_of_broker else counter_node_id(quota_type, self._node_id),
            quota_type=quota_type,
            connection=_number_of(charge.connection),
            user=charge.user,
            client_id=charge.client_id,
            tags=counted.tags,
            api_key=charge.api_key,
            api_version=charge.api_version,
            limit=counted.limit,
            samples=counted.samples,
            sample_ms=counted.sample_ms,
            algorithm=counted.algorithm,
            enforced=True,
            producer_id=charge.producer_id,
        )


def _number_of(connection: str) -> int:
    """Return a number that stands for a connection: the same in every part of a log."""
    digest = hashlib.blake2b(connection.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) >> 1
