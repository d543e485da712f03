"""The time span a quota looks at."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuotaWindow:
    """``samples`` samples of ``sample_ms`` each; Kafka's default is 11 x 1 s.

    A *window* is all of it; one part is a *sample*, never a window.

    Raises:
        ValueError: ``samples`` or ``sample_ms`` below 1.
    """

    samples: int = 11
    sample_ms: int = 1000

    def __post_init__(self) -> None:
        """Refuse what Kafka's broker configuration refuses."""
        if self.samples < 1:
            msg = f"samples: {self.samples} is below 1; Kafka's default is 11"
            raise ValueError(msg)
        if self.sample_ms < 1:
            msg = f"sample_ms: {self.sample_ms} is below 1; Kafka's default is 1000"
            raise ValueError(msg)
