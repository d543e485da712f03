"""How many different ids came, where they come piece by piece. Pure."""

import numpy as np

from kvota.pipeline.arrow_columns import Array


class DistinctIds:
    """Ids, each once; takes 8 bytes for each, and as many again for those that wait.

    As many wait as are known before they are merged: merged with each piece, all that are known would be sorted for every piece.

    Args:
        wait_for: so many wait in any case.
    """

    def __init__(self, *, wait_for: int = 1 << 16) -> None:
        self._wait_for = wait_for
        self._known = np.zeros(0, np.int64)
        self._waiting: list[Array] = []
        self._waiting_count = 0

    def add(self, ids: Array) -> None:
        """Some more, in any order and any number of times."""
        self._waiting.append(ids)
        self._waiting_count += len(ids)
        if self._waiting_count > max(len(self._known), self._wait_for):
            self._merge()

    def __len__(self) -> int:
        """How many different ones there are."""
        self._merge()
        return len(self._known)

    def _merge(self) -> None:
        if self._waiting_count:
            self._known = np.unique(np.concatenate([self._known, *self._waiting]))
        self._waiting, self._waiting_count = [], 0
