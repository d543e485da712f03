"""One Bloom filter: its shape, its bits, and how rarely it is wrong."""

import math
from random import Random

import pytest

from kvota.engine.bloom import BloomFilter, Shape, mixed

# Kafka gives producer ids out in blocks of so many for each broker.
_BLOCK = 1_000


@pytest.mark.parametrize(
    ("numbers", "probability", "bits", "hashes"),
    [(25, 0.01, 240, 7), (25, 0.1, 120, 3), (1, 0.5, 2, 1), (1_000_000, 0.01, 9_585_059, 7)],
)
def test_a_shape_has_the_bits_that_its_numbers_need(
    numbers: int, probability: float, bits: int, hashes: int
) -> None:
    assert Shape.from_np(numbers, probability) == Shape(bits, hashes)


@pytest.mark.parametrize(
    ("numbers", "probability", "named"),
    [
        (0, 0.1, "numbers: 0 is below 1"),
        (5, 0.0, "probability: 0.0"),
        (5, 1.0, "probability: 1.0"),
        (5, math.nan, "probability: nan"),
        (2**31, 0.001, "2147483647 bits"),
        (10, 0.99, "not one for each"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_with_what_to_give(
    numbers: int, probability: float, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        Shape.from_np(numbers, probability)


def test_how_many_are_in_is_told_from_the_bits_that_are_set() -> None:
    shape = Shape.from_np(1_000, 0.01)
    filled = BloomFilter(shape)
    for number in range(1_000):
        filled.add_word(mixed(number, 0))

    assert shape.estimate_n(filled.cardinality()) == pytest.approx(1_000, rel=0.05)
    assert shape.estimate_n(shape.bits) == math.inf
    assert math.isnan(shape.estimate_n(shape.bits + 1))


@pytest.mark.parametrize("shape", [Shape(0, 1), Shape(5, 0), Shape(5, 6), Shape(2**31, 7)])
def test_a_filter_of_no_real_shape_is_refused(shape: Shape) -> None:
    with pytest.raises(ValueError, match="a filter has 1 to"):
        BloomFilter(shape)


@pytest.mark.parametrize("probability", [0.1, 0.01])
@pytest.mark.parametrize("numbers", [25, 100, 2_500])
@pytest.mark.parametrize("stride", [1, 7, _BLOCK, 4 * _BLOCK, 2**32])
def test_ids_in_kafkas_blocks_are_confused_as_rarely_as_random_ones(
    numbers: int, probability: float, stride: int
) -> None:
    """Unmixed, 93 of 100 new ids a block apart look like one that was seen (n = 25, p = 0.1)."""
    confused = looked = 0
    for key in range(max(1, 2_500 // numbers)):
        seen = BloomFilter(Shape.from_np(numbers, probability))
        for place in range(numbers):
            seen.add_word(mixed(place * stride, key))
        new = range(numbers, 5 * numbers)
        confused += sum(seen.holds_word(mixed(place * stride, key)) for place in new)
        looked += len(new)

    assert confused / looked < 1.25 * probability + 4 * math.sqrt(probability / looked)


def test_what_is_in_is_held_by_its_word_and_by_its_seeds() -> None:
    rng = Random(1)
    seen = BloomFilter(Shape.from_np(200, 0.01))
    words = [mixed(rng.getrandbits(63), 9) for _ in range(200)]

    for word in words[:100]:
        seen.add_word(word)
    by_seeds = [(word & 0xFFFFFFFF, word >> 32) for word in words]
    assert not any(seen.add(*seeds) for seeds in by_seeds[:100])  # they are in
    assert sum(seen.add(*seeds) for seeds in by_seeds[100:]) > 90
    assert all(seen.holds_word(word) for word in words)
    assert all(seen.holds(*seeds) for seeds in by_seeds)


def test_looking_by_word_and_by_seeds_is_the_same() -> None:
    rng = Random(2)
    seen = BloomFilter(Shape.from_np(50, 0.3))
    for _ in range(50):
        seen.add_word(rng.getrandbits(64))
    words = [rng.getrandbits(64) for _ in range(2_000)]

    by_word = [seen.holds_word(word) for word in words]
    assert by_word == [seen.holds(word & 0xFFFFFFFF, word >> 32) for word in words]
    assert 0 < sum(by_word) < len(words)


def test_bits_come_back_as_they_were_told() -> None:
    shape = Shape.from_np(30, 0.01)
    seen, again = BloomFilter(shape), BloomFilter(shape)
    for number in range(30):
        seen.add_word(mixed(number, 0))

    again.restore(seen.set_bytes())

    assert all(again.holds_word(mixed(number, 0)) for number in range(30))
    assert (again.cardinality(), again.size_bytes) == (seen.cardinality(), seen.size_bytes)


@pytest.mark.parametrize("contents", [b"", b"\0", bytes(3), b"\0\x40"])
def test_bits_that_are_not_those_of_the_shape_are_refused(contents: bytes) -> None:
    with pytest.raises(ValueError, match="are not the bits of"):
        BloomFilter(Shape(14, 2)).restore(contents)


@pytest.mark.parametrize("number", [0, 1, -1, -(2**63), 2**63 - 1, 2**64 - 1])
def test_every_number_is_mixed_into_64_bits_that_depend_on_the_key(number: int) -> None:
    words = {mixed(number, key) for key in range(100)}

    assert len(words) == 100
    assert all(0 <= word < 2**64 for word in words)
