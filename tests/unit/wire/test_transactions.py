"""Requests of transactions with a producer id, against kio's classes; hostile bytes end in a ProtocolError."""

from contextlib import suppress
from random import Random

import pytest

from kvota.model.errors import ProtocolError
from kvota.testing import frames
from kvota.testing.frames import HEADER_TAGS, throttle_of
from kvota.testing.kafka_messages import RandomMessages, mutate
from kvota.testing.transaction_frames import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    APIS,
    BATCHED_FROM,
    COMMIT_OFFSETS,
    ONE_TRANSACTION,
    TOPICS,
    Transaction,
    errors_of,
    of_transaction,
    of_transactions,
)
from kvota.wire import transactions
from kvota.wire.encode import encode_count
from kvota.wire.headers import is_flexible
from kvota.wire.producer_ids import PARTITIONS_MAX
from kvota.wire.steps import at_once

ENDS = [0, 1, -1, 2**63 - 1, -(2**63)]


def refusal(frame: bytes, key: int, version: int) -> bytes:
    return at_once(
        transactions.refusal_in_steps(
            frame, key=key, version=version, correlation_id=9, error_code=14, throttle_ms=1234
        )
    )


@pytest.mark.parametrize(("key", "version"), ONE_TRANSACTION)
def test_the_id_of_every_version_is_kios(key: int, version: int) -> None:
    assert transactions.has_one_transaction(key, version)
    for producer_id in ENDS:
        for client in (None, "", "app"):
            frame = of_transaction(key, version, producer_id, client=client)
            assert transactions.producer_id(frame, key) == producer_id
    if is_flexible(key, version):
        assert transactions.producer_id(
            of_transaction(key, version, 77, tags=HEADER_TAGS), key
        ) == (77)


@pytest.mark.parametrize(("key", "version"), ONE_TRANSACTION)
def test_the_id_of_random_requests_is_kios(key: int, version: int) -> None:
    messages = RandomMessages(Random(version))
    for _ in range(50):
        asked = messages.payload(key, version, "request")
        frame = frames.to_frame(asked)
        prefix = "v3_and_below_" if key == ADD_PARTITIONS else ""
        assert transactions.producer_id(frame, key) == getattr(asked, f"{prefix}producer_id")


@pytest.mark.parametrize("version", [4, 5])
def test_several_transactions_have_an_id_each_but_those_that_are_only_verified(
    version: int,
) -> None:
    assert not transactions.has_one_transaction(ADD_PARTITIONS, version)
    some = [
        Transaction(5),
        Transaction(6, verify_only=True),
        Transaction(-1, topics={}),
        Transaction(5),
    ]
    frame = of_transactions(some, version=version)
    assert at_once(transactions.producer_ids_in_steps(frame, version)) == [5, -1, 5]
    messages = RandomMessages(Random(version))
    for _ in range(50):
        asked = messages.payload(ADD_PARTITIONS, version, "request")
        found = at_once(transactions.producer_ids_in_steps(frames.to_frame(asked), version))
        assert found == [one.producer_id for one in asked.transactions if not one.verify_only]


@pytest.mark.parametrize(("key", "version"), APIS)
def test_a_refusal_has_the_error_for_all_that_the_request_names(key: int, version: int) -> None:
    frame = of_transaction(key, version, 5)

    told = refusal(frame, key, version)

    assert int.from_bytes(told[4:8], "big") == 9
    assert throttle_of(told, key, version) == 1234
    one_for_all = key == ADD_OFFSETS or (key == ADD_PARTITIONS and version >= BATCHED_FROM)
    named = {(topic, number): 14 for topic, numbers in TOPICS.items() for number in numbers}
    assert errors_of(told, key, version) == ({("", -1): 14} if one_for_all else named)


@pytest.mark.parametrize(("key", "version"), APIS)
def test_a_refusal_of_a_random_request_can_be_read(key: int, version: int) -> None:
    messages = RandomMessages(Random(version))
    for _ in range(30):
        frame = messages.frame(key, version, "request")
        assert set(errors_of(refusal(frame, key, version), key, version).values()) <= {14}


def read(frame: bytes, key: int, version: int) -> None:
    """All that the gateway reads of one."""
    if transactions.has_one_transaction(key, version):
        transactions.producer_id(frame, key)
    else:
        at_once(transactions.producer_ids_in_steps(frame, version))
    refusal(frame, key, version)


@pytest.mark.parametrize(("key", "version"), APIS)
def test_a_cut_request_is_a_protocol_error(key: int, version: int) -> None:
    whole = of_transaction(key, version, 5)
    # What stands behind the id of an AddOffsetsToTxn is not asked for.
    end = 24 if key == ADD_OFFSETS else len(whole)
    for length in range(14, end):
        cut = frames.resized(whole[:length])
        with pytest.raises(ProtocolError):
            read(cut, key, version)


@pytest.mark.parametrize(("key", "version"), APIS)
def test_hostile_bytes_are_a_protocol_error_or_read(key: int, version: int) -> None:
    rng, whole = Random(version), of_transaction(key, version, 5)
    for _ in range(300):
        frame = mutate(whole, rng)
        with suppress(ProtocolError):
            read(frame, key, version)


@pytest.mark.parametrize(
    ("key", "version"), [(ADD_PARTITIONS, 0), (ADD_PARTITIONS, 3), (COMMIT_OFFSETS, 5)]
)
def test_a_refusal_takes_several_steps(key: int, version: int) -> None:
    frame = of_transaction(key, version, 5, topics={"orders": range(1000)})
    steps = transactions.refusal_in_steps(
        frame, key=key, version=version, correlation_id=1, error_code=14, throttle_ms=0
    )

    assert sum(1 for _ in steps) >= 3
    assert len(errors_of(refusal(frame, key, version), key, version)) == 1000


def test_so_do_several_transactions() -> None:
    frame = of_transactions(Transaction(number, topics={}) for number in range(1000))
    assert sum(1 for _ in transactions.producer_ids_in_steps(frame, 5)) >= 3


def test_what_nobody_asks_for_is_refused_before_it_is_read() -> None:
    too_many = PARTITIONS_MAX + 1
    head = of_transaction(ADD_PARTITIONS, 0, 5, topics={})[:-4]
    some = head + (1).to_bytes(4, "big") + b"\0\1x" + too_many.to_bytes(4, "big")
    with pytest.raises(ProtocolError, match="more items than one message may have"):
        refusal(frames.resized(some + bytes(4 * too_many)), ADD_PARTITIONS, 0)
    count = encode_count(too_many, flexible=True)
    some = of_transactions((), version=5)[:-2] + count + bytes(14 * too_many)
    with pytest.raises(ProtocolError, match="more items than one message may have"):
        at_once(transactions.producer_ids_in_steps(frames.resized(some), 5))
