"""How many connections an address may begin each second: Kafka's arithmetic, whose limit counts, and memory."""

from collections.abc import Mapping
from math import nan

import pytest

from kvota.engine.sampled_rate import SampledRate
from kvota.gateway.connection_rates import (
    ANY_NODE,
    COUNTERS_MAX,
    UNLIMITED,
    ConnectionRates,
)
from kvota.gateway.settings import ConnectionRateSettings
from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.quota_entity import DEFAULT, EntityName, QuotaEntity
from kvota.model.quota_window import QuotaWindow
from kvota.testing.manual_clock import START_MS

KEY = "connection_creation_rate"
HOST, OTHER = "192.0.2.1", "192.0.2.2"
# 11 samples of a second: 10 s of the limit at once.
WINDOW = QuotaWindow(11, 1000)


def rates(limits: Mapping[EntityName, float], window: QuotaWindow = WINDOW) -> ConnectionRates:
    made = ConnectionRates(ConnectionRateSettings(window=window, is_enforced=True))
    made.replace(quotas(limits))
    return made


def quotas(limits: Mapping[EntityName, float]) -> ClientQuotas:
    return ClientQuotas({QuotaEntity(ip=ip): {KEY: limit} for ip, limit in limits.items()})


def begun(
    of: ConnectionRates, host: str, count: int, *, at_ms: int = START_MS, node: int = 1
) -> int:
    """Begin so many connections; returns how many were let in."""
    return sum(of.throttle_ms(host, node, at_ms) == 0 for _ in range(count))


def test_so_many_may_begin_at_once_as_fit_into_the_window() -> None:
    assert begun(rates({HOST: 5.0}), HOST, 100) == 50


def test_who_is_over_is_kept_for_the_throttle_time_and_a_sample_at_most() -> None:
    over = rates({HOST: 5.0})
    begun(over, HOST, 50)

    # 51 in 10 s are 0.1 a second too many: 200 ms at 5 a second.
    assert over.throttle_ms(HOST, 1, START_MS) == 200
    assert rates_of_one_sample().throttle_ms(HOST, 1, START_MS) == 100


def rates_of_one_sample() -> ConnectionRates:
    made = rates({HOST: 1.0}, QuotaWindow(2, 100))
    begun(made, HOST, 1)
    return made


def test_a_connection_that_is_refused_does_not_count() -> None:
    many, none = rates({HOST: 5.0}), rates({HOST: 5.0})
    for of in (many, none):
        begun(of, HOST, 50)
    begun(many, HOST, 10_000)

    later = START_MS + 11_000
    assert begun(many, HOST, 100, at_ms=later) == begun(none, HOST, 100, at_ms=later) > 0


def test_it_is_the_sampled_rate_of_kafka() -> None:
    of, by_hand = rates({HOST: 3.0}), SampledRate(WINDOW, 3.0, born_ms=START_MS)
    for number in range(400):
        now_ms = START_MS + number * 137
        throttle_ms = by_hand.charge(1, now_ms)
        if throttle_ms > 0:
            by_hand.charge(-1, now_ms)
        assert of.throttle_ms(HOST, 1, now_ms) == max(0, min(throttle_ms, 1000))


def test_each_broker_and_each_address_counts_for_itself() -> None:
    of = rates({DEFAULT: 1.0})

    assert [begun(of, HOST, 20), begun(of, OTHER, 20), begun(of, HOST, 20, node=2)] == [10, 10, 10]


def test_an_address_of_its_own_goes_before_the_default() -> None:
    of = rates({DEFAULT: 1.0, HOST: 2.0})

    assert (of.limit(HOST), of.limit(OTHER)) == (2, 1)


@pytest.mark.parametrize(
    ("written", "host"),
    [("::1", "::1"), ("[::1]", "::1"), ("0:0::1", "::1"), (HOST, f"::ffff:{HOST}")],
)
def test_one_address_in_two_spellings(written: str, host: str) -> None:
    assert rates({written: 7.0}).limit(host) == 7


@pytest.mark.parametrize("name", ["[::1", "::1]", f"[{HOST}]", "::1%lo"])
def test_what_is_no_address_is_looked_up(name: str) -> None:
    of = rates({name: 7.0})

    assert {of.limit(host) for host in ("::1", HOST)} == {UNLIMITED}


def test_without_a_quota_nobody_is_counted() -> None:
    of = rates({OTHER: 1.0})

    assert begun(of, HOST, 1_000) == 1_000
    assert not of._counters


@pytest.mark.parametrize(
    ("value", "limit"), [(2.0**31 - 1, UNLIMITED), (1.0000001, 1), (2.9999999, 2)]
)
def test_a_value_is_cut_to_a_whole_number(value: float, limit: int) -> None:
    assert rates({HOST: value}).limit(HOST) == limit


def test_a_rate_that_is_no_number_lets_nobody_in_as_on_a_broker() -> None:
    of = rates({HOST: nan})

    assert of.throttle_ms(HOST, 1, START_MS) == 1_000


def test_a_limit_that_changes_counts_from_the_next_connection_on() -> None:
    of = rates({HOST: 1.0})
    assert begun(of, HOST, 100) == 10

    of.replace(quotas({HOST: 3.0}))
    assert begun(of, HOST, 100) == 20
    of.replace(quotas({}))
    assert begun(of, HOST, 100) == 100
    of.replace(quotas({DEFAULT: 3.0}))
    assert begun(of, HOST, 100) == 0


def test_names_are_looked_up_by_others_and_remembered() -> None:
    of = ConnectionRates(ConnectionRateSettings(is_enforced=True))

    assert of.replace(quotas({"batch.example": 2.0, HOST: 1.0})) == {"batch.example"}
    assert of.limit(OTHER) == UNLIMITED
    of.learn({"batch.example": OTHER, "gone.example": "192.0.2.9"})
    assert of.limit(OTHER) == 2
    assert of.replace(quotas({"batch.example": 3.0})) == set()
    assert (of.limit(OTHER), of.limit(HOST)) == (3, UNLIMITED)


def test_a_change_touches_nobody_else() -> None:
    of = rates({DEFAULT: 9.0, HOST: 1.0, "batch.example": 2.0})
    of.learn({"batch.example": OTHER})

    changed = of.change(
        [
            KeyChange(QuotaEntity(ip=HOST), KEY, 5.0),
            KeyChange(QuotaEntity(user="alice"), "producer_byte_rate", 7.0),
            KeyChange(QuotaEntity(ip="new.example"), KEY, 4.0),
            KeyChange(QuotaEntity(ip="gone.example"), KEY, 4.0),
            KeyChange(QuotaEntity(ip="gone.example"), KEY, None),
            KeyChange(QuotaEntity(ip=DEFAULT), KEY, None),
        ]
    )

    assert changed == {"new.example"}
    assert [of.limit(host) for host in (HOST, OTHER, "192.0.2.77")] == [5, 2, UNLIMITED]
    assert of.change([KeyChange(QuotaEntity(ip="batch.example"), KEY, 3.0)]) == set()
    assert of.limit(OTHER) == 3


def test_of_two_names_of_one_address_the_last_change_counts() -> None:
    of = rates({"a.example": 1.0, "b.example": 2.0})
    of.learn({"a.example": OTHER})
    of.learn({"b.example": OTHER})
    assert of.limit(OTHER) == 2

    of.change([KeyChange(QuotaEntity(ip="a.example"), KEY, 3.0)])
    assert of.limit(OTHER) == 3
    of.change([KeyChange(QuotaEntity(ip="a.example"), KEY, None)])
    assert of.limit(OTHER) == 2
    of.change([KeyChange(QuotaEntity(ip="b.example"), KEY, None)])
    assert of.limit(OTHER) == UNLIMITED


def test_whose_address_is_not_known_is_not_counted() -> None:
    assert rates({DEFAULT: 1.0}).throttle_ms("?", 1, START_MS) == 0


def test_a_flood_of_addresses_takes_bounded_memory() -> None:
    of = rates({DEFAULT: 1.0})
    for number in range(COUNTERS_MAX + 5_000):
        of.throttle_ms(f"2001:db8::{number:x}", 1, START_MS)

    assert len(of._counters) <= COUNTERS_MAX


def test_addresses_that_have_gone_are_forgotten_while_others_come() -> None:
    of = rates({DEFAULT: 1.0})
    for number in range(1_000):
        of.throttle_ms(f"2001:db8::{number:x}", 1, START_MS)
    for number in range(1_000):
        of.throttle_ms(f"2001:db8:1::{number:x}", 1, START_MS + 60_000)

    assert len(of._counters) == 1_000


def test_by_a_port_of_all_nodes_so_many_may_begin_as_at_all_brokers_together() -> None:
    of = rates({HOST: 5.0})

    assert sum(of.throttle_ms(HOST, ANY_NODE, START_MS, 3) == 0 for _ in range(500)) == 150
    assert begun(of, HOST, 100) == 50  # those that have called a node are counted at it, too
    assert rates({}).throttle_ms(HOST, ANY_NODE, START_MS, 3) == 0
