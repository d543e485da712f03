"""Bloom filters: which numbers may have been seen, in about ten bits each; never a wrong "no".

The mathematics and the order of a number's bits are those of Apache commons-collections 4.5 (``Shape``,
``EnhancedDoubleHasher``), which KIP-936 builds on. Bits stand in a bytearray: with one large int, a look
takes as long up to 300 bits and five times as long at 30,000.
"""

from math import ceil, expm1, inf, log, log1p, nan
from typing import NamedTuple, Self

from kvota.engine.arithmetic import INT32_MAX, java_round

_LN_2 = log(2.0)
_DENOMINATOR = -_LN_2 * _LN_2
_MASK_64 = (1 << 64) - 1
_MASK_32 = (1 << 32) - 1
_BIT_OF = tuple(1 << place for place in range(8))


def mixed(number: int, key: int) -> int:
    """All 64 bits of a number, each of them dependent on every other (splitmix64's finaliser).

    Kafka gives producer ids out in blocks of 1000 for each broker: unmixed, 93 of 100 new ones look
    like one that was seen. One word has the seeds of a filter in its halves.

    Args:
        number: any; its low 64 bits count.
        key: 0 to 2**64-1; who does not know it cannot choose numbers that look alike.

    >>> hex(mixed(1, 0)), mixed(-1, 0) == mixed(2**64 - 1, 0)
    ('0x5692161d100b05e5', True)
    """
    word = (number + key) & _MASK_64
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK_64
    return word ^ (word >> 31)


class Shape(NamedTuple):
    """How many bits a filter has, and how many of them each number sets.

    Source: commons-collections ``Shape``; made by ``from_np``.

    Attributes:
        bits: m, 1 to 2**31-1.
        hashes: k, 1 to m.
    """

    bits: int
    hashes: int

    @classmethod
    def from_np(cls, numbers: int, probability: float) -> Self:
        """The smallest filter that takes so many numbers with this probability of a false positive.

        Args:
            numbers: n, at least 1.
            probability: p, above 0 and below 1.

        Raises:
            ValueError: n or p is out of range, there would be more than 2**31-1 bits, not one bit for
                a number, or nothing but false positives.

        >>> Shape.from_np(25, 0.01), Shape.from_np(25, 0.1)
        (Shape(bits=240, hashes=7), Shape(bits=120, hashes=3))
        """
        if numbers < 1:
            msg = f"numbers: {numbers} is below 1; give how many the filter is to take"
            raise ValueError(msg)
        if not 0.0 < probability < 1.0:
            msg = f"probability: {probability} is not between 0 and 1; give e.g. 0.01"
            raise ValueError(msg)
        wanted = numbers * log(probability) / _DENOMINATOR
        if wanted > INT32_MAX:
            msg = f"{numbers} numbers at probability {probability} take over {INT32_MAX} bits; give fewer"
            raise ValueError(msg)
        bits = ceil(wanted)
        hashes = java_round(_LN_2 * bits / numbers)
        shape = cls(bits, hashes)
        if hashes < 1 or shape.probability(numbers) >= 1.0:
            msg = f"probability: {probability} leaves {numbers} numbers {bits} bits, not one for each; give a smaller one"
            raise ValueError(msg)
        return shape

    def probability(self, numbers: int) -> float:
        """Of a false positive, when so many numbers (0 or more) are in."""
        if numbers < 1:
            return 0.0
        unset: float = -expm1(-1.0 * self.hashes * numbers / self.bits)
        probability: float = unset**self.hashes
        return probability

    def estimate_n(self, cardinality: int) -> float:
        """How many numbers have set so many bits; infinite when all are set, NaN above.

        >>> [Shape(240, 7).estimate_n(bits) for bits in (0, 240, 241)]
        [0.0, inf, nan]
        """
        if cardinality >= self.bits:
            return inf if cardinality == self.bits else nan
        return -(self.bits / self.hashes) * log1p(-float(cardinality) / self.bits)


def indices(shape: Shape, seed: int, step: int) -> list[int]:
    """The bits that two seeds of any size set, as many as there are hashes; one may come twice.

    Source: enhanced double hashing, as in commons-collections ``EnhancedDoubleHasher``.

    >>> indices(Shape(240, 7), 5, 3)
    [5, 2, 0, 0, 3, 10, 22]
    """
    bits, hashes = shape
    index, step = seed % bits, step % bits
    found = [index]
    for number in range(1, hashes):
        index -= step
        if index < 0:
            index += bits
        step -= number
        if step < 0:
            step += bits
        found.append(index)
    return found


class BloomFilter:
    """A set of bits of one shape; what was added is always held, and little else.

    Numbers come as two seeds, each of any size: from ``mixed`` for what is not random by itself.

    >>> few = BloomFilter(Shape.from_np(25, 0.01))
    >>> few.add_word(mixed(7, 0))
    >>> few.holds_word(mixed(7, 0)), few.holds_word(mixed(8, 0))
    (True, False)
    """

    __slots__ = ("_bits", "_hashes", "_last", "_set")

    def __init__(self, shape: Shape) -> None:
        if not 1 <= shape.hashes <= shape.bits <= INT32_MAX:
            msg = f"{shape}: a filter has 1 to {INT32_MAX} bits, and a number sets 1 to all of them"
            raise ValueError(msg)
        self._bits, self._hashes = shape
        self._last = shape.hashes - 1
        self._set = bytearray((shape.bits + 7) // 8)

    @property
    def shape(self) -> Shape:
        """As it was made."""
        return Shape(self._bits, self._hashes)

    @property
    def size_bytes(self) -> int:
        """What its bits take."""
        return len(self._set)

    def holds_word(self, word: int) -> bool:
        """True when a word of ``mixed`` may have been added, False when it surely was not."""
        # The hot path: ``indices`` without the call, to the first bit that is not set.
        bits, are_set, last = self._bits, self._set, self._last
        index = (word & _MASK_32) % bits
        step = (word >> 32) % bits
        number = 0
        while are_set[index >> 3] & _BIT_OF[index & 7]:
            if number == last:
                return True
            index -= step
            if index < 0:
                index += bits
            number += 1
            step -= number
            if step < 0:
                step += bits
        return False

    def add_word(self, word: int) -> None:
        """Add a word of ``mixed``."""
        # Hot as well: ``add``, without the calls.
        bits, are_set = self._bits, self._set
        index = (word & _MASK_32) % bits
        step = (word >> 32) % bits
        are_set[index >> 3] |= _BIT_OF[index & 7]
        for number in range(1, self._hashes):
            index -= step
            if index < 0:
                index += bits
            are_set[index >> 3] |= _BIT_OF[index & 7]
            step -= number
            if step < 0:
                step += bits

    def holds(self, seed: int, step: int) -> bool:
        """True when these seeds may have been added, False when they surely were not."""
        are_set = self._set
        return all(are_set[at >> 3] & _BIT_OF[at & 7] for at in indices(self.shape, seed, step))

    def add(self, seed: int, step: int) -> bool:
        """Add these seeds; False when they were held already."""
        are_set = self._set
        is_new = False
        for index in indices(self.shape, seed, step):
            place, bit = index >> 3, _BIT_OF[index & 7]
            if not are_set[place] & bit:
                are_set[place] |= bit
                is_new = True
        return is_new

    def cardinality(self) -> int:
        """How many bits are set."""
        return int.from_bytes(self._set, "little").bit_count()

    def set_bytes(self) -> bytes:
        """Its bits, eight in a byte, the first one lowest."""
        return bytes(self._set)

    def restore(self, set_bytes: bytes) -> None:
        """Replace its bits by those that ``set_bytes`` has told of a filter of the same shape.

        Raises:
            ValueError: they are too few or too many.
        """
        if len(set_bytes) != len(self._set) or set_bytes[-1] >> (self._bits - 1) % 8 + 1:
            msg = f"{len(set_bytes)} bytes are not the bits of {self.shape}"
            raise ValueError(msg)
        self._set[:] = set_bytes
