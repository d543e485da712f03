"""A callback as others may write one: not a look-up at once, with tags of its own."""

from kvota.model.quota_callback import ClientQuotaCallback
from kvota.model.quota_entity import QuotaEntity
from kvota.model.quota_type import QuotaType
from kvota.model.tags import Tags


class TeamCallback(ClientQuotaCallback):
    """Users called ``team-name`` share their team's counter; others, and teams without one, ``none``."""

    def __init__(self, **limits: float) -> None:
        self.limits = dict(limits)
        self.asked: list[str] = []
        self.resets: set[QuotaType] = set()
        self.is_enabled = True

    def quota_metric_tags(self, quota_type: QuotaType, user: str, client_id: str) -> Tags:
        self.asked.append(user)
        team = user.partition("-")[0]
        return {"team": team if team in self.limits else "none"}

    def quota_limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        return self.limits.get(tags["team"])

    def update_quota(self, quota_type: QuotaType, entity: QuotaEntity, limit: float) -> None:
        self.limits[str(entity.user)] = limit

    def remove_quota(self, quota_type: QuotaType, entity: QuotaEntity) -> None:
        self.limits.pop(str(entity.user), None)

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        is_required = quota_type in self.resets
        self.resets.discard(quota_type)
        return is_required

    def enabled(self, quota_type: QuotaType) -> bool:
        return self.is_enabled
