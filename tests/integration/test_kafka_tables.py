"""The tables of Kafka's own tests of client quotas, each row once to a broker and once to a gateway.

They are those of ``ClientQuotasRequestTest`` and ``ClientQuotaControlManagerTest``: the answers are the same to the
byte, and what is described afterwards is the same, and what Kafka's tests expect.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.integration.raw_client import RawClient
from tests.integration.test_client_quotas import (
    address,
    asked,
    cleaned,
    entries_of,
    gateway,
    same_description,
)
from tests.unit.quota_api.written import Entity, Values, alteration, altered, description

from kvota.app.gateway_process import GatewayProcess
from kvota.localkafka import LocalKafka

PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
REQUEST, MUTATION, CONNECTION = (
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
BANDWIDTH = (PRODUCER, CONSUMER, REQUEST, MUTATION)
EXACT, DEFAULT, ANY = 0, 1, 2
Component = tuple[str, int, str | None]
INVALID, UNSUPPORTED = 42, 35


@dataclass
class Both:
    """A broker and a gateway, asked the same."""

    direct: RawClient
    client: RawClient
    version: int

    def alter(self, *entries: tuple[Entity, Values], validate_only: bool = False) -> list[int]:
        """The error codes of the entries."""
        frame = alteration(*entries, version=self.version, validate_only=validate_only)
        told = asked(self.client, frame)
        assert told == asked(self.direct, frame), entries
        return [code for _, code, _ in altered(told, self.version)]

    def describe(self, *components: Component, strict: bool = True) -> tuple[int, int]:
        """Its error code and how many entities it finds."""
        frame = description(*components, strict=strict, version=self.version)
        same_description(self.direct, self.client, frame, self.version)
        code, _, entries = entries_of(asked(self.client, frame), self.version)
        return code, len(entries or ())

    def has(self, entity: Entity, values: Values) -> None:
        """This entity has these values and no other."""
        components = named(entity)
        frame = description(*components, version=self.version)
        assert self.describe(*components) == (0, int(bool(values)))
        found = entries_of(asked(self.client, frame), self.version)[2]
        assert found == ([expected(entity, values)] if values else [])


def named(entity: Entity) -> list[Component]:
    return [
        (kind, DEFAULT, None) if name is None else (kind, EXACT, name)
        for kind, name in dict(entity).items()
    ]


def expected(entity: Entity, values: Values) -> str:
    """As ``entries_of`` writes it."""
    parts = sorted((kind, name or "\0") for kind, name in dict(entity).items())
    return repr((parts, sorted((key, repr(value)) for key, value in dict(values).items())))


@pytest.fixture(scope="module")
def process(
    quota_kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("tables")
    with gateway(folder, quota_kafka.bootstrap_servers) as process:
        yield process
        assert " ERROR " not in process.log


@pytest.fixture(params=[0, 1], ids=["v0", "v1"])
def both(
    quota_kafka: LocalKafka, process: GatewayProcess, request: pytest.FixtureRequest
) -> Iterator[Both]:
    with (
        RawClient(quota_kafka.nodes[0].address) as direct,
        RawClient(address(process)) as client,
    ):
        cleaned(direct)
        yield Both(direct, client, request.param)
        for each in direct, client:
            cleaned(each)


def test_alterations_one_after_the_other(both: Both) -> None:
    entity = {"user": "user", "client-id": "client-id"}
    values: dict[str, float] = {}
    both.has(entity, values)
    steps: list[dict[str, float | None]] = [
        {PRODUCER: 10_000.0, CONSUMER: 20_000.0},
        {PRODUCER: 15_000.0},
        {PRODUCER: None},
        {REQUEST: None},
        {PRODUCER: 5_000.0},
        {PRODUCER: 20_000.0, CONSUMER: None, REQUEST: 1_000_012.3},
        # ClientQuotaControlManagerTest.testAlterAndRemove
        {PRODUCER: 10_001.0, CONSUMER: 20_000.0, REQUEST: None},
        {PRODUCER: None},
        {CONSUMER: None},
        {CONSUMER: None},
        {REQUEST: 1_000_099.0, MUTATION: None, PRODUCER: 10_002.0, CONSUMER: 20_001.0},
    ]
    for step in steps:
        assert both.alter((entity, step)) == [0]
        values = {key: value for key, value in {**values, **step}.items() if value is not None}
        both.has(entity, values)


def test_what_is_only_validated_changes_nothing(both: Both) -> None:
    entity = {"user": "user"}
    values = {PRODUCER: 20_000.0, REQUEST: 1_000_023.45}
    assert both.alter((entity, values)) == [0]
    steps: list[dict[str, float | None]] = [
        {CONSUMER: 50_000.0},
        {PRODUCER: 10_000.0},
        {REQUEST: None},
        {PRODUCER: 10_000.0, CONSUMER: 50_000.0, REQUEST: None},
    ]
    for step in steps:
        assert both.alter((entity, step), validate_only=True) == [0]
        both.has(entity, values)


def test_addresses(both: Both) -> None:
    known, default, every = {"ip": "1.2.3.4"}, {"ip": None}, ("ip", ANY, None)
    assert both.describe(every) == (0, 0)
    for entity, value in ((known, 100.0), (known, 150.0), (default, 20_000.0)):
        assert both.alter((entity, {CONNECTION: value})) == [0]
        both.has(entity, {CONNECTION: value})
    assert both.describe(every) == (0, 2)
    for left, entity in ((1, known), (0, default)):
        assert both.alter((entity, {CONNECTION: None})) == [0]
        both.has(entity, {})
        assert both.describe(every) == (0, left)


@pytest.mark.parametrize("validate_only", [True, False])
def test_alterations_that_are_refused(both: Both, validate_only: bool) -> None:
    user = {"user": "user-1"}
    refused: list[tuple[Entity, Values]] = [
        ({"user": ""}, {REQUEST: 12.34}),
        ({"client-id": ""}, {REQUEST: 12.34}),
        ({"": "name"}, {REQUEST: 12.34}),
        ({}, {PRODUCER: 10_000.5}),
        (user, {"bad": 1.0}),
        (user, {PRODUCER: 10_000.5}),
        ({"user": "user", "ip": "1.2.3.4"}, {REQUEST: 12.34}),
        ({"client-id": "client", "ip": "1.2.3.4"}, {REQUEST: 12.34}),
        ({"ip": "not a valid host because it has spaces"}, {CONNECTION: 50.0}),
        ({"ip": "RFC2606.invalid"}, {CONNECTION: 50.0}),
        ({"ip": "example.invalid"}, {CONNECTION: 50.0}),
        # ClientQuotaControlManagerTest
        ({"foo": "bar"}, {PRODUCER: 10_000.0}),
        ({"user": "user-1", "foo": "bar"}, {PRODUCER: 10_000.0}),
        ({"foo": "bar", "ip": "1.2.3.4"}, {PRODUCER: 10_000.0}),
        ({"user": "user-1", "ip": "1.2.3.4"}, {PRODUCER: 10_000.0}),
        ({"client-id": "user-1", "ip": "1.2.3.4"}, {PRODUCER: 10_000.0}),
        ({}, {PRODUCER: 10_000.0}),
        (user, {"not.a.quota.key": 0.0, REQUEST: 99.9}),
        (user, {REQUEST: 99.9, "not.a.quota.key": 0.0}),
        (user, {"": 99.9}),
        ({"client-id": "c"}, {"foobar": 1.0}),
        ({"client-id": "c"}, {PRODUCER: 0.0}),
        ({"client-id": "c"}, {CONSUMER: -2.0}),
        ({"client-id": "c"}, {CONSUMER: 36893488147419103232.4}),
        ({"client-id": "c"}, {CONSUMER: 2.245}),
        *((entity, {CONNECTION: 1.0}) for entity in (user, {"client-id": "c"}, {**user, "client-id": "c"})),
        *(({"ip": "127.0.0.1"}, {key: 1.0}) for key in BANDWIDTH),
    ]  # fmt: skip
    for entity, values in refused:
        assert both.alter((entity, values), validate_only=validate_only) == [INVALID], entity
    assert both.describe(strict=False) == (0, 0)


def test_values_and_keys_that_are_taken(both: Both) -> None:
    large = 1_000_000.0
    for key, value in (
        (CONSUMER, 1234.0),
        (CONSUMER, 1235.0000001),
        (REQUEST, large + 56.62367),
    ):
        assert both.alter(({"client-id": "c"}, {key: value})) == [0]
    for entity in ({"user": "foo"}, {"client-id": "foo"}, {"client-id": "foo", "user": "foo"}):
        assert both.alter((entity, dict.fromkeys(BANDWIDTH, large))) == [0]
        both.has(entity, dict.fromkeys(BANDWIDTH, large))
    for ip in ("127.0.0.1", None):
        assert both.alter(({"ip": ip}, {CONNECTION: 30_000.0})) == [0]


ENTITIES: list[tuple[str | None, str | None, float]] = [
    ("user-1", "client-id-1", 50.50),
    ("user-2", "client-id-1", 51.51),
    ("user-3", "client-id-2", 52.52),
    ("", "client-id-1", 53.53),
    ("user-1", "", 54.54),
    ("user-3", "", 55.55),
    ("user-1", None, 56.56),
    ("user-2", None, 57.57),
    ("user-3", None, 58.58),
    ("", None, 59.59),
    (None, "client-id-2", 60.60),
]
OTHERS: list[tuple[str | None, str | None]] = [
    ("user-1", "client-id-2"),
    ("user-3", "client-id-1"),
    ("user-2", ""),
    ("user-4", None),
    ("", "client-id-2"),
    (None, "client-id-1"),
    (None, "client-id-3"),
]


def entity_of(user: str | None, client: str | None) -> dict[str, str | None]:
    """None: it has no such part; empty: the default."""
    parts = {"user": user, "client-id": client}
    return {kind: name or None for kind, name in parts.items() if name is not None}


def test_what_filters_match(both: Both) -> None:
    def value(percent: float) -> float:
        return 1_000_000 + percent  # nobody is to be held back

    rows: list[tuple[Entity, Values]] = [
        (entity_of(user, client), {REQUEST: value(percent)}) for user, client, percent in ENTITIES
    ]
    rows += [({"ip": "1.2.3.4"}, {CONNECTION: 10.0}), ({"ip": "2.3.4.5"}, {CONNECTION: 20.0})]
    assert both.alter(*rows) == [0] * 13

    for entity, values in rows:
        both.has(entity, values)
    for user, client in OTHERS:
        both.has(entity_of(user, client), {})
    partial: list[tuple[list[Component], bool, int]] = [
        ([("user", EXACT, "user-1")], False, 3),
        ([("user", EXACT, "unknown")], False, 0),
        ([("client-id", EXACT, "client-id-2")], False, 2),
        ([("user", DEFAULT, None)], False, 2),
        ([("user", EXACT, "user-2")], True, 1),
        ([("client-id", EXACT, "client-id-1")], True, 0),
        ([("user", ANY, None)], True, 4),
        ([("user", ANY, None)], False, 10),
        ([("client-id", ANY, None)], True, 1),
        ([("client-id", ANY, None)], False, 7),
        ([("ip", ANY, None)], False, 2),
        ([], False, 13),
        ([], True, 0),
    ]
    for components, strict, matches in partial:
        assert both.describe(*components, strict=strict) == (0, matches), components
    for kind in "user", "client-id":
        found = both.describe(("ip", ANY, None), (kind, ANY, None), strict=False)
        assert found == (INVALID, 0)
    assert both.describe(("other", EXACT, "name")) == (UNSUPPORTED, 0)


def test_names_that_are_written_in_another_way_elsewhere(both: Both) -> None:
    for entity in ({"user": "user with spaces"}, {"client-id": "<default>"}):
        assert both.alter((entity, {PRODUCER: 20_000.0})) == [0]
        both.has(entity, {PRODUCER: 20_000.0})
    assert both.describe(("client-id", DEFAULT, None)) == (0, 0)
