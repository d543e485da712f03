"""Configured quotas: an immutable mapping, changed by batches."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvota.model.configured_quotas import ConfiguredQuotas, QuotaChange
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.model.quota_type import QuotaType

P, F = QuotaType.PRODUCE, QuotaType.FETCH
ALICE, BOB = QuotaEntity(user="alice"), QuotaEntity(user="bob")


def test_what_is_given_is_what_is_there() -> None:
    quotas = ConfiguredQuotas({ALICE: {P: 1000, F: 2.5}, BOB: {}})

    assert quotas.entries() == {ALICE: {P: 1000.0, F: 2.5}}
    assert len(quotas) == 1
    assert (quotas.limit(ALICE, F), quotas.limit(ALICE, QuotaType.REQUEST)) == (2.5, None)
    assert quotas.limit(BOB, P) is None


def test_a_batch_sets_replaces_and_removes() -> None:
    quotas = ConfiguredQuotas({ALICE: {P: 1.0, F: 2.0}, BOB: {P: 3.0}})

    after = quotas.with_changes(
        [
            QuotaChange(ALICE, P, 10.0),
            QuotaChange(ALICE, F, None),
            QuotaChange(BOB, P, None),
            QuotaChange(QuotaEntity(client_id=DEFAULT), F, 7),
        ]
    )

    assert after.entries() == {ALICE: {P: 10.0}, QuotaEntity(client_id=DEFAULT): {F: 7.0}}
    assert quotas.entries() == {ALICE: {P: 1.0, F: 2.0}, BOB: {P: 3.0}}


def test_the_last_change_of_an_entity_counts() -> None:
    changes = [QuotaChange(ALICE, P, 1.0), QuotaChange(ALICE, P, None), QuotaChange(BOB, P, None)]

    after = ConfiguredQuotas().with_changes([*changes, QuotaChange(BOB, P, 4.0)])

    assert after == ConfiguredQuotas({BOB: {P: 4.0}})


def test_entities_keep_their_order() -> None:
    quotas = ConfiguredQuotas({BOB: {P: 1.0}, ALICE: {P: 1.0}})

    after = quotas.with_changes([QuotaChange(BOB, F, 2.0), QuotaChange(QuotaEntity("c"), P, 1.0)])

    assert list(after.entries()) == [BOB, ALICE, QuotaEntity("c")]


def test_nobody_can_change_them_in_place() -> None:
    given_limits = {P: 1.0}
    quotas = ConfiguredQuotas({ALICE: given_limits})

    given_limits[P] = 2.0

    assert quotas.limit(ALICE, P) == 1.0
    with pytest.raises(TypeError):
        quotas.entries()[ALICE][P] = 3.0  # type: ignore[index]
    with pytest.raises(TypeError):
        quotas.entries()[BOB] = {}  # type: ignore[index]


def test_equal_quotas_are_equal_in_any_order() -> None:
    one = ConfiguredQuotas({ALICE: {P: 1.0}, BOB: {P: 2.0, F: 1.0}})

    assert one == ConfiguredQuotas({BOB: {F: 1.0, P: 2.0}, ALICE: {P: 1.0}})
    assert one != ConfiguredQuotas({ALICE: {P: 1.0}})
    assert one != {ALICE: {P: 1.0}}


LIMITS = st.dictionaries(st.sampled_from([P, F, QuotaType.REQUEST]), st.sampled_from([1.0, 2.0]))
QUOTAS = st.dictionaries(
    st.sampled_from([ALICE, BOB, QuotaEntity(client_id="c"), QuotaEntity(user=DEFAULT)]), LIMITS
).map(ConfiguredQuotas)


@given(old=QUOTAS, new=QUOTAS)
def test_the_difference_leads_from_one_to_the_other(
    old: ConfiguredQuotas, new: ConfiguredQuotas
) -> None:
    changes = old.changes_to(new)

    assert old.with_changes(changes) == new
    assert bool(changes) == (old != new)
    assert len({(change.entity, change.quota_type) for change in changes}) == len(changes)


def test_ten_thousand_changes_are_one_batch() -> None:
    entities = [QuotaEntity(user=f"user-{number}") for number in range(10_000)]
    quotas = ConfiguredQuotas({entity: {P: 1.0} for entity in entities})
    read = 0

    def changes() -> Iterator[QuotaChange]:
        nonlocal read
        for entity in entities:
            read += 1
            yield QuotaChange(entity, P, 2.0)

    after = quotas.with_changes(changes())

    assert {limits[P] for limits in after.entries().values()} == {2.0}
    assert {limits[P] for limits in quotas.entries().values()} == {1.0}
    assert read == len(entities)
