"""A limit goes down where an entity's clients have less afterwards, whichever level it comes from."""

import pytest

from kvota.model.client_quotas import ClientQuotas, KeyChange
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.planning.lowering import limit_of, lowerings, too_far
from kvota.planning.wanted_quotas import moved

RATE = "producer_byte_rate"
U, C = "u", "c"
# Kafka's eight levels of a client, from the most specific on.
LEVELS = (
    QuotaEntity(U, C),
    QuotaEntity(U, DEFAULT),
    QuotaEntity(U),
    QuotaEntity(DEFAULT, C),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(None, C),
    QuotaEntity(None, DEFAULT),
)


def test_a_pair_by_name_takes_the_next_level_that_is_there() -> None:
    for place in range(len(LEVELS)):
        quotas = ClientQuotas(
            {level: {RATE: float(number + 1)} for number, level in enumerate(LEVELS[place:], place)}
        )
        assert limit_of(quotas, LEVELS[0], RATE) == place + 1
    assert limit_of(ClientQuotas(), LEVELS[0], RATE) is None


@pytest.mark.parametrize(
    ("entity", "below"),
    [
        (QuotaEntity(U, DEFAULT), [2, 4, 5, 7]),
        (QuotaEntity(U), [4, 5, 7]),
        (QuotaEntity(DEFAULT, C), [4, 5, 6, 7]),
        (QuotaEntity(DEFAULT, DEFAULT), [5, 7]),
        (QuotaEntity(DEFAULT), [7]),
        (QuotaEntity(None, C), [7]),
        (QuotaEntity(None, DEFAULT), []),
    ],
)
def test_levels_for_some_names_only_are_passed_over(entity: QuotaEntity, below: list[int]) -> None:
    reached = [
        place
        for place, level in enumerate(LEVELS)
        if level != entity and limit_of(ClientQuotas({level: {RATE: 1.0}}), entity, RATE)
    ]

    assert reached == below


@pytest.mark.parametrize(
    ("before", "changes", "percents"),
    [
        ({U: 100.0}, {U: 50.0}, [50.0]),
        ({U: 100.0}, {U: 100.5}, []),
        ({}, {U: 1.0}, []),  # nobody had a limit, so there is no share of it
        ({DEFAULT: 100.0}, {U: 10.0}, [90.0]),  # u had the default's
        ({U: 100.0, DEFAULT: 10.0}, {U: None}, [90.0]),  # u falls to the default's
        ({U: 10.0, DEFAULT: 100.0}, {U: None}, []),
        ({U: 100.0}, {U: None}, []),
        ({U: 100.0, DEFAULT: 100.0}, {U: None, DEFAULT: 25.0}, [75.0, 75.0]),
    ],
)
def test_what_counts_is_what_held_and_what_holds(
    before: dict[object, float], changes: dict[object, float | None], percents: list[float]
) -> None:
    old = ClientQuotas({QuotaEntity(user=name): {RATE: value} for name, value in before.items()})  # type: ignore[arg-type]
    new = old.with_changes(
        KeyChange(QuotaEntity(user=name), RATE, value)  # type: ignore[arg-type]
        for name, value in changes.items()
    )

    found = lowerings(moved(old, new), old, new)

    assert [each.percent for each in found] == percents
    assert [each.percent for each in too_far(found, percent_max=75)] == [
        each for each in percents if each > 75
    ]


def test_an_address_has_the_default_of_addresses_below_it() -> None:
    key = "connection_creation_rate"
    default, one = QuotaEntity(ip=DEFAULT), QuotaEntity(ip="10.0.0.1")
    quotas = ClientQuotas({default: {key: 5.0}})

    assert limit_of(quotas, one, key) == 5.0
    assert limit_of(ClientQuotas({one: {key: 5.0}}), default, key) is None
