"""A planned change says what holds now, wherever that comes from."""

import pytest

from kvota.app.cli.recommend_text import change_text
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.planning.diff import Change

ORDERS = QuotaEntity(user="orders")


@pytest.mark.parametrize(
    ("own", "now", "text"),
    [
        (None, None, "+ user-principal 'orders' PRODUCE none -> 8.00 MB/s"),
        (
            None,
            4e6,
            "+ user-principal 'orders' PRODUCE 4.00 MB/s (of a default) -> 8.00 MB/s",
        ),
        (4e6, 4e6, "~ user-principal 'orders' PRODUCE 4.00 MB/s -> 8.00 MB/s"),
    ],
)
def test_a_change_names_the_limit_in_force(own: float | None, now: float | None, text: str) -> None:
    assert change_text(Change(ORDERS, QuotaType.PRODUCE, own, 8e6), now) == text
