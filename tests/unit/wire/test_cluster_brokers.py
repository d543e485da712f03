"""Brokers out of Metadata answers of every version, whatever stands behind them."""

import pytest

from kvota.client.cluster_metadata import ClusterMetadata
from kvota.client.messages import decode
from kvota.model.errors import ProtocolError
from kvota.testing.frames import METADATA, metadata_answer
from kvota.wire.address_rewrite import BROKERS_MAX
from kvota.wire.apis import APIS
from kvota.wire.cluster_brokers import read_brokers_in_steps
from kvota.wire.steps import STEP_PARTS, at_once

LOWEST, HIGHEST = APIS[METADATA].versions
BROKERS = [(1, "one.example", 9092), (7, "seven.example", 9093)]


@pytest.mark.parametrize("version", range(LOWEST, HIGHEST + 1))
def test_every_version_is_read_as_by_its_schema(version: int) -> None:
    frame = metadata_answer(version, correlation=1, brokers=BROKERS)[4:]

    told = ClusterMetadata.without_topics(at_once(read_brokers_in_steps(frame, version)))

    assert told == ClusterMetadata.of(decode(METADATA, version, frame))
    assert list(told.brokers) == [1, 7]


def test_topics_are_not_read() -> None:
    frame = metadata_answer(12, correlation=1, brokers=BROKERS)[4:]

    told = at_once(read_brokers_in_steps(frame + b"\xff" * 100, 12))

    assert [broker.node_id for broker in told.brokers] == [1, 7]


def test_a_cluster_of_many_is_read_a_little_at_a_time_and_one_of_too_many_refused() -> None:
    many = [(number, "h", 9092) for number in range(BROKERS_MAX + 1)]

    fits = metadata_answer(12, correlation=1, brokers=many[:-1])[4:]
    assert sum(1 for _ in read_brokers_in_steps(fits, 12)) >= BROKERS_MAX // STEP_PARTS

    beyond = metadata_answer(12, correlation=1, brokers=many)[4:]
    with pytest.raises(ProtocolError, match="1001 brokers; at most 1000 are taken"):
        at_once(read_brokers_in_steps(beyond, 12))


def test_what_ends_before_its_end_is_refused() -> None:
    frame = metadata_answer(12, correlation=1, brokers=BROKERS)[4:]

    for end in range(4, 40):
        with pytest.raises(ProtocolError):
            at_once(read_brokers_in_steps(frame[:end], 12))
