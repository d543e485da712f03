"""What a callback need not write itself."""

import pytest

from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.tags import Tags


class OneForAll(ClientQuotaCallback):
    """The least that a callback has to say."""

    def quota_metric_tags(self, quota_type: QuotaType, user: str, client_id: str) -> Tags:
        return {}

    def quota_limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        return 5.0

    def update_quota(self, quota_type: QuotaType, entity: QuotaEntity, limit: float) -> None:
        pass

    def remove_quota(self, quota_type: QuotaType, entity: QuotaEntity) -> None:
        pass

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        return False


def test_everything_else_has_a_sensible_default() -> None:
    callback = OneForAll()

    callback.configure({"client.quota.callback.class": "x"})
    callback.close()

    assert not callback.answers_at_once  # it is asked apart unless it says otherwise
    assert all(callback.enabled(quota_type) for quota_type in QuotaType)
    assert callback.update_cluster_metadata({"topic": [1]}) is False
    assert callback.initial_quotas == ConfiguredQuotas()


def test_a_callback_that_leaves_something_out_is_none() -> None:
    class Half(ClientQuotaCallback):
        def quota_limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
            return None

    with pytest.raises(TypeError, match="abstract"):
        Half()  # type: ignore[abstract]
