"""Whose counter a charge of a log was on, and which limit held: by the quotas that were in force. Pure."""

from typing import NamedTuple

from kvota.callbacks.default import DefaultQuotaCallback
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_type import FACTS, Algorithm, QuotaType
from kvota.model.quota_window import QuotaWindow
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, tags_text

# A log has so many different users and client ids, or they are not worth remembering.
_COUNTED_MAX = 100_000

# Of a broker whose settings do not say otherwise.
_WINDOW = QuotaWindow(11, 1000)


class Counted(NamedTuple):
    """How a charge was counted.

    Attributes:
        tags: of the counter.
        limit: in force, per second; None: unlimited.
        samples: of the window; 0: there was no quota of the type, and nothing was counted.
        sample_ms: their length.
        algorithm: of the counter.
    """

    tags: str
    limit: float | None
    samples: int
    sample_ms: int
    algorithm: Algorithm


class LogQuotas:
    """The quotas that were in force while a log was written."""

    def __init__(self, quotas: ConfiguredQuotas | None = None) -> None:
        self._callback = DefaultQuotaCallback(quotas)
        self._counted: dict[tuple[QuotaType, str, str], Counted] = {}

    def counted(self, quota_type: QuotaType, user: str, client_id: str) -> Counted:
        """Return how a client's charges were counted; without a quota of the type, user by user."""
        key = quota_type, user, client_id
        found = self._counted.get(key)
        if found is None:
            if len(self._counted) >= _COUNTED_MAX:
                self._counted.clear()
            found = self._counted[key] = self._looked_up(quota_type, user, client_id)
        return found

    def _looked_up(self, quota_type: QuotaType, user: str, client_id: str) -> Counted:
        algorithm = FACTS[quota_type].algorithms[0]
        if not self._callback.enabled(quota_type):
            of_user = tags_text({USER_TAG: user, CLIENT_ID_TAG: ""})
            return Counted(of_user, None, 0, 0, algorithm)
        tags = self._callback.quota_metric_tags(quota_type, user, client_id)
        limit = self._callback.quota_limit(quota_type, tags)
        return Counted(tags_text(tags), limit, _WINDOW.samples, _WINDOW.sample_ms, algorithm)
