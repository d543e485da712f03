"""Charges of another record become rows of the events table, in the order in which they were charged."""

import hashlib
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from kvota.model.decision_sink import NO_ANSWER, ChargeMemo
from kvota.model.quota_type import FACTS, QuotaType, Scope, counter_node_id
from kvota.pipeline.sources.log_quotas import LogQuotas
from kvota.pipeline.sources.request_line import Charge, Who
from kvota.record.event_table import event_table
from kvota.record.row_batch import ROW_COLUMNS

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
        self._places: dict[Who, dict[QuotaType, int]] = {}
        self._memos: list[ChargeMemo] = []
        self._memo: list[int] = []
        self._ts_us: list[int] = []
        self._value: list[float] = []
        self._throttle_ms: list[int] = []
        self._outcome: list[int] = []

    def add(self, charges: Iterable[Charge], who: Who, ts_us: int) -> None:
        """Take what a request was charged.

        Args:
            charges: of the request.
            who: has sent it.
            ts_us: when, Unix microseconds.
        """
        places = self._places.get(who)
        if places is None:
            places = self._places[who] = {}
        for charge in charges:
            quota_type, value, throttle_ms, outcome, producer_id = charge
            place = places.get(quota_type)
            if place is None or producer_id is not None:
                place = places[quota_type] = len(self._memos)
                self._memos.append(self._memo_of(charge, who))
            self._memo.append(place)
            self._ts_us.append(ts_us)
            self._value.append(value)
            self._throttle_ms.append(throttle_ms)
            self._outcome.append(outcome)

    @property
    def count(self) -> int:
        """Return how many rows are in it."""
        return len(self._memo)

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

    def _memo_of(self, charge: Charge, who: Who) -> ChargeMemo:
        quota_type = charge.quota_type
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
            producer_id=charge.producer_id,
        )


def _number_of(connection: str) -> int:
    """Return a number that stands for a connection: the same in every part of a log."""
    digest = hashlib.blake2b(connection.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) >> 1
