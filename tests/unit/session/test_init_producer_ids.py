"""Requests for producer ids: counted by user and kind, passed on as they are, and said where they are a storm."""

import pytest

from kvota.session.init_producer_ids import InitProducerIds
from kvota.testing import frames
from kvota.testing.stage import Cluster, Stage

_HOUR_MS = 3_600_000
_INIT = 22


def request(version: int, transactional_id: str | None, *, tags: bytes = b"\0") -> bytes:
    return frames.request(_INIT, version, tags=tags, transactional_id=transactional_id)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4, 5])
def test_each_is_counted_by_its_kind_and_goes_on_as_it_is(version: int) -> None:
    stage = Stage(Cluster())
    for transactional_id in (None, "tx", None):
        asked = request(version, transactional_id)
        assert stage.client(asked) == asked
        answer = frames.answer(_INIT, version)
        assert stage.broker(answer) == answer
    counts = stage.cluster.shared.init_producer_ids.users["ANONYMOUS"]
    assert (counts.idempotent, counts.transactional) == (2, 1)
    apis = stage.cluster.shared.api_counts.all()
    assert apis[_INIT].requests == 3


def test_one_that_comes_in_parts_is_counted_once() -> None:
    stage = Stage(Cluster())
    asked = request(4, "t" * 300)
    assert stage.client(asked[:9], asked[9:40]) == b""
    assert stage.client(asked[40:]) == asked
    counts = stage.cluster.shared.init_producer_ids.users["ANONYMOUS"]
    assert (counts.idempotent, counts.transactional) == (0, 1)


def test_whom_the_broker_lets_in_is_counted_and_nobody_before() -> None:
    stage = Stage(Cluster())
    stage.cluster.shared.asks_for_logins = True
    stage.client(request(4, None))
    assert not stage.cluster.shared.init_producer_ids.users


def test_who_has_no_place_is_counted_with_the_others_and_sums_never_fall() -> None:
    inits = InitProducerIds(users_max=2)
    for number in range(5):
        inits.add(f"user {number}", 0, is_transactional=number == 4)
    assert list(inits.users) == ["user 0", "user 1"]
    assert (inits.others.idempotent, inits.others.transactional) == (2, 1)
    assert inits.sweep(_HOUR_MS, lambda _: None, at_most=10) == []
    assert not inits.users
    assert (inits.others.idempotent, inits.others.transactional) == (4, 1)


def test_a_storm_is_said_once_an_hour() -> None:
    inits = InitProducerIds()

    def storm(now_ms: int) -> None:
        for _ in range(11):
            inits.add("batch", now_ms, is_transactional=False)
            inits.add("transactions", now_ms, is_transactional=True)
        for _ in range(10):
            inits.add("orders", now_ms, is_transactional=False)

    storm(0)
    assert inits.sweep(1_000, lambda _: 10.0, at_most=10) == [("batch", 11, 10.0)]
    assert inits.sweep(2_000, lambda _: 10.0, at_most=10) == []
    storm(_HOUR_MS - 10)
    assert inits.sweep(_HOUR_MS + 1_000, lambda _: None, at_most=10) == []
    assert inits.sweep(_HOUR_MS + 1_000, lambda _: 10.0, at_most=10) == [("batch", 11, 10.0)]
