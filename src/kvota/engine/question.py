"""What a quota callback is asked about one client, and what it answered."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from types import MappingProxyType

from kvota.model.errors import CallbackError
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_type import QuotaType
from kvota.model.tags import Tags, tags_text

# A value in an error's text is not longer than this.
_SHOWN_MAX = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Which counter a client is charged on, and its limit per second (None: unlimited)."""

    tags: Tags
    text: str
    limit: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Whose counter is it, and what is its limit? May be asked on any thread.

    ``reset_count`` says how often all answers of this type had been forgotten when it came up.
    """

    quota_type: QuotaType
    user: str
    client_id: str
    reset_count: int

    def ask(self, callback: ClientQuotaCallback) -> Answer:
        """What the callback says.

        Raises:
            CallbackError: tags that are no mapping of texts, or a limit that is no number from 0 on.
            Exception: whatever the callback itself raises.
        """
        return ask(callback, self.quota_type, self.user, self.client_id)


def ask(callback: ClientQuotaCallback, quota_type: QuotaType, user: str, client_id: str) -> Answer:
    """What the callback says of one client; see ``Question.ask``."""
    tags = _checked_tags(callback, callback.quota_metric_tags(quota_type, user, client_id))
    limit = _checked_limit(callback, callback.quota_limit(quota_type, tags))
    return Answer(tags=tags, text=tags_text(tags), limit=limit)


def _checked_tags(callback: ClientQuotaCallback, told: object) -> Tags:
    if not isinstance(told, Mapping):
        raise _refused(callback, "quota_metric_tags", told, "a mapping of texts to texts")
    tags = dict(told)
    if not all(isinstance(key, str) and isinstance(tags[key], str) for key in tags):
        raise _refused(callback, "quota_metric_tags", tags, "a mapping of texts to texts")
    return MappingProxyType(tags)


def _checked_limit(callback: ClientQuotaCallback, told: object) -> float | None:
    if told is None:
        return None
    if type(told) is not float and not isinstance(told, bool) and isinstance(told, Real):
        with suppress(OverflowError):
            told = float(told)
    if type(told) is float and told >= 0:  # NaN is not
        return told
    raise _refused(callback, "quota_limit", told, "None or a number from 0 on")


def _refused(
    callback: ClientQuotaCallback, method: str, value: object, expected: str
) -> CallbackError:
    of_class = type(callback)
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN_MAX else f"{shown[: _SHOWN_MAX - 1]}…"
    msg = f"{of_class.__module__}.{of_class.__qualname__}.{method} answered {shown}, not {expected}"
    return CallbackError(msg)
