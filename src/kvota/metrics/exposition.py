"""The two text formats of Prometheus, written some lines at a time.

A library would take five times as long, and the interpreter from traffic for all of it: whoever writes asks
for the next piece when others have had their turn. Of the series of counters only those lines are written whose
value has changed: of five thousand these are some hundred where few are busy.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan
from typing import Self

import numpy as np

from kvota.metrics.cells import Column
from kvota.metrics.histogram import BOUNDS_S, Histogram
from kvota.metrics.labels import label_text
from kvota.metrics.metric import Metric

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# Some 100 µs of the interpreter.
LINES_PER_PIECE = 250

# Labels as they stand in braces, and the value.
Sample = tuple[str, float]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with its few series of now."""

    metric: Metric
    samples: Iterable[Sample]

    @classmethod
    def one(cls, metric: Metric, value: float) -> Self:
        """One that has a single series, without labels."""
        return cls(metric, [("", value)])

    @classmethod
    def by(cls, label: str, metric: Metric, values: Mapping[str, float]) -> Self:
        """One whose series differ in one label."""
        return cls(metric, [(label_text({label: name}), value) for name, value in values.items()])


@dataclass(frozen=True, slots=True)
class ColumnFamily:
    """One metric with its series of now, of which there may be hundreds: labels and as many values."""

    metric: Metric
    labels: Sequence[str]
    values: Column


@dataclass(frozen=True, slots=True)
class HistogramFamily:
    """A histogram of now."""

    metric: Metric
    histogram: Histogram


AnyFamily = Family | ColumnFamily | HistogramFamily


class Exposition:
    """Writes metrics again and again, in one of the formats.

    Args:
        openmetrics: false: Prometheus' own text.
    """

    def __init__(self, *, openmetrics: bool) -> None:
        self._openmetrics = openmetrics
        self._columns: dict[str, _Lines] = {}

    def written(self, families: Iterable[AnyFamily]) -> Iterator[bytes]:
        """Write families, piece by piece."""
        pieces: list[bytes] = []
        count = 0
        for family in families:
            pieces.append(_head(family.metric, openmetrics=self._openmetrics).encode())
            if isinstance(family, ColumnFamily):
                lines = self._columns.setdefault(family.metric.name, _Lines())
                changed = lines.changed(family)
                for some in changed:
                    lines.write(some, family)
                    count += len(some)
                    if count >= LINES_PER_PIECE:
                        yield b"".join(pieces)
                        pieces.clear()
                        count = 0
                pieces.append(lines.text(family, is_new=bool(changed)))
            else:
                pieces.append("".join(_lines_of(family)).encode())
        if self._openmetrics:
            pieces.append(b"# EOF\n")
        yield b"".join(pieces)


class _Lines:
    """The lines of one metric as they were written last."""

    def __init__(self) -> None:
        self._labels: Sequence[str] | None = None  # None, too, while they are written
        self._values: Column = np.empty(0)
        self._heads: list[str] = []
        self._lines: list[str] = []
        self._text = b""

    def changed(self, family: ColumnFamily) -> list[list[int]]:
        """Which lines have to be written anew, some at a time; they all have to be, before ``text``."""
        values = family.values
        if family.labels == self._labels:
            is_same = (values == self._values) | (np.isnan(values) & np.isnan(self._values))
            found = np.flatnonzero(~is_same).tolist()
        else:
            self._heads = [_line_head(family.metric.name, labels) for labels in family.labels]
            self._lines = [""] * len(values)
            found = list(range(len(values)))
        self._labels = None
        return [
            found[begin : begin + LINES_PER_PIECE]
            for begin in range(0, len(found), LINES_PER_PIECE)
        ]

    def write(self, indices: Sequence[int], family: ColumnFamily) -> None:
        """Write some of them."""
        heads, lines, values = self._heads, self._lines, family.values[indices]
        # Nearly always all are numbers that Python writes as Prometheus reads them.
        text_of = repr if np.isfinite(values).all() else _value_text
        for index, value in zip(indices, values.tolist(), strict=True):
            lines[index] = f"{heads[index]}{text_of(value)}\n"

    def text(self, family: ColumnFamily, *, is_new: bool) -> bytes:
        """All of them; ``is_new``: some were written."""
        self._labels, self._values = family.labels, family.values
        if is_new or not self._lines:
            # A name may have halves of a character that no text can have.
            self._text = "".join(self._lines).encode("utf-8", "replace")
        return self._text


def _lines_of(family: Family | HistogramFamily) -> Iterator[str]:
    name = family.metric.name
    if isinstance(family, HistogramFamily):
        for suffix, labels, value in histogram_samples(family.histogram):
            yield _line(name + suffix, labels, value)
    else:
        for labels, value in family.samples:
            yield _line(name, labels, value)


def histogram_samples(histogram: Histogram) -> Iterator[tuple[str, str, float]]:
    """What a histogram's series are: suffix, labels, value."""
    total = 0
    for bound, count in zip((*BOUNDS_S, inf), histogram.counts, strict=True):
        total += count
        yield "_bucket", f'le="{"+Inf" if bound == inf else bound}"', total
    yield "_sum", "", histogram.sum_s
    yield "_count", "", total


def _head(metric: Metric, *, openmetrics: bool) -> str:
    name = metric.family if openmetrics else metric.name
    head = f"# HELP {name} {_help(metric.meaning)}\n# TYPE {name} {metric.kind}\n"
    return f"{head}# UNIT {name} {metric.unit}\n" if openmetrics and metric.unit else head


def _line(name: str, labels: str, value: float) -> str:
    return f"{_line_head(name, labels)}{_value_text(value)}\n"


def _line_head(name: str, labels: str) -> str:
    return f"{name}{{{labels}}} " if labels else f"{name} "


def _value_text(value: float) -> str:
    if isfinite(value):
        return repr(value)
    return "NaN" if isnan(value) else "+Inf" if value > 0 else "-Inf"


def _help(meaning: str) -> str:
    return meaning.replace("\\", r"\\").replace("\n", r"\n")
