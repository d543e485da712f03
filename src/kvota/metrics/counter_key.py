"""The name of one counter: what a series, a line of ``kvota status`` and a lane have in common."""

from typing import NamedTuple

from kvota.model.quota_type import QuotaType


class CounterKey(NamedTuple):
    """One counter of a gateway.

    Attributes:
        quota_type: of the quota.
        tags: their text, as records carry it.
        node_id: of the broker; -1: of all.
    """

    quota_type: QuotaType
    tags: str
    node_id: int
