"""Answers of real brokers that refuse a setting of their listeners: Kafka 4.3.1 and 3.9.2.

Each line of the files is one answer, byte for byte; the first names the broker and the ports of all its
listeners, which were on 127.0.0.2. Nothing was changed: every request only asked for a validation.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kvota.testing.kafka_messages import from_frame
from kvota.wire.apis import name_of
from kvota.wire.error_texts import HIDDEN, hide_addresses

FOLDER = Path(__file__).parent
HOST = "127.0.0.2"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One answer of a broker."""

    kafka: str
    key: int
    version: int
    what: str
    answer: bytes
    ports: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.kafka}-{name_of(self.key)}-v{self.version}-{self.what.replace(' ', '_')}"

    def read(self, answer: bytes) -> Any:
        return from_frame(answer, self.key, self.version, "response")


def recorded(kafka: str) -> list[Recorded]:
    about, *lines = (FOLDER / f"config-errors-{kafka}.jsonl").read_text().splitlines()
    ports = tuple(json.loads(about)["ports"])
    return [
        Recorded(
            kafka, one["key"], one["version"], one["what"], bytes.fromhex(one["answer"]), ports
        )
        for one in map(json.loads, lines)
    ]


ALL = [*recorded("4.3.1"), *recorded("3.9.2")]
NAMING = [one for one in ALL if one.what != "accepted"]
ACCEPTED = [one for one in ALL if one.what == "accepted"]


@pytest.mark.parametrize("one", NAMING, ids=str)
def test_a_real_refusal_names_no_listener_any_more(one: Recorded) -> None:
    assert all(f"{HOST}:{port}".encode() in one.answer for port in one.ports)

    told = hide_addresses(one.answer, one.key, one.version, ())

    assert HOST.encode() not in told
    assert [port for port in one.ports if str(port).encode() in told] == []


@pytest.mark.parametrize("one", NAMING, ids=str)
def test_everything_else_of_a_real_refusal_stays(one: Recorded) -> None:
    told = one.read(hide_addresses(one.answer, one.key, one.version, ()))

    before = one.read(one.answer)
    texts = [re.sub(rf"{HOST}:\d+", HIDDEN, r.error_message) for r in before.responses]
    assert [r.error_message for r in told.responses] == texts
    assert [(r.error_code, r.resource_type, r.resource_name) for r in told.responses] == [
        (r.error_code, r.resource_type, r.resource_name) for r in before.responses
    ]
    assert told.throttle_time == before.throttle_time


@pytest.mark.parametrize("one", ACCEPTED, ids=str)
def test_an_answer_without_an_error_is_the_same_bytes(one: Recorded) -> None:
    assert hide_addresses(one.answer, one.key, one.version, ()) is one.answer
