"""Quotas as rows of a topic: there and back, and what is no such row."""

import json

import pytest
from hypothesis import given
from tests.unit.store.test_quota_document import changes

from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.store.quota_rows import decode_row, encode_rows

ORDERS = QuotaEntity("orders", DEFAULT)
KEY = b'{"user":"orders","client-id":null,"quota":"producer_byte_rate"}'
VALUE = b'{"version":1,"value":4000000.0}'


def test_a_row_is_json_in_one_spelling() -> None:
    (row,) = encode_rows([KeyChange(ORDERS, "producer_byte_rate", 4e6)])

    assert row == (KEY, VALUE)
    assert encode_rows([KeyChange(ORDERS, "producer_byte_rate", None)]) == [(KEY, None)]


@given(changes())
def test_a_row_reads_as_what_was_written(change: KeyChange) -> None:
    ((key, value),) = encode_rows([change])

    # Tables know that what is no number is equal to itself.
    assert ClientQuotas().with_changes([decode_row(key, value)]) == ClientQuotas().with_changes(
        [change]
    )
    assert decode_row(key, value)[:2] == change[:2]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (None, VALUE, "its key is no JSON object"),
        (b"", VALUE, "its key is no JSON object"),
        (b"[]", VALUE, "its key is no JSON object"),
        (b"\xff", VALUE, "its key is no JSON object"),
        (b"[" * 100_000, VALUE, "its key is no JSON object"),
        (b'{"user":"a"}', VALUE, 'its key has no "quota"'),
        (b'{"quota":"producer_byte_rate"}', VALUE, "a quota needs a user"),
        (b'{"user":"a","group":"b","quota":"x"}', VALUE, 'unknown member "group"'),
        (b'{"user":7,"quota":"x"}', VALUE, '"user" is neither a text nor null'),
        (b'{"user":"\\ud800","quota":"x"}', VALUE, '"user" is no text'),
        (KEY, b'{"version":1,"value":1' + b"0" * 400 + b"}", "a number of 401 digits is too large"),
        (KEY, b"garbage", "its value is no JSON object"),
        (KEY, b'{"value":1.0}', "its version is None"),
        (KEY, VALUE.replace(b"1,", b"2,"), "its version is 2, and this kvota knows 1: a newer one"),
        (KEY, b'{"version":1,"value":1.0,"until":5}', "other members"),
        (KEY, b'{"version":1,"value":"fast"}', "'fast' is no number"),
        (KEY, b'{"version":1,"value":0}', "must be greater than 0"),
        (
            KEY.replace(b"producer", b"printer"),
            VALUE,
            "Invalid configuration key printer_byte_rate",
        ),
    ],
)
def test_what_is_no_such_row(key: bytes | None, value: bytes | None, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        decode_row(key, value)


def test_a_key_that_nobody_knows_may_be_removed() -> None:
    key = json.dumps({"user": "a", "quota": "of_a_newer_version"}).encode()

    assert decode_row(key, None) == KeyChange(QuotaEntity("a"), "of_a_newer_version", None)
