"""Orders of Java's HashMap, as OpenJDK 17 gives them."""

import pytest

from kvota.quota_api.java_hash_map import hash_order, map_hash, string_hash, string_order

KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("user", 3_599_307),
        ("client-id", -1_904_137_635),
        ("müller", -938_338_084),
    ],
)
def test_hashes_of_strings(text: str, hashed: int) -> None:
    assert string_hash(text) == hashed & 0xFFFF_FFFF


def test_a_character_outside_the_first_plane_counts_as_two() -> None:
    assert string_hash("😀") == 31 * 0xD83D + 0xDE00


def test_hash_of_a_map_does_not_depend_on_its_order() -> None:
    assert map_hash({"user": "a", "client-id": None}) == map_hash({"client-id": None, "user": "a"})
    assert map_hash({"user": None}) == 3_599_307


def test_order_of_the_keys_of_quotas() -> None:
    # As kafka-configs.sh prints them: in a table of 4 slots, and of 8.
    assert list(string_order(KEYS[:3], capacity=3)) == [
        "consumer_byte_rate",
        "producer_byte_rate",
        "request_percentage",
    ]
    assert list(string_order(KEYS, capacity=4)) == [
        "producer_byte_rate",
        "consumer_byte_rate",
        "controller_mutation_rate",
        "request_percentage",
    ]


def test_of_one_slot_the_first_comes_first() -> None:
    assert list(string_order(["request_percentage", "producer_byte_rate"], capacity=2)) == [
        "request_percentage",
        "producer_byte_rate",
    ]


@pytest.mark.parametrize(
    ("capacity", "items"), [(0, 0), (0, 1), (1, 2), (16, 12), (16, 13), (16, 97)]
)
def test_a_table_grows_as_it_fills(capacity: int, items: int) -> None:
    slots = max(1, capacity)
    while items > slots * 0.75:
        slots *= 2

    hashes = [(number * 7) & 0xFFFF for number in range(items)]
    ordered = hash_order(list(range(items)), hashes, capacity=capacity)

    assert ordered == sorted(range(items), key=lambda number: hashes[number] % slots)
