"""Apache commons-collections 4.5's Bloom filters (of PySpark's jars), live in a JVM, against ours."""

import importlib.util
import math
import subprocess
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from kvota.engine.bloom import Shape, indices, mixed
from kvota.engine.layered_bloom import LayeredBloomFilter, Layering, LayerMemory
from kvota.java.find import java_command
from kvota.localkafka.jars.compile_java import compile_java

pytestmark = pytest.mark.timeout(120)  # the first run fetches the Java compiler

_JAR = "commons-collections4-4.5.0.jar"
_BEGIN_MS = 1_700_000_000_000


@cache
def _class_path() -> str:
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    jar = str(Path(pyspark.origin).parent / "jars" / _JAR)
    source = Path(__file__).parent / "bloom" / "BloomOracle.java"
    return f"{compile_java([source], classpath=jar)}:{jar}"


def ask_commons(operations: Sequence[Sequence[object]]) -> list[list[str]]:
    """The words of one answer per operation."""
    lines = "".join("\t".join(map(str, op)) + "\n" for op in operations)
    java = [str(java_command()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    done = subprocess.run(
        [*java, "-cp", _class_path(), "BloomOracle"],
        input=lines,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(answers) == len(operations)
    return answers


def our_shape(numbers: int, probability: float) -> list[str | int | float]:
    try:
        shape = Shape.from_np(numbers, probability)
    except ValueError:
        return ["refused"]
    return [
        shape.bits,
        shape.hashes,
        shape.probability(numbers),
        shape.probability(2 * (numbers // 3)),
        shape.estimate_n(shape.bits // 3),
        shape.estimate_n(shape.bits),
    ]


def agrees(ours: str | int | float, theirs: str) -> bool:
    """Whole numbers and words equal; doubles but for what two libraries' logarithms differ by."""
    if isinstance(ours, float):
        return math.isclose(ours, float(theirs.replace("Infinity", "inf")), rel_tol=1e-13)
    return str(ours) == theirs


def test_shapes_have_the_same_numbers_on_a_grid() -> None:
    rng = Random(936)
    counts = [*range(1, 41), 99, 100, 101, 1_000, 2_500, 10_000, 123_457, 1_000_000, 300_000_000]
    rates = [0.999, 0.9, 0.62, 0.5, 0.1, 0.0260, 0.01, 0.00251, 1e-3, 1e-6, 1e-12, 1e-300]
    grid = [(numbers, rate) for numbers in [0, -1, *counts] for rate in [0.0, 1.0, *rates]]
    grid += [(rng.randrange(1, 100_000), rng.uniform(1e-6, 0.99)) for _ in range(2_000)]

    answers = ask_commons([("shape", numbers, repr(rate)) for numbers, rate in grid])

    refused = 0
    for asked, theirs in zip(grid, answers, strict=True):
        ours = our_shape(*asked)
        assert len(ours) == len(theirs), asked
        assert all(map(agrees, ours, theirs)), (asked, ours, theirs)
        refused += theirs == ["refused"]
    assert 50 < refused < len(grid) / 2


def test_a_number_sets_the_same_bits_in_the_same_order() -> None:
    rng = Random(1)
    edges = [0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
    asked = []
    for bits in [1, 2, 3, 13, 64, 240, 312, 9_585_059, 2**31 - 1]:
        for hashes in {1, 2, 3, 7, 9, 30} | {min(bits, 40)}:
            if hashes <= bits:
                seeds = [(rng.choice(edges), rng.choice(edges)) for _ in range(8)]
                seeds += [(rng.getrandbits(64), rng.getrandbits(64)) for _ in range(30)]
                asked += [(Shape(bits, hashes), *pair) for pair in seeds]

    answers = ask_commons(
        [("indices", shape.bits, shape.hashes, seed, step) for shape, seed, step in asked]
    )

    for (shape, seed, step), theirs in zip(asked, answers, strict=True):
        ours = indices(shape, seed, step)
        assert ours == [int(index) for index in theirs], (shape, seed, step)


class SameShapes(LayerMemory):
    """All layers of one shape, as commons-collections wants it."""

    __slots__ = ("_shape",)

    def __init__(self, layering: Layering, numbers: int, probability: float) -> None:
        super().__init__(layering, bytes_max=1 << 30)
        self._shape = (Shape.from_np(numbers, probability), numbers)

    def shape(self, _room: int) -> tuple[Shape, int]:
        return self._shape


def meets(layers: LayeredBloomFilter, now_ms: int, word: int) -> list[str]:
    if not layers.last_ms <= now_ms < layers.due_ms:
        layers.settle(now_ms)
    was_seen = layers.seen(word, now_ms)
    if not was_seen:
        layers.remember(word, now_ms)
    cardinalities = [str(layer.cardinality()) for layer in layers.layers]
    return [str(was_seen).lower(), str(len(cardinalities)), *cardinalities]


@pytest.mark.parametrize("seed", range(6))
def test_layers_come_and_go_and_fill_alike(seed: int) -> None:
    rng = Random(seed)
    numbers, probability = rng.choice([(16, 0.3), (30, 0.01), (40, 0.1)])
    layering = Layering(window_ms=rng.choice([4_000, 999, 7]), layers=rng.choice([1, 2, 4, 7]))
    layers = LayeredBloomFilter(SameShapes(layering, numbers, probability), _BEGIN_MS, room=1)
    setting = (layering.window_ms, layering.layer_ms, 2 * layering.layers)
    operations: list[tuple[object, ...]] = [("layers", numbers, probability, *setting)]
    now_ms, met = _BEGIN_MS, []
    for _ in range(3_000):
        pauses = [0, 0, 1, layering.layer_ms // 20, layering.layer_ms, layering.window_ms - 1]
        now_ms += rng.choices(pauses, [40, 40, 10, 30, 1, 0.2])[0]
        met.append(rng.choice(met[-150:]) if met and rng.random() < 0.6 else rng.randrange(1 << 62))
        operations.append(("meet", now_ms, mixed(met[-1], seed)))

    answers = ask_commons(operations)[1:]

    depths = set()
    for (_, at_ms, word), theirs in zip(operations[1:], answers, strict=True):
        assert meets(layers, int(str(at_ms)), int(str(word))) == theirs
        depths.add(int(theirs[1]))
    assert max(depths) > layering.layers  # full ones have forced more
    # Something expires, too.
    assert any(int(after[1]) < int(before[1]) for before, after in pairwise(answers))
