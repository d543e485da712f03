"""When a callback that has failed about a client is asked again."""

from kvota.engine import Question
from kvota.engine.question import ClientKey

# After so long, then twice as long, up to the second.
_PAUSE_S, _PAUSE_S_MAX = 1.0, 30.0


class CallbackRetries:
    """The clients about whom a callback has failed, and until when each is left alone."""

    def __init__(self) -> None:
        self._until: dict[ClientKey, tuple[float, float]] = {}  # and the pause then

    def failed(self, key: ClientKey, now_s: float) -> None:
        """There is no answer about this client."""
        _, pause_s = self._until.get(key, (0.0, _PAUSE_S / 2))
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)
        self._until[key] = now_s + pause_s, pause_s

    def succeeded(self, key: ClientKey) -> None:
        """There is one."""
        self._until.pop(key, None)

    def due(self, questions: list[Question], now_s: float) -> list[Question]:
        """Those of these that may be asked now; who is not among them is forgotten."""
        if not self._until:
            return questions
        kept = {question.key for question in questions}
        self._until = {key: until for key, until in self._until.items() if key in kept}
        return [q for q in questions if self._until.get(q.key, (0.0, 0.0))[0] <= now_s]

    def clear(self) -> None:
        """Another callback is asked from now on."""
        self._until.clear()
