"""Quotas as one JSON document: there and back, and what is none."""

import json
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvota.model.client_quotas import KEYS, ClientQuotas, KeyChange, Number
from kvota.model.errors import CorruptDataError
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.store.quota_document import QuotaDocument, read_document

NAMES = st.text(min_size=1, max_size=10).filter(lambda name: name.isprintable())
PARTS = st.none() | st.just(DEFAULT) | NAMES
ENTITIES = st.one_of(
    st.builds(QuotaEntity, NAMES | st.just(DEFAULT), PARTS, st.none()),
    st.builds(QuotaEntity, st.none(), NAMES | st.just(DEFAULT), st.none()),
    st.builds(QuotaEntity, st.none(), st.none(), NAMES | st.just(DEFAULT)),
)
DOUBLES = st.floats(min_value=1e-9, allow_infinity=True) | st.just(nan)
WHOLE = st.integers(1, 2**31 - 1).map(float)


@st.composite
def changes(draw: st.DrawFn) -> KeyChange:
    entity = draw(ENTITIES)
    key = draw(st.sampled_from([key for key in KEYS.values() if key.fits(entity.types)]))
    values = DOUBLES if key.number is Number.DOUBLE else WHOLE
    return KeyChange(entity, key.name, draw(st.none() | values))


@given(st.lists(st.lists(changes(), max_size=6), max_size=4))
def test_a_document_reads_as_what_was_written(batches: list[list[KeyChange]]) -> None:
    document, quotas = QuotaDocument(), ClientQuotas()
    for batch in batches:
        document, quotas = document.with_changes(batch), quotas.with_changes(batch)

    read = read_document(document.content())

    assert read.quotas == quotas == document.quotas
    assert list(read.quotas.entries()) == list(quotas.entries())
    assert read.content() == document.content() == QuotaDocument(quotas).content()


def test_it_is_json_for_everybody() -> None:
    quotas = ClientQuotas(
        {
            QuotaEntity("müller", DEFAULT): {"producer_byte_rate": 1000.0},
            QuotaEntity(ip="10.1.2.3"): {"connection_creation_rate": 5.0},
            QuotaEntity(client_id="c"): {"request_percentage": inf, "consumer_byte_rate": nan},
        }
    )

    written = json.loads(QuotaDocument(quotas).content(), parse_constant=pytest.fail)

    assert written == {
        "format": "kvota client quotas",
        "version": 1,
        "quotas": [
            {"user": "müller", "client-id": None, "values": {"producer_byte_rate": 1000.0}},
            {"ip": "10.1.2.3", "values": {"connection_creation_rate": 5.0}},
            {
                "client-id": "c",
                "values": {"request_percentage": "Infinity", "consumer_byte_rate": "NaN"},
            },
        ],
    }


def test_an_old_document_stays_as_it_was() -> None:
    alice = QuotaEntity("alice")
    before = QuotaDocument(ClientQuotas({alice: {"producer_byte_rate": 1.0}}))
    content = before.content()

    before.with_changes([KeyChange(alice, "producer_byte_rate", None)])

    assert before.content() == content


def document(*entries: object, **more: object) -> bytes:
    head = {"format": "kvota client quotas", "version": 1, "quotas": list(entries)}
    return json.dumps(head | more).encode()


FINE = {"user": "a", "values": {"producer_byte_rate": 1.0}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no whole JSON document"),
        (document(FINE)[:-9], "no whole JSON document"),
        (b"\xff\xfe", "no whole JSON document"),
        (b"[" * 100_000, "no whole JSON document"),
        (b"[]", 'no "format": "kvota client quotas"'),
        (document(format="other"), 'no "format": "kvota client quotas"'),
        (document(version=3), "its version is 3, and this kvota knows 1 and 2"),
        (document(version="1"), "its version is '1'"),
        (document(version=[1]), r"its version is \[1\]"),
        (document(version={}), "its version is {}"),
        (
            document().replace(b": 1,", b": " + b"[" * 900 + b"]" * 900 + b","),
            "its version is|recursion",
        ),
        (document(FINE | {"\ud800": 1}), 'unknown member "\N{REPLACEMENT CHARACTER}"'),
        (document(FINE | {"x" * 1000: 1}), "^.{300}$"),
        (document(quotas={}), "other members"),
        (document(more=1), "other members"),
        (document("x"), r"quotas\[0\]: not an object"),
        (document(FINE, {"user": "b"}), r'quotas\[1\]: no "values"'),
        (document({"user": "b", "values": {}}), 'no "values"'),
        (document({"values": {"producer_byte_rate": 1.0}}), "a quota needs a user"),
        (document({"user": "", **FINE} | {"user": ""}), "may not be an empty name"),
        (document(FINE | {"user": 7}), '"user" is neither a text nor null'),
        (document(FINE | {"ip": "1.2.3.4"}), "an ip cannot be combined"),
        (document(FINE | {"group": "x"}), 'unknown member "group"'),
        (document(FINE | {"values": {"foo": 1.0}}), "Invalid configuration key foo"),
        (document(FINE | {"values": {"producer_byte_rate": 0}}), "must be greater than 0"),
        (document(FINE | {"values": {"producer_byte_rate": True}}), "True is no number"),
        (document(FINE | {"values": {"producer_byte_rate": "1"}}), "'1' is no number"),
        (document(FINE | {"values": {"connection_creation_rate": 1}}), "Invalid configuration key"),
        (document(FINE, FINE), "user-principal 'a' is there twice"),
    ],
)
def test_what_is_no_such_document(content: bytes, words: str) -> None:
    with pytest.raises(CorruptDataError, match=words):
        read_document(content)
