"""What a plan would change, in lines for people."""

from kvota.app.quotas_as_code.difference_lines import shown_lines
from kvota.model.quota_entity import QuotaEntity
from kvota.planning.wanted_quotas import Difference


def test_columns_are_aligned_and_names_are_whole() -> None:
    rate, name = "producer_byte_rate", "n" * 100

    lines = shown_lines(
        [
            Difference(QuotaEntity(user="日本"), rate, None, 5.0),
            Difference(QuotaEntity(user="orders"), rate, 5.0, 1_000.0),
        ]
    )
    (long,) = shown_lines([Difference(QuotaEntity(user=name), rate, None, 5.0)])

    assert lines == [
        "+  user 日本    producer_byte_rate  none → 5B/s",
        "~  user orders  producer_byte_rate  5B/s → 1KB/s  +1.99e+04 %",
    ]
    assert f"user {name}  {rate}" in long
