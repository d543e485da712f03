"""One set of formulas: compiled by Numba they answer as they do plain."""

import importlib.util
import inspect
import math
import random
import struct
from collections.abc import Callable
from types import FunctionType, ModuleType

import numba
import numpy as np
import pytest
from tests.properties.letter import NEVER, bucket_step, rate_step

from kvota.engine import QuotaWindow, SampledRate, TokenBucket, arithmetic

_BEGIN_MS = 1_700_000_000_000
_FUNCTIONS = [name for name, f in vars(arithmetic).items() if isinstance(f, FunctionType)]
_ODD = (0.0, -0.0, math.inf, -math.inf, math.nan, 1e300, 2.0**63, 0.49999999999999994, -2.5, 2.5)


@pytest.fixture(scope="module")
def compiled() -> ModuleType:
    """The second instance that the docstring of the module speaks of."""
    spec = importlib.util.find_spec("kvota.engine.arithmetic")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in _FUNCTIONS:
        setattr(module, name, numba.njit(getattr(module, name)))
    return module


def _double(rng: random.Random) -> float:
    return rng.choice(
        (
            rng.uniform(-1e4, 1e4),
            rng.uniform(-2, 2),
            rng.randrange(-10, 10) / 2,
            struct.unpack("d", rng.randbytes(8))[0],
            rng.choice(_ODD),
            rng.uniform(-1, 1) * 2.0 ** rng.randrange(70),
        )
    )


def _whole(rng: random.Random, name: str) -> int:
    if name == "samples":
        return rng.choice((1, 2, 3, 11))
    if name in {"sample_ms", "window_ms", "b"}:
        return rng.choice((1, 7, 1000, rng.randrange(1, 10**6)))
    if name == "x":
        return rng.randrange(-(2**63), 2**63)
    return rng.choice(
        (0, rng.randrange(12), rng.randrange(10**5), rng.randrange(-(10**13), 10**13))
    )


def _arguments(rng: random.Random, function: Callable[..., object]) -> list[float]:
    types = inspect.get_annotations(function)
    return [
        _double(rng) if kind is float else _whole(rng, name)
        for name, kind in types.items()
        if name != "return"
    ]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", _FUNCTIONS)
def test_a_compiled_function_answers_as_it_does_plain(name: str, compiled: ModuleType) -> None:
    plain, fast = getattr(arithmetic, name), getattr(compiled, name)
    rng = random.Random(name)

    for _ in range(3_000):
        arguments = _arguments(rng, plain)
        expected, got = plain(*arguments), fast(*arguments)
        same = expected == got or (math.isnan(expected) and math.isnan(got))
        assert same, (name, arguments, expected, got)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("samples", [1, 2, 11])
def test_a_compiled_kernel_throttles_as_the_engine_does(samples: int, compiled: ModuleType) -> None:
    step = numba.njit(rate_step(compiled))
    rng = random.Random(samples)
    rate = SampledRate(QuotaWindow(samples, 1000), 1000.0)
    starts = np.zeros(samples + 1, np.int64)
    lasts, values = starts.copy(), np.zeros(samples + 1)
    current, count, now_ms = NEVER, 0, _BEGIN_MS
    throttled = 0

    for _ in range(3_000):
        now_ms += rng.choice((0, 3, 400, 1000, 5_000, -200))
        value = rng.choice((rng.randrange(3_000), rng.randrange(3_000), rng.uniform(0, 3_000)))
        current, count, throttle_ms = step(
            starts, lasts, values, current, count, float(value), now_ms, 1000.0, samples, 1000
        )
        assert rate.charge(value, now_ms) == throttle_ms
        throttled += throttle_ms > 0

    assert throttled > 100


@pytest.mark.timeout(120)
@pytest.mark.parametrize("strict", [True, False])
def test_a_compiled_kernel_keeps_the_tokens_of_the_engines_bucket(
    strict: bool, compiled: ModuleType
) -> None:
    step = numba.njit(bucket_step(compiled))
    rng = random.Random(strict)
    bucket = TokenBucket(QuotaWindow(11, 1000), 10.0)
    tokens, last_ms, now_ms = 0.0, 0, _BEGIN_MS
    violations = 0

    for _ in range(3_000):
        now_ms += rng.choice((0, 3, 400, 1000, 5_000, -200))
        value = rng.choice((1.0, 7.0, 40.0, 0.5, -3.0))
        tokens, rejected, throttle_ms = step(tokens, last_ms, value, now_ms, 10.0, 11, 1000, strict)
        last_ms = now_ms
        seen = bucket.take(value, now_ms) if strict else bucket.pay(value, now_ms)
        assert (seen < 0) == (rejected == 1 if strict else tokens < 0)
        assert bucket.measure(now_ms) == tokens
        assert throttle_ms == (bucket.throttle_ms(now_ms) if seen < 0 else 0)
        violations += seen < 0

    assert violations > 100
