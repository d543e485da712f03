"""How a benchmark ends: its figures are kept, and what misses a bar is said."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path


def judged(result: Path, kept: Mapping[str, object], missed: Sequence[str]) -> int:
    """Keep the figures and say what they miss; returns the exit code."""
    result.write_text(json.dumps(kept, indent=1) + "\n")
    print("\n".join(missed) or "all bars hold")
    return 1 if missed else 0
