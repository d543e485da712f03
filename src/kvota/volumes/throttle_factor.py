"""The factor in force: of the last observation while that is valid, then a fallback."""


class ThrottleFactor:
    """Changes by observations and by time; the caller looks at it often (``look``).

    Starts at 1.0, valid from ``now_ms``: without any observation the fallback comes after the validity,
    too. Source: Strimzi's ``ThrottleFactor`` state.

    >>> factor = ThrottleFactor(fallback=0.0, validity_ms=120_000, now_ms=0)
    >>> [factor.observed(1.0, 0), factor.look(120_000), factor.look(120_001), factor.value]
    [False, False, True, 0.0]

    Attributes:
        value: in force, 0.0 to 1.0.
        is_fallback: true while that is the fallback.
        fallbacks: how often the fallback came into force.
    """

    def __init__(self, *, fallback: float, validity_ms: int, now_ms: int) -> None:
        self._fallback = fallback
        self._validity_ms = validity_ms
        self._valid_from_ms = now_ms
        self.value = 1.0
        self.is_fallback = False
        self.fallbacks = 0

    def observed(self, factor: float, now_ms: int) -> bool:
        """An observation has given this factor; returns whether another one is in force now."""
        self._valid_from_ms = now_ms
        self.is_fallback = False
        return self._replace(factor)

    def look(self, now_ms: int) -> bool:
        """Time has passed, or an observation has failed; returns whether another factor is in force."""
        if self.is_fallback or now_ms <= self._valid_from_ms + self._validity_ms:
            return False
        self.is_fallback = True
        self.fallbacks += 1
        return self._replace(self._fallback)

    def _replace(self, factor: float) -> bool:
        before, self.value = self.value, factor
        return before != factor
