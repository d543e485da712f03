"""What a metric is: its name, its kind, its labels and what it means."""

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    """As Prometheus calls them."""

    COUNTER = "counter"  # only grows while the gateway runs
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One declared metric.

    Attributes:
        name: as it stands in the exposition; of a counter with ``_total``.
        kind: of the metric.
        labels: those that its series have.
        meaning: one sentence, with the unit where the name does not tell it.
    """

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    meaning: str

    @property
    def family(self) -> str:
        """The name without a counter's suffix, as OpenMetrics has it."""
        return self.name.removesuffix("_total") if self.kind is MetricKind.COUNTER else self.name

    @property
    def unit(self) -> str:
        """The base unit that the name ends in, empty where it has none."""
        unit = self.family.rpartition("_")[2]
        return unit if unit in {"seconds", "bytes"} else ""
