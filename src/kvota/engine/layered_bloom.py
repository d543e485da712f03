"""Which numbers were seen within a window of time, in layers of Bloom filters by age.

A layer lives for one window. What is seen goes into the newest layer, and a new one is opened when one is
needed and the newest is older than its part of the window, or full. Unlike the layers of
commons-collections 4.5, which KIP-936 builds on, an expired layer holds nothing from its last
millisecond on, an empty filter has no layer, and each layer has a shape of its own.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from kvota.engine.arithmetic import INT32_MAX, INT64_MAX
from kvota.engine.bloom import BloomFilter, Shape

# The least a layer has room for: below it the formula of a filter's false positives does not hold.
_ROOM_MIN = 16
# 2.76 MB under the defaults. A layer that is to take more is overfilled.
_ROOM_MAX = 1_000_000
# How much more often than by equal pairs of seeds a number is taken for another one (measured: 1.07 to 1.3).
_ALIKE = 1.25
# How much more a layer has room for than were seen in the one before.
_HEADROOM = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Layering:
    """How long a number stays seen, and how sure a "seen" is.

    Attributes:
        window_ms: a number that was not seen for so long is new.
        layers: into which the window is divided, 1 to 64. A number that comes at least every
            ``window_ms - layer_ms`` stays seen.
        false_positive_rate: of all layers together while none is overfilled, above 0 and below 1. So many of the
            ids that are *tried* pass uncounted, and who crash-loops tries tens of thousands in a window.

    Raises:
        ValueError: one of them is out of its range.
    """

    window_ms: int = 3_600_000
    layers: int = 4
    false_positive_rate: float = 0.0001

    def __post_init__(self) -> None:
        """Refuse what no filter can be made of."""
        if not 1 <= self.window_ms <= 2**53:
            msg = f"window_ms: {self.window_ms} is not 1 to 2**53; KIP-936's window is 3,600,000"
            raise ValueError(msg)
        if not 1 <= self.layers <= 64:
            msg = f"layers: {self.layers} is not 1 to 64; KIP-936 speaks of 4"
            raise ValueError(msg)
        if not 1e-9 <= self.false_positive_rate <= 0.5:
            msg = (
                f"false_positive_rate: {self.false_positive_rate} is not 1e-9 to 0.5; use e.g. 0.01"
            )
            raise ValueError(msg)

    @property
    def layer_ms(self) -> int:
        """How long a layer takes numbers in, at least 1."""
        return max(1, self.window_ms // self.layers)

    @property
    def layer_probability(self) -> float:
        """The rate of false positives of one layer, so that all of them have ``false_positive_rate``.

        >>> round(Layering(false_positive_rate=0.01).layer_probability, 5)
        0.00251
        """
        return float(1.0 - (1.0 - self.false_positive_rate) ** (1.0 / self.layers))


@lru_cache(1024)  # users of one quota have layers of one size
def _wide_enough(room: int, probability: float) -> Shape:
    """``Shape.from_np``, with more bits where so few would let numbers be taken for each other as a whole.

    All bits of a number follow from a pair of seeds, and a filter of m bits knows m**2 pairs. So a new number has
    the pair of one of n others by n / m**2, beside what the formula of a filter's false positives counts: five times as
    often as that in the smallest layer under the defaults.

    >>> Shape.from_np(16, 2.5e-5), _wide_enough(16, 2.5e-5)
    (Shape(bits=353, hashes=15), Shape(bits=895, hashes=15))
    >>> Shape.from_np(10_000, 2.5e-5), _wide_enough(10_000, 2.5e-5)
    (Shape(bits=220556, hashes=15), Shape(bits=220797, hashes=15))
    """
    narrow = Shape.from_np(room, probability)

    def suffices(bits: int) -> bool:
        alike = _ALIKE * room / bits**2
        return narrow._replace(bits=bits).probability(room) + alike <= probability

    wider = range(narrow.bits, INT32_MAX)
    return narrow._replace(bits=wider[bisect_left(wider, x=True, key=suffices)])


class LayerMemory:
    """What all layers of many filters may take together.

    Attributes:
        layering: of all of them.
        bytes_max: of their bits. Beyond it a layer is opened as small as it can be, and overfilled:
            more false positives, never a wrong "not seen".
        used_bytes: by the bits of all layers now.
        overfilled: how many numbers were put into a layer without room for them.
    """

    __slots__ = ("bytes_max", "layer_ms", "layering", "overfilled", "probability", "used_bytes")

    def __init__(self, layering: Layering, *, bytes_max: int) -> None:
        self.layering = layering
        self.layer_ms = layering.layer_ms
        self.probability = layering.layer_probability
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self.overfilled = 0

    def shape(self, room: int) -> tuple[Shape, int]:
        """The shape of a new layer, and for how many numbers it has room."""
        room = min(max(room, _ROOM_MIN), _ROOM_MAX)
        shape = _wide_enough(room, self.probability)
        if self.used_bytes + shape.bits // 8 > self.bytes_max:
            room = _ROOM_MIN
            shape = Shape.from_np(room, self.probability)
        return shape, room


class Layer(BloomFilter):
    """What was seen first, or again, while it was the newest.

    Attributes:
        created_ms: when it was opened; it lives for one window.
        room: how many numbers it was made for.
        inserted: how many are in it.
        latest: how many of them are in no newer layer.
        counted: how many of them were counted as new against a quota.
    """

    __slots__ = ("counted", "created_ms", "inserted", "latest", "room")

    def __init__(self, shape: Shape, room: int, created_ms: int) -> None:
        super().__init__(shape)
        self.created_ms = created_ms
        self.room = room
        self.inserted = self.latest = self.counted = 0


class LayeredBloomFilter:
    """What was seen within the window, as words of ``bloom.mixed``; see the module.

    ``settle`` brings it to a time. ``seen`` and ``remember`` want that done, and are right from ``last_ms``
    until before ``due_ms``.

    Attributes:
        room: how many new numbers are awaited in a layer's time; counts for layers opened from now on.
        last_ms: the time it was brought to.
        due_ms: from then on it has to be settled again.
        target: the newest layer, while it takes numbers in.
        layers: all that live, the oldest first.
        generation: how many numbers were put in since a layer was opened because of the last one's age.
    """

    __slots__ = ("_memory", "due_ms", "generation", "last_ms", "layers", "room", "target")

    def __init__(self, memory: LayerMemory, now_ms: int, *, room: int) -> None:
        self._memory = memory
        self.room = room
        self.last_ms = now_ms
        self.due_ms = INT64_MAX
        self.target: Layer | None = None
        self.layers: list[Layer] = []
        self.generation = 0

    def settle(self, now_ms: int) -> None:
        """Bring it to ``now_ms``: what has expired goes, and a clock that went back frees nothing."""
        layers, memory = self.layers, self._memory
        back_ms = self.last_ms - now_ms
        if back_ms > 0:  # each layer has as long to live as before
            for layer in layers:
                layer.created_ms -= back_ms
        self.last_ms = now_ms
        expired = self._expired(now_ms)
        if expired:
            memory.used_bytes -= sum(layer.size_bytes for layer in layers[:expired])
            del layers[:expired]
        self._look_ahead(now_ms)

    def seen(self, word: int, now_ms: int) -> bool:
        """True when it was seen within the window (or looks like one that was); it then stays seen.

        One that is in a layer that no longer takes numbers in is put into the newest, too.
        """
        target = self.target
        if target is not None and target.holds_word(word):
            return True
        for layer in reversed(self.layers):
            if layer is not target and layer.holds_word(word):
                if layer.created_ms + self._memory.layer_ms <= now_ms:
                    layer.latest = max(0, layer.latest - 1)
                    self.remember(word, now_ms)
                return True
        return False

    def remember(self, word: int, now_ms: int) -> Layer:
        """Put a number that is not ``seen`` into the layer that takes numbers in; returns that layer."""
        target, memory = self.target, self._memory
        if target is None:
            seen_before, self.generation = self.generation, 0
            target = self._open(max(self.room, ceil(_HEADROOM * seen_before)), now_ms)
        elif target.inserted >= target.room:
            if self._may_open():
                # All of a window's at once in one more layer; beyond that, as many as there are.
                of_window = (memory.layering.layers - 1) * self.room
                target = self._open(max(of_window, self.generation), now_ms)
            else:
                memory.overfilled += 1
        target.add_word(word)
        target.inserted += 1
        target.latest += 1
        self.generation += 1
        return target

    def clear(self) -> None:
        """Forget everything, and give its memory back."""
        self._memory.used_bytes -= sum(layer.size_bytes for layer in self.layers)
        self.layers.clear()
        self.generation = 0
        self._look_ahead(self.last_ms)

    def restore(self, layers: list[Layer], generation: int) -> None:
        """Replace what was seen by saved layers, the oldest first."""
        self.clear()
        self.layers.extend(layers)
        self.generation = generation
        self._memory.used_bytes += sum(layer.size_bytes for layer in layers)
        self._look_ahead(self.last_ms)

    def is_empty(self, now_ms: int) -> bool:
        """True when nothing is seen any more; changes nothing."""
        return self._expired(now_ms) == len(self.layers)

    def peek_distinct(self, now_ms: int) -> int:
        """How many numbers were seen within the window, but for false positives; changes nothing."""
        return sum(layer.latest for layer in self.layers[self._expired(now_ms) :])

    def peek_counted(self, now_ms: int) -> int:
        """How many of those in living layers were counted as new; changes nothing."""
        return sum(layer.counted for layer in self.layers[self._expired(now_ms) :])

    def _expired(self, now_ms: int) -> int:
        window_ms = self._memory.layering.window_ms
        expired = 0
        for layer in self.layers:
            if layer.created_ms + window_ms > now_ms:
                break
            expired += 1
        return expired

    def _may_open(self) -> bool:
        """Full ones force more layers up to twice as many; those opened by age come on top of them."""
        memory = self._memory
        few = len(self.layers) < 2 * memory.layering.layers
        return few and memory.used_bytes < memory.bytes_max

    def _open(self, room: int, now_ms: int) -> Layer:
        memory = self._memory
        layer = Layer(*memory.shape(room), now_ms)
        memory.used_bytes += layer.size_bytes
        self.layers.append(layer)
        self._look_ahead(now_ms)
        return layer

    def _look_ahead(self, now_ms: int) -> None:
        """Find the target, and when there is something to do next."""
        self.target, self.due_ms = None, INT64_MAX
        if not self.layers:
            return
        self.due_ms = self.layers[0].created_ms + self._memory.layering.window_ms
        closes_ms = self.layers[-1].created_ms + self._memory.layer_ms
        if closes_ms > now_ms:
            self.target = self.layers[-1]
        # Those that are closed because they are full as well: what they hold has to be put into the newest from
        # then on when it is seen, and nobody who looks only at ``due_ms`` would do it.
        for layer in self.layers:
            closes_ms = layer.created_ms + self._memory.layer_ms
            if closes_ms > now_ms:
                self.due_ms = min(self.due_ms, closes_ms)
                break
