"""Quotas by Kafka's keys: what of them the engine gets, and that batches lead from one table to another."""

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.store.test_quota_document import changes

from kvota.model.client_quotas import (
    UNLIMITED,
    ClientQuotas,
    KeyChange,
    of_engine,
)
from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType

ALICE, IP = QuotaEntity("alice"), QuotaEntity(ip="10.1.2.3")


def test_the_engine_gets_quota_types_and_no_ips() -> None:
    quotas = ClientQuotas(
        {
            ALICE: {"producer_byte_rate": 5.0, "controller_mutation_rate": 0.5},
            IP: {"connection_creation_rate": 9.0},
        }
    )

    assert quotas.configured() == ConfiguredQuotas(
        {ALICE: {QuotaType.PRODUCE: 5.0, QuotaType.CONTROLLER_MUTATION: 0.5}}
    )
    assert ClientQuotas.of(quotas.configured()).entries() == {ALICE: quotas.entries()[ALICE]}


@pytest.mark.parametrize("value", [nan, inf])
def test_what_limits_nothing_is_a_limit_that_nobody_reaches(value: float) -> None:
    changed = list(of_engine([KeyChange(ALICE, "controller_mutation_rate", value)]))

    assert changed == [QuotaChange(ALICE, QuotaType.CONTROLLER_MUTATION, UNLIMITED)]


def test_a_limit_beyond_a_long_stays_what_it_is() -> None:
    (changed,) = of_engine([KeyChange(ALICE, "controller_mutation_rate", 2.0**70)])

    assert changed.limit == 2.0**70


def test_what_is_removed_is_removed_from_the_engine() -> None:
    assert list(of_engine([KeyChange(ALICE, "producer_byte_rate", None)])) == [
        QuotaChange(ALICE, QuotaType.PRODUCE, None)
    ]


@given(st.lists(changes(), max_size=8), st.lists(changes(), max_size=8))
def test_the_batch_between_two_tables_leads_from_one_to_the_other(
    first: list[KeyChange], second: list[KeyChange]
) -> None:
    before, after = ClientQuotas().with_changes(first), ClientQuotas().with_changes(second)

    assert before.with_changes(before.changes_to(after)) == after
    assert not after.changes_to(after)


def test_two_tables_with_no_number_are_equal() -> None:
    assert ClientQuotas({ALICE: {"k": float("nan")}}) == ClientQuotas({ALICE: {"k": -float("nan")}})
