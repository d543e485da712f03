"""What became of each of several things that were asked for at once."""

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from kvota.model.errors import KvotaError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Results(Generic[K, V]):
    """A result for each: its value or its error, as a finished future has one of both.

    Attributes:
        values: of those that went well.
        errors: of the others.
    """

    def __init__(self, values: Mapping[K, V], errors: Mapping[K, KvotaError]) -> None:
        self.values = values
        self.errors = errors

    def result(self, key: K) -> V:
        """Return the value, or raise the error.

        Raises:
            KvotaError: what has gone wrong with this one.
            KeyError: it was not asked for.
        """
        if key in self.errors:
            raise self.errors[key]
        return self.values[key]

    def exception(self, key: K) -> KvotaError | None:
        """Return the error; None: it went well.

        Raises:
            KeyError: it was not asked for.
        """
        if key not in self.errors and key not in self.values:
            raise KeyError(key)
        return self.errors.get(key)

    def all(self) -> Mapping[K, V]:
        """Return the values if everything went well.

        Raises:
            KvotaError: of the first that did not; the others have theirs in ``errors``.
        """
        for error in self.errors.values():
            raise error
        return self.values

    def __repr__(self) -> str:
        return f"Results(values={self.values!r}, errors={self.errors!r})"


def merged(parts: "list[Results[K, V]]") -> "Results[K, V]":
    """Return several results as one; no key is in two of them."""
    values = {key: value for part in parts for key, value in part.values.items()}
    errors = {key: error for part in parts for key, error in part.errors.items()}
    return Results(values, errors)
