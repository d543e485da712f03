"""The cases of Kafka's own tests of this quota (``ControllerMutationQuotaTest``), each at a broker and at a gateway before it.

Create, delete and grow; in versions that can be refused, that cannot, and without a quota. Kafka's tests keep 10 windows;
here it is the default, 11: with 2 partitions a second 22 are there at once.
"""

import re
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from tests.integration.raw_client import RawClient
from tests.integration.test_client_quotas import asked
from tests.unit.quota_api.written import alteration, described, description

from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka
from kvota.testing.frames import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, parts, request
from kvota.testing.kafka_messages import milliseconds

RATE, WINDOWS, SIZE = 2.0, 11, 30
# Two topics of 30: behind the first 8 partitions are missing, behind both 38.
STRICT_MS, PERMISSIVE_MS = 4_000, 19_000
# Behind one of 70 there are 48 missing, so that a broker may take its time for what comes next.
BIG, OWED_MS = SIZE + 40, 24_000
# Of a bucket that a broker counts by its own clock.
INEXACT_MS = 500
NONE, EXISTS, UNKNOWN, INVALID_PARTITIONS, REFUSED = 0, 36, 3, 37, 89
TIMEOUT = milliseconds(60_000)
UNBOUNDED = "unbounded"
KEY = "controller_mutation_rate"
# From the oldest version that brokers of 4.3 take to the newest.
STRICT = [(CREATE_TOPICS, 6), (CREATE_TOPICS, 7), (DELETE_TOPICS, 5), (DELETE_TOPICS, 6), (CREATE_PARTITIONS, 3)]  # fmt: skip
PERMISSIVE = [(CREATE_TOPICS, 2), (CREATE_TOPICS, 5), (DELETE_TOPICS, 1), (DELETE_TOPICS, 4), (CREATE_PARTITIONS, 0), (CREATE_PARTITIONS, 2)]  # fmt: skip
NAMES = {CREATE_TOPICS: "create", DELETE_TOPICS: "delete", CREATE_PARTITIONS: "grow"}
PLACES = ("broker", "gateway")
OTHERS = ("mixed", "validated", "metric")

Errors = dict[str, int]
Told = tuple[int, Errors]


def mode_of(key: int, version: int) -> str:
    """The client id of one case: a full bucket of its own."""
    return f"{NAMES[key]}-v{version}"


MODES = [*(mode_of(*case) for case in STRICT + PERMISSIVE), *OTHERS]


@dataclass
class Place:
    """A broker, or a gateway before one, and what is asked there; names of topics are the place's own."""

    name: str
    address: tuple[str, int]
    metrics_url: str = ""

    def client_id(self, mode: str) -> str:
        """A broker's own quotas are for those who come directly."""
        return f"{self.name}-{mode}"

    def topics(self, mode: str, count: int = 2) -> list[str]:
        return [f"{self.name}-{mode}-{number}" for number in range(count)]

    def create(
        self, mode: str, sizes: Mapping[str, int], version: int = 7, *, validate_only: bool = False
    ) -> Told:
        rows: list[dict[str, Any]] = [
            {"name": name, "num_partitions": size, "replication_factor": 1, "assignments": (), "configs": ()}
            for name, size in sizes.items()
        ]  # fmt: skip
        topics = parts(CREATE_TOPICS, version, "request", "CreatableTopic", *rows)
        return self.ask(
            request(CREATE_TOPICS, version, client=self.client_id(mode), topics=topics, timeout=TIMEOUT, validate_only=validate_only)
        )  # fmt: skip

    def delete(self, mode: str, names: Sequence[str], version: int = 6) -> Told:
        asked: dict[str, Any] = {"topic_names": tuple(names)}
        if version >= 6:
            rows: list[dict[str, Any]] = [{"name": name, "topic_id": None} for name in names]
            asked = {"topics": parts(DELETE_TOPICS, version, "request", "DeleteTopicState", *rows)}
        return self.ask(
            request(DELETE_TOPICS, version, client=self.client_id(mode), timeout=TIMEOUT, **asked)
        )

    def grow(
        self, mode: str, totals: Mapping[str, int], version: int = 3, *, validate_only: bool = False
    ) -> Told:
        rows: list[dict[str, Any]] = [
            {"name": name, "count": total, "assignments": None} for name, total in totals.items()
        ]
        topics = parts(CREATE_PARTITIONS, version, "request", "CreatePartitionsTopic", *rows)
        return self.ask(
            request(CREATE_PARTITIONS, version, client=self.client_id(mode), topics=topics, timeout=TIMEOUT, validate_only=validate_only)
        )  # fmt: skip

    def ask(self, frame: bytes) -> Told:
        """The throttle time in ms, and the error of each topic; every request has a connection of its own."""
        with RawClient(self.address) as client:
            told = client.ask(frame)
        rows = next(
            getattr(told, n) for n in ("topics", "responses", "results") if hasattr(told, n)
        )
        errors = {row.name: int(row.error_code) for row in rows}
        assert len(errors) == len(rows)
        return round(told.throttle_time.total_seconds() * 1000), errors

    def mutate(self, key: int, version: int, mode: str, names: Sequence[str]) -> Told:
        """Thirty partitions of each topic: created, deleted or added."""
        if key == CREATE_TOPICS:
            return self.create(mode, dict.fromkeys(names, SIZE), version)
        if key == DELETE_TOPICS:
            return self.delete(mode, names, version)
        return self.grow(mode, dict.fromkeys(names, SIZE + 1), version)

    def prepare(self, key: int, mode: str) -> list[str]:
        """The topics that a case begins with."""
        names = self.topics(mode)
        if key != CREATE_TOPICS:
            size = SIZE if key == DELETE_TOPICS else 1
            told = self.create(UNBOUNDED, dict.fromkeys(names, size))
            assert told == (0, dict.fromkeys(names, NONE))
        return names

    def limit(self, modes: Sequence[str], rate: float | None) -> None:
        entries = [({"client-id": self.client_id(mode)}, {KEY: rate}) for mode in modes]
        with RawClient(self.address) as client:
            told = client.ask(alteration(*entries))
        assert {entry.error_code for entry in told.entries} == {NONE}

    def until_limited(self, modes: Sequence[str]) -> None:
        """A broker follows its controller, which puts a quota in force first: until it tells of all of them."""
        limited = {(("client-id", self.client_id(mode)),) for mode in modes}
        end_s = time.monotonic() + 60
        with RawClient(self.address) as client:
            while not limited <= described(asked(client, description(strict=False))).keys():
                assert time.monotonic() < end_s
                time.sleep(0.05)

    def is_limited(self, mode: str) -> bool:
        """Whether thirty partitions, and then one, are more than there may be."""
        first, second = self.topics(f"{mode}-{time.monotonic_ns()}")
        told = [self.create(mode, {first: SIZE})[1], self.create(mode, {second: 1})[1]]
        return REFUSED in {error for errors in told for error in errors.values()}


@pytest.fixture(scope="module")
def places(
    kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Place]]:
    """A node with the quotas for clients that come directly, and a gateway with the same."""
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        node_ids="0-2",
        enforce={"CONTROLLER_MUTATION": True},
        source="file",
        http_port=0,
    )
    folder = tmp_path_factory.mktemp("mutations")
    with GatewayProcess(folder, config=config, quotas="") as gateway:
        found = {
            "broker": Place("broker", kafka.nodes[0].address),
            "gateway": Place("gateway", ("127.0.0.1", gateway.first_port + 2), gateway.http_url),
        }
        for place in found.values():
            place.limit(MODES, RATE)
        found["broker"].until_limited(MODES)
        yield found
        found["broker"].limit(MODES, None)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, places: dict[str, Place]) -> Place:
    return places[request.param]


@pytest.fixture(scope="module")
def strict(places: dict[str, Place]) -> dict[tuple[str, str], tuple[Told, Told, float]]:
    """All strict cases at once: what two topics were told, then the refused one when its wait is over, and the ms until the first answer."""

    def tried(place: Place, key: int, version: int) -> tuple[Told, Told, float]:
        mode = mode_of(key, version)
        names = place.prepare(key, mode)
        began_s = time.monotonic()
        told = place.mutate(key, version, mode, names)
        took_ms = ms_since(began_s)
        refused = [name for name, error in told[1].items() if error == REFUSED]
        time.sleep(told[0] / 1000)
        again = place.mutate(key, version, mode, refused)
        return told, again, took_ms

    cases = [(place, *case) for place in places.values() for case in STRICT]
    with ThreadPoolExecutor(len(cases)) as threads:
        found = threads.map(lambda case: tried(*case), cases)
        return {
            (place.name, mode_of(key, version)): outcome
            for (place, key, version), outcome in zip(cases, found, strict=True)
        }


@pytest.mark.parametrize(("key", "version"), STRICT, ids=str)
def test_a_strict_request_has_one_topic_carried_out_and_one_refused(
    strict: dict[tuple[str, str], tuple[Told, Told, float]], place: Place, key: int, version: int
) -> None:
    mode = mode_of(key, version)
    (wait_ms, errors), again, took_ms = strict[place.name, mode]

    assert sorted(errors.values()) == [NONE, REFUSED]
    assert STRICT_MS - took_ms - INEXACT_MS < wait_ms <= STRICT_MS
    (refused,) = (name for name, error in errors.items() if error == REFUSED)
    assert again == (0, {refused: NONE})


@pytest.mark.parametrize(("key", "version"), PERMISSIVE, ids=str)
def test_a_permissive_request_is_carried_out_whole_and_its_client_waits(
    place: Place, key: int, version: int
) -> None:
    mode = mode_of(key, version)
    names = place.prepare(key, mode)

    began_s = time.monotonic()
    wait_ms, errors = place.mutate(key, version, mode, names)
    took_ms = ms_since(began_s)

    assert errors == dict.fromkeys(names, NONE)
    # Less what went by until the answer was made.
    assert PERMISSIVE_MS - took_ms - INEXACT_MS < wait_ms <= PERMISSIVE_MS


@pytest.mark.parametrize(("key", "version"), [STRICT[1], STRICT[3], STRICT[4], PERMISSIVE[1], PERMISSIVE[3], PERMISSIVE[5]], ids=str)  # fmt: skip
def test_a_client_without_a_quota_never_waits(place: Place, key: int, version: int) -> None:
    names = place.prepare(key, f"{UNBOUNDED}-{mode_of(key, version)}")

    assert place.mutate(key, version, UNBOUNDED, names) == (0, dict.fromkeys(names, NONE))


def test_topics_that_fail_cost_nothing_beside_those_that_are_refused(place: Place) -> None:
    """Each topic of a request is judged for itself; one counter is for creations, growths and deletions."""
    there, new, more = (f"{place.name}-mixed-{word}" for word in ("there", "new", "more"))
    assert place.create(UNBOUNDED, {there: 3})[1] == {there: NONE}

    # What is there costs nothing, so that the new one finds a full bucket.
    began_s = time.monotonic()
    assert place.create("mixed", {there: 100, new: BIG}) == (0, {there: EXISTS, new: NONE})
    wait_ms, errors = place.create("mixed", {there: 1, more: 1})
    assert errors == {there: EXISTS, more: REFUSED}
    assert OWED_MS - ms_since(began_s) - INEXACT_MS < wait_ms <= OWED_MS

    wait_ms, errors = place.grow("mixed", {there: 2, new: BIG + 1, "nowhere": 5})
    assert errors == {there: INVALID_PARTITIONS, new: REFUSED, "nowhere": UNKNOWN}
    assert OWED_MS - ms_since(began_s) - INEXACT_MS < wait_ms <= OWED_MS
    assert place.delete("mixed", ["nowhere", new])[1] == {"nowhere": UNKNOWN, new: REFUSED}
    assert place.delete("mixed", ["nowhere"]) == (0, {"nowhere": UNKNOWN})
    # None of it was carried out.
    assert place.create(UNBOUNDED, {more: 1})[1] == {more: NONE}
    assert place.grow(UNBOUNDED, {new: BIG})[1] == {new: INVALID_PARTITIONS}


def test_what_is_only_validated_is_not_charged_by_a_gateway(places: dict[str, Place]) -> None:
    """KIP-599 says so, and a gateway does; a controller in KRaft mode charges it all the same."""
    waits = {}
    for name, place in places.items():
        first, second = place.topics("validated")
        for _ in range(2):
            place.create("validated", {first: BIG, second: BIG}, validate_only=True)
        told = place.create("validated", {first: 1, second: 1}, validate_only=True)
        waits[name] = told[0]
        if name == "gateway":
            assert told == (0, {first: NONE, second: NONE})
            assert place.create("validated", {first: 1})[1] == {first: NONE}
            grown = place.grow("validated", {first: SIZE}, validate_only=True)
            assert grown == (0, {first: NONE})
            assert place.grow("validated", {first: 2})[1] == {first: NONE}
    assert waits["broker"] > 0 == waits["gateway"]


def test_a_quota_counts_from_when_it_is_set_until_it_is_removed(place: Place) -> None:
    mode = "set"
    assert not place.is_limited(mode)
    place.limit([mode], 0.5)  # thirty partitions leave a minute's debt
    for wanted in (True, False):
        end_s = time.monotonic() + 60  # a broker follows its controller
        while place.is_limited(mode) != wanted:
            assert time.monotonic() < end_s, wanted
            time.sleep(0.3)
        place.limit([mode], None)


def test_the_metrics_of_a_counter_come_with_its_first_charge(places: dict[str, Place]) -> None:
    place = places["gateway"]
    tags = '{client_id="gateway-metric"}'
    first, second = place.topics("metric")
    assert tags not in _page(place)

    place.create("metric", {first: BIG})
    assert place.create("metric", {second: 1})[1] == {second: REFUSED}

    page = _page(place)
    tokens, rate, throttle_ms = (
        float(re.search(rf"^kafka_server_controllermutation_{name}{re.escape(tags)} (\S+)$", page, re.MULTILINE)[1])  # type: ignore[index]
        for name in ("tokens", "mutation_rate", "throttle_time")
    )  # fmt: skip
    assert RATE * WINDOWS - BIG <= tokens < 0
    assert 0 < rate <= BIG / 30
    assert 0 < throttle_ms <= OWED_MS
    limit = (
        f'kvota_quota_limit{{quota_type="CONTROLLER_MUTATION",client_id="gateway-metric"}} {RATE:g}'
    )
    assert limit in page
    place.limit(["metric"], 2 * RATE)
    assert limit.replace(f" {RATE:g}", f" {2 * RATE:g}") in _page(place)


def ms_since(began_s: float) -> float:
    return (time.monotonic() - began_s) * 1000


def _page(place: Place) -> str:
    with urllib.request.urlopen(f"{place.metrics_url}/metrics", timeout=60) as answer:
        return str(answer.read().decode())
