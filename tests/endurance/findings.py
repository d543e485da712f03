"""What came of one run: figures for people and for a file, and what did not hold."""

from dataclasses import dataclass, field


@dataclass
class Findings:
    """Of one part.

    Attributes:
        figures: by name, ready for JSON.
        missed: a sentence for each thing that did not hold; empty: all held.
    """

    figures: dict[str, object] = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)

    def expect(self, holds: bool, otherwise: str) -> None:
        """Notes what is wrong unless it holds."""
        if not holds:
            self.missed.append(otherwise)

    def add(self, name: str, other: "Findings") -> None:
        """Takes in what came of a part of this run."""
        self.figures[name] = other.figures
        self.missed += [f"{name}: {text}" for text in other.missed]
