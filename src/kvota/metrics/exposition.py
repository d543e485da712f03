"""The two text formats of Prometheus, written some lines at a time.

A library would take five times as long, and the interpreter from traffic for all of it: whoever writes asks
for the next piece when others have had their turn.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import inf

from kvota.metrics.histogram import BOUNDS_S, Histogram
from kvota.metrics.metric import Metric

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# Some 150 µs of the interpreter.
SAMPLES_PER_PIECE = 250

_INFINITE = frozenset({inf, -inf})

# Labels as they stand in braces, and the value.
Sample = tuple[str, float]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its series of now."""

    metric: Metric
    samples: Iterable[Sample]


def exposition(
    families: Iterable["Family | HistogramFamily"], *, openmetrics: bool
) -> Iterator[str]:
    """Write families, piece by piece."""
    small: list[str] = []
    count = 0
    for family in families:
        small.append(_head(family.metric, openmetrics=openmetrics))
        if isinstance(family, HistogramFamily):
            small += [
                _line(family.metric.name + suffix, labels, value)
                for suffix, labels, value in histogram_samples(family.histogram)
            ]
            continue
        name, samples = family.metric.name, iter(family.samples)
        while some := list(islice(samples, SAMPLES_PER_PIECE - count)):
            small += [_line(name, labels, value) for labels, value in some]
            count += len(some)
            if count >= SAMPLES_PER_PIECE:
                yield "".join(small)
                small.clear()
                count = 0
    if openmetrics:
        small.append("# EOF\n")
    yield "".join(small)


def histogram_samples(histogram: Histogram) -> Iterator[tuple[str, str, float]]:
    """What a histogram's series are: suffix, labels, value."""
    total = 0
    for bound, count in zip((*BOUNDS_S, inf), histogram.counts, strict=True):
        total += count
        yield "_bucket", f'le="{"+Inf" if bound == inf else bound}"', total
    yield "_sum", "", histogram.sum_s
    yield "_count", "", total


@dataclass(frozen=True, slots=True)
class HistogramFamily:
    """A histogram of now."""

    metric: Metric
    histogram: Histogram


def _head(metric: Metric, *, openmetrics: bool) -> str:
    name = metric.family if openmetrics else metric.name
    head = f"# HELP {name} {_help(metric.meaning)}\n# TYPE {name} {metric.kind}\n"
    return f"{head}# UNIT {name} {metric.unit}\n" if openmetrics and metric.unit else head


def _line(name: str, labels: str, value: float) -> str:
    # NaN is the only number that is not itself; infinities are rare.
    if value != value or value in _INFINITE:  # noqa: PLR0124
        text = "NaN" if value != value else "+Inf" if value > 0 else "-Inf"  # noqa: PLR0124
    else:
        text = repr(value)
    return f"{name}{{{labels}}} {text}\n" if labels else f"{name} {text}\n"


def _help(meaning: str) -> str:
    return meaning.replace("\\", r"\\").replace("\n", r"\n")
