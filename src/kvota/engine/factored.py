"""Which types a factor may be laid over, and over whose limits none is."""

from dataclasses import dataclass, replace

from kvota.engine.question import Answer
from kvota.model.quota_type import QuotaType
from kvota.model.tags import EXCLUDED_TAG

_APART = f"{EXCLUDED_TAG}=true"


@dataclass(frozen=True, slots=True)
class Factored:
    """What a factor needs to reach all clients but some.

    Attributes:
        quota_types: all clients of these are counted, those without a quota, too: a factor of 0 stops them.
        excluded: users that are counted apart, over whose limits of these types no factor is laid.
    """

    quota_types: frozenset[QuotaType] = frozenset()
    excluded: frozenset[str] = frozenset()

    def as_counted(self, quota_type: QuotaType, user: str, answer: Answer) -> Answer:
        """What the callback says of a client, as it is counted."""
        if quota_type not in self.quota_types:
            return answer
        if user in self.excluded and EXCLUDED_TAG not in answer.tags:
            # The tags stay the callback's own: it is asked by them for the limit.
            return replace(answer, text=_text_apart(answer.text), is_counted=True)
        return answer if answer.is_counted else replace(answer, is_counted=True)

    def with_those_apart(self, quota_type: QuotaType, texts: list[str]) -> list[str]:
        """Of counters by the text of their tags, with those of excluded users that have the same limits."""
        if quota_type not in self.quota_types or not self.excluded:
            return texts
        return [*texts, *map(_text_apart, texts)]


def _text_apart(text: str) -> str:
    return f"{text},{_APART}" if text else _APART
