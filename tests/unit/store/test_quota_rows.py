"""Quotas as rows of a topic: there and back, and what is no such row."""

import json

import pytest
from hypothesis import given
from tests.unit.store.test_quota_document import changes

from kvota.client.record_batches import Row
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.store.quota_rows import (
    LastRows,
    LeftOut,
    SettingChange,
    changes_of,
    encode_rows,
    encode_settings,
)

ORDERS = QuotaEntity("orders", DEFAULT)
KEY = b'{"user":"orders","client-id":null,"quota":"producer_byte_rate"}'
NUM, SIZE = "quota.window.num", "quota.window.size.seconds"
NUM_KEY, SIZE_KEY = b'{"setting":"quota.window.num"}', b'{"setting":"quota.window.size.seconds"}'
VALUE = b'{"version":1,"value":4000000.0}'


def test_a_row_is_json_in_one_spelling() -> None:
    (row,) = encode_rows([KeyChange(ORDERS, "producer_byte_rate", 4e6)])

    assert row == (KEY, VALUE)
    assert encode_rows([KeyChange(ORDERS, "producer_byte_rate", None)]) == [(KEY, None)]


def read_row(key: bytes | None, value: bytes | None) -> KeyChange | SettingChange | LeftOut:
    """The one thing that a row is."""
    (found, settings), left_out = changes_of([Row(0, key, value)])
    (only,) = [*found, *(SettingChange(*each) for each in settings.items()), *left_out]
    return only


@given(changes())
def test_a_row_reads_as_what_was_written(change: KeyChange) -> None:
    ((key, value),) = encode_rows([change])

    # Tables know that what is no number is equal to itself.
    read = read_row(key, value)
    assert isinstance(read, KeyChange)
    assert ClientQuotas().with_changes([read]) == ClientQuotas().with_changes([change])
    assert read[:2] == change[:2]


def test_a_setting_has_rows_of_its_own() -> None:
    rows = encode_settings({NUM: "5", "client.quota.callback.group.ä.users": None})

    assert rows[0] == (NUM_KEY, b'{"version":1,"value":"5"}')
    assert [read_row(*row) for row in rows] == [
        SettingChange(NUM, "5"),
        SettingChange("client.quota.callback.group.ä.users", None),
    ]


def test_settings_of_many_rows_are_the_last_ones() -> None:
    rows = LastRows()

    def add(key: bytes, value: bytes | None) -> list[LeftOut]:
        return rows.add([Row(0, key, value)])

    add(NUM_KEY, b'{"version":1,"value":"5"}')
    add(NUM_KEY, b'{"version":1,"value":"6"}')
    (left_out,) = add(SIZE_KEY, b'{"version":9,"value":"7"}')
    assert "a newer one has written it" in left_out.reason

    # What cannot be read stays as it was last.
    assert rows.settings({}) == {NUM: "6"}
    assert rows.settings({SIZE: "3", NUM: "4"}) == {NUM: "6", SIZE: "3"}
    add(NUM_KEY, None)
    assert rows.settings({SIZE: "3", NUM: "4"}) == {SIZE: "3"}
    assert rows.changes() == []


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
        (NUM_KEY, b'{"version":1,"value":5}', "quota.window.num: int is no text"),
        (b'{"setting":"log.dirs"}', b'{"version":1,"value":"/"}', "no setting of the gateway"),
        (b'{"setting":"quota.window.num","user":"a"}', VALUE, 'its key has no "quota"'),
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
    left_out = read_row(key, value)

    assert isinstance(left_out, LeftOut)
    assert words in left_out.reason


def test_a_key_that_nobody_knows_may_be_removed() -> None:
    key = json.dumps({"user": "a", "quota": "of_a_newer_version"}).encode()

    assert read_row(key, None) == KeyChange(QuotaEntity("a"), "of_a_newer_version", None)
