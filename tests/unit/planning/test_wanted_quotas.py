"""What a file wants is compared with what is in force, value by value."""

from hypothesis import given
from hypothesis import strategies as st

from kvota.model.client_quotas import ClientQuotas
from kvota.model.quota_entity import DEFAULT, QuotaEntity
from kvota.planning.wanted_quotas import Difference, WantedQuotas, moved, requests

A, B, EVERYBODY = QuotaEntity(user="a"), QuotaEntity(user="b"), QuotaEntity(user=DEFAULT)
RATE, OTHER = "producer_byte_rate", "consumer_byte_rate"


def test_only_what_is_wanted_differs_and_the_rest_stays() -> None:
    in_force = ClientQuotas({A: {RATE: 1.0, OTHER: 5.0}, B: {RATE: 2.0}})
    wanted = WantedQuotas.of([(A, RATE, 1.0), (A, OTHER, 6.0), (EVERYBODY, RATE, 3.0)])

    assert wanted.differences(in_force) == (
        Difference(EVERYBODY, RATE, None, 3.0),
        Difference(A, OTHER, 5.0, 6.0),
    )
    assert wanted.unmentioned(in_force) == [(B, RATE)]


def test_none_removes_what_is_there_and_is_content_where_nothing_is() -> None:
    wanted = WantedQuotas.of([(A, RATE, None), (B, RATE, None)])

    assert wanted.differences(ClientQuotas({A: {RATE: 1.0}})) == (Difference(A, RATE, 1.0, None),)


def test_pruning_removes_what_is_not_mentioned_of_listed_entities_too() -> None:
    in_force = ClientQuotas({A: {RATE: 1.0, OTHER: 5.0}, B: {RATE: 2.0}})
    wanted = WantedQuotas.of([(A, RATE, 1.0)])

    assert wanted.differences(in_force, prunes=True) == (
        Difference(A, OTHER, 5.0, None),
        Difference(B, RATE, 2.0, None),
    )


def test_no_number_is_the_same_as_itself() -> None:
    nan = float("nan")
    wanted = WantedQuotas.of([(A, "request_percentage", nan)])

    assert wanted.differences(ClientQuotas({A: {"request_percentage": nan}})) == ()


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([RATE, OTHER])), unique=True),
    st.integers(2, 6),
)
def test_requests_hold_every_value_once_and_keep_entities_whole(
    chosen: list[tuple[int, str]], values_max: int
) -> None:
    differences = [
        Difference(QuotaEntity(user=str(number)), key, None, 1.0) for number, key in chosen
    ]
    parts = requests(differences, values_max=values_max)

    assert sorted(each for part in parts for each in part) == sorted(differences)
    assert all(0 < len(part) <= values_max for part in parts)
    of_entity = [{each.entity for each in part} for part in parts]
    assert sum(map(len, of_entity)) == len({each.entity for each in differences})
    # No request is opened while the one before has room for two more values.
    assert all(len(part) >= values_max - 1 for part in parts[:-1])


def test_moved_says_what_somebody_else_has_done() -> None:
    before = ClientQuotas({A: {RATE: 1.0}, B: {RATE: 2.0}})
    after = ClientQuotas({A: {RATE: 3.0}, EVERYBODY: {RATE: 4.0}})

    assert moved(before, after) == (
        Difference(EVERYBODY, RATE, None, 4.0),
        Difference(A, RATE, 1.0, 3.0),
        Difference(B, RATE, 2.0, None),
    )
