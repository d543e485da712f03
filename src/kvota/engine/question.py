"""What a quota callback is asked about one client, and what it answered."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from numbers import Real
from types import MappingProxyType

from kvota.model.errors import CallbackError
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_type import CLUSTER_NODE_ID, QuotaType
from kvota.model.tags import Tags, tags_text

# Of the text of one client's tags: four names of 1 KB, each character of which is encoded by three.
_TAGS_CHARS_MAX = 16_384

# Quota type, node, user, client id. The node is the counter's, or CLUSTER_NODE_ID where limits are the same
# at all brokers.
ClientKey = tuple[QuotaType, int, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Which counter a client is charged on, and its limit per second (None: unlimited).

    Attributes:
        tags: of the counter.
        text: the same as a record has them.
        limit: the counter's.
        is_counted: false where no client has a limit of this type: charges are only observed.
        is_fallback: another callback has answered, because the one in force has not.
    """

    tags: Tags
    text: str
    limit: float | None
    is_counted: bool = True
    is_fallback: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Whose counter is it, and what is its limit? May be asked on any thread.

    Attributes:
        quota_type, user, client_id: of whom.
        node_id: whose counter it is, where limits differ from broker to broker; else CLUSTER_NODE_ID.
        reset_count: how often all answers of this type had become old when it came up.
        generation: how many callbacks there had been.
    """

    quota_type: QuotaType
    user: str
    client_id: str
    node_id: int = CLUSTER_NODE_ID
    reset_count: int = 0
    generation: int = 1

    @property
    def key(self) -> ClientKey:
        """Of whom it is asked, whenever."""
        return self.quota_type, self.node_id, self.user, self.client_id

    def ask(self, callback: ClientQuotaCallback) -> Answer:
        """What the callback says.

        Raises:
            CallbackError: tags that are no mapping of texts, or a limit that is no number from 0 on.
            Exception: whatever the callback itself raises.
        """
        return ask(callback, self.quota_type, self.node_id, self.user, self.client_id)


def asks_by_broker(callback: ClientQuotaCallback) -> bool:
    """True where the callback's limits can differ from broker to broker."""
    return type(callback).broker_limit is not ClientQuotaCallback.broker_limit


def ask(
    callback: ClientQuotaCallback, quota_type: QuotaType, node_id: int, user: str, client_id: str
) -> Answer:
    """What the callback says of one client; see ``Question.ask``."""
    tags, text = _checked_tags(callback, callback.quota_metric_tags(quota_type, user, client_id))
    return Answer(
        tags=tags,
        text=text,
        limit=limit_of(callback, quota_type, tags, node_id),
        is_counted=bool(callback.enabled(quota_type)),
    )


def limit_of(
    callback: ClientQuotaCallback, quota_type: QuotaType, tags: Tags, node_id: int
) -> float | None:
    """What the callback says of one counter; infinity is no limit.

    Raises:
        CallbackError: a limit that is no number from 0 on.
        Exception: whatever the callback itself raises.
    """
    return _checked_limit(callback, callback.broker_limit(quota_type, tags, node_id))


def _checked_tags(callback: ClientQuotaCallback, told: object) -> tuple[Tags, str]:
    if not isinstance(told, Mapping):
        raise CallbackError(callback, "quota_metric_tags", told, "a mapping of texts to texts")
    tags = dict(told)
    if not all(isinstance(key, str) and isinstance(tags[key], str) for key in tags):
        raise CallbackError(callback, "quota_metric_tags", tags, "a mapping of texts to texts")
    try:
        "".join(tags).join(tags.values()).encode()
    except UnicodeEncodeError:  # half a surrogate pair would become a "?", as others do
        raise CallbackError(callback, "quota_metric_tags", tags, "texts of Unicode") from None
    text = tags_text(tags)
    if len(text) > _TAGS_CHARS_MAX:
        expected = f"at most {_TAGS_CHARS_MAX} characters"
        more = f" (these are {len(text)})"
        raise CallbackError(callback, "quota_metric_tags", tags, expected, more=more)
    return MappingProxyType(tags), text


def _checked_limit(callback: ClientQuotaCallback, told: object) -> float | None:
    if told is None:
        return None
    if type(told) is not float and not isinstance(told, bool) and isinstance(told, Real):
        with suppress(OverflowError):
            told = float(told)
    if type(told) is float and told >= 0:  # NaN is not
        return told if told < inf else None
    raise CallbackError(callback, "quota_limit", told, "None or a number from 0 on")
