"""quotas.yaml: writing it is the reverse of reading it, faults are named, and the schema says the same."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import fastjsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvota.model.client_quotas import ClientQuotas
from kvota.model.errors import ConfigurationError, UnreachableError, UsageError
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.planning.wanted_quotas import WantedQuotas
from kvota.store.quotas_yaml import (
    SCHEMA_FILE,
    PlanHead,
    QuotasDocument,
    UndoHead,
    dump_document,
    load_document,
    write_document,
)
from kvota.store.yaml_file import parse_yaml

is_of_schema = fastjsonschema.compile(json.loads(SCHEMA_FILE.read_text()))

NAMES = st.one_of(
    st.sampled_from(
        [
            "no",
            "null",
            "~",
            "5",
            "true",
            "<default>",
            "- x",
            "a: b",
            "#",
            "*a",
            "\x1b",
            "\u2028",
            "CN=a,O=b",
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
)
PARTS = st.one_of(st.just(DEFAULT), NAMES)
CLIENTS = st.one_of(
    PARTS.map(lambda name: QuotaEntity(user=name)),
    PARTS.map(lambda name: QuotaEntity(client_id=name)),
    st.tuples(PARTS, PARTS).map(lambda names: QuotaEntity(*names)),
)
ADDRESSES = PARTS.map(lambda name: QuotaEntity(ip=name))
BYTES = st.one_of(st.just(float("nan")), st.integers(1, 2**63 - 1).map(float), st.just(2.0**63))
NUMBERS = st.just(float("nan")) | st.floats(min_value=0, exclude_min=True)
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "producer_byte_rate": st.none() | BYTES,
        "consumer_byte_rate": st.none() | BYTES,
        "request_percentage": st.none() | NUMBERS,
        "controller_mutation_rate": st.none() | NUMBERS,
    },
).filter(bool)
CONNECTIONS = st.fixed_dictionaries(
    {"connection_creation_rate": st.none() | st.integers(1, 2**31 - 1).map(float)}
)
WANTED = st.builds(
    lambda of_clients, of_addresses: WantedQuotas.of(
        (entity, key, value)
        for entity, values in {**of_clients, **of_addresses}.items()
        for key, value in values.items()
    ),
    st.dictionaries(CLIENTS, LIMITS, max_size=4),
    st.dictionaries(ADDRESSES, CONNECTIONS, max_size=2),
)
TEXTS = st.none() | NAMES
DOCUMENTS = st.builds(
    lambda wanted, plan, undo: QuotasDocument(wanted=wanted, plan=plan, undo=undo),
    WANTED,
    st.none()
    | st.builds(
        lambda made_at, of, wanted, prunes: PlanHead(
            made_at=made_at, cluster_id=of, in_force=wanted.quotas, prunes=prunes
        ),
        NAMES,
        TEXTS,
        WANTED,
        st.booleans(),
    ),
    st.none()
    | st.builds(
        lambda of, done, in_doubt, not_done, ramp: UndoHead(
            made_at="then",
            command="kvota quotas apply x",
            cluster_id=of,
            done=done,
            in_doubt=in_doubt,
            not_done=not_done,
            ramp=None if ramp is None else "10%/1h",
            ramp_step=ramp or 0,
            ramp_step_at_ms=1_700_000_000_000 if ramp else 0,
        ),
        TEXTS,
        WANTED,
        WANTED,
        WANTED,
        st.none() | st.integers(0, 99),
    ),
)


def read(text: str) -> QuotasDocument:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "q.yaml"
        file.write_bytes(text.encode())
        return load_document(file)


@given(DOCUMENTS)
def test_what_is_written_is_read_again(document: QuotasDocument) -> None:
    text = dump_document(document, heading="for\nsomebody")

    assert read(text) == document
    assert dump_document(read(text), heading="for\nsomebody") == text


@given(DOCUMENTS)
def test_what_is_written_is_of_the_schema(document: QuotasDocument) -> None:
    is_of_schema(parse_yaml(dump_document(document), "q.yaml")[0])


GOOD = """
version: 1
quotas:
  - user: orders
    producer_byte_rate: 5MiB/s
    consumer_byte_rate: 1000
    request_percentage: 20%
    controller_mutation_rate: none
  - user_default: true
    client_id: "7"
    controller_mutation_rate: 10/s
  - client_id_default: true
    request_percentage: 12.5
  - ip: 10.0.0.1
    connection_creation_rate: 10/s
  - ip_default: true
    connection_creation_rate: 100
"""
ENTRY = "quotas:\n  - user: a\n    "


def test_every_kind_of_entity_and_value_is_read() -> None:
    wanted = read(GOOD).wanted

    assert wanted.quotas == ClientQuotas(
        {
            QuotaEntity(user="orders"): {
                "producer_byte_rate": 5 * 2**20,
                "consumer_byte_rate": 1000,
                "request_percentage": 20,
            },
            QuotaEntity(user=DEFAULT, client_id="7"): {"controller_mutation_rate": 10},
            QuotaEntity(client_id=DEFAULT): {"request_percentage": 12.5},
            QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 10},
            QuotaEntity(ip=DEFAULT): {"connection_creation_rate": 100},
        }
    )
    assert wanted.removed == {(QuotaEntity(user="orders"), "controller_mutation_rate")}
    is_of_schema(parse_yaml(GOOD, "q.yaml")[0])


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (f"{ENTRY}producer_byte_rate: 5XB/s", "3:5", '"5XB/s" is not a byte rate'),
        (f"{ENTRY}producer_byte_rate: 8MB", "3:5", 'Write "8MB/s"'),
        (f"{ENTRY}producer_byte_rate: 8mb/s", "3:5", 'Write "8MB/s"'),
        (f"{ENTRY}producer_byte_rate: -8MB/s", "3:5", '"-8MB/s" is not above 0'),
        (f"{ENTRY}producer_byte_rate: -8", "3:5", "-8 is not above 0"),
        (f"{ENTRY}producer_byte_rate: 0", "3:5", "0 is not above 0"),
        (f"{ENTRY}producer_byte_rate: 0.5", "3:5", "not a whole number"),
        (f"{ENTRY}producer_byte_rate: 1e19", "3:5", "more than 2^63"),
        (f"{ENTRY}producer_byte_rate: .inf", "3:5", "inf is no limit"),
        (f"{ENTRY}producer_byte_rate:", "3:5", "has no value"),
        (f"{ENTRY}producer_byte_rate: [5]", "3:5", "a list is not a byte rate"),
        (f"{ENTRY}producer_byte_rate: yes", "3:5", '"yes" is not a byte rate'),
        (f"{ENTRY}request_percentage: 20MB/s", "3:5", "is not a percentage"),
        (f"{ENTRY}controller_mutation_rate: 30/min", "3:5", 'Write "0.5/s"'),
        (f"{ENTRY}producer_byte_rat: 5", "3:5", 'Did you mean "producer_byte_rate"?'),
        (f"{ENTRY}producerByteRate: 5", "3:5", 'Did you mean "producer_byte_rate"?'),
        (f"{ENTRY}connection_creation_rate: 5", "3:5", "a limit that only an ip has"),
        (f"{ENTRY}ip: b\n    producer_byte_rate: 5", "2:5", "an ip and somebody else"),
        (f"{ENTRY}user_default: true\n    producer_byte_rate: 5", "3:5", "together with user"),
        ("quotas:\n  - user: a", "2:5", "limits nothing"),
        ("quotas:\n  - producer_byte_rate: 5", "2:5", "Add user, user_default: true"),
        ("quotas:\n  - user: 5\n    producer_byte_rate: 5", "2:5", 'e.g. user: "orders"'),
        ('quotas:\n  - user: ""\n    producer_byte_rate: 5', "2:5", "an empty name"),
        ("quotas:\n  - user_default: 1\n    producer_byte_rate: 5", "2:5", "not true"),
        (
            f"{ENTRY}producer_byte_rate: 5\n  - user: a\n    consumer_byte_rate: 5",
            "4:5",
            "2:5 already",
        ),
        ("quotas:\n  - a", "2:5", 'Write e.g. "- user: orders"'),
        ("quotas: a", "1:1", "not a list"),
        ("quota: []", "1:1", 'Did you mean "quotas"?'),
        ("quotas: []\nuser: a", "2:1", 'It belongs to an entry of the list "quotas"'),
        ("version: 2\nquotas: []", "1:1", "2 is not known"),
        ("version: true\nquotas: []", "1:1", "true is not known"),
        ("version: 1", "", 'Write "quotas: []"'),
        ("quotas: []\nplan: x", "2:1", "not a mapping"),
        ("quotas: []\nplan: {in_force: [x]}", "2:19", "not an entry"),
        ("quotas: []\nplan: {prune: 1}", "2:8", "neither true nor false"),
        ("quotas: []\nundo: {ramp_step: -1}", "2:8", "not a whole number"),
        ("quotas: []\nundo: {cluster_id: 5}", "2:8", "not a text"),
        ("quotas: []\nundo: {did: 5}", "2:8", "unknown key"),
    ],
)
def test_a_fault_has_its_place_and_what_to_write(text: str, place: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read(text)

    at, _, said = str(refused.value).partition("/q.yaml:")
    assert "q.yaml" not in at
    assert said.startswith(f"{place}:" if place else " ")
    assert words in said
    if (
        not any(each in text for each in (": 0.5", "1e19", ".inf"))
        and "- user: a\n    consumer" not in text
    ):
        with pytest.raises(fastjsonschema.JsonSchemaException):  # editors see it, too
            is_of_schema(parse_yaml(text, "q.yaml")[0])


def test_all_faults_come_at_once_in_the_order_of_their_lines() -> None:
    text = f"{ENTRY}producer_byte_rate: 5XB/s\n  - user: b\n    what: 1\n    request_percentage: -1\nmore: 1"
    with pytest.raises(ConfigurationError) as refused:
        read(text)

    assert [fault.place.split(":")[1] for fault in refused.value.faults] == ["3", "5", "6", "7"]


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    half = WantedQuotas.of([(QuotaEntity(user="\ud800"), "producer_byte_rate", 1.0)])
    with pytest.raises(UsageError, match="not Unicode"):
        dump_document(QuotasDocument(wanted=half))
    strange = WantedQuotas.of([(QuotaEntity(user="a"), "producer_byte_rate", 0.5)])
    with pytest.raises(UsageError, match="not a whole number"):
        dump_document(QuotasDocument(wanted=strange))
    with pytest.raises(UnreachableError, match="could not be written"):
        write_document(tmp_path / "no" / "q.yaml", QuotasDocument(wanted=WantedQuotas()))


def test_the_published_schema_is_the_packages() -> None:
    published = Path(__file__).parents[3] / "docs" / SCHEMA_FILE.name

    assert published.read_bytes() == SCHEMA_FILE.read_bytes()
