"""A callback as somebody may write it, and how it misbehaves."""

import threading
import time
from collections.abc import Callable, Mapping

from kvota.callbacks import ClientQuotaCallback, ClusterView, QuotaEntity, QuotaType, Tags


class OwnCallback(ClientQuotaCallback):
    """All clients of a team share a counter; keeps what it was called with, and does as ``acts`` says.

    Attributes:
        calls: method and arguments, in their order.
        acts: by method, called in place of what the method does.
        limit: of every team.
        gate: those calls wait for it whose method is in ``waits``.
    """

    def __init__(self, limit: float | None = 1_000.0) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.acts: dict[str, Callable[[], object]] = {}
        self.limit = limit
        self.resets: set[QuotaType] = set()
        self.waits: set[str] = set()
        self.gate = threading.Event()
        self.threads: set[str] = set()

    def _did(self, method: str, *arguments: object) -> object:
        self.calls.append((method, *arguments))
        self.threads.add(threading.current_thread().name)
        if method in self.waits:
            self.gate.wait(20)
        return self.acts[method]() if method in self.acts else None

    def of(self, method: str) -> list[tuple[object, ...]]:
        """The arguments of this method's calls."""
        return [call[1:] for call in self.calls if call[0] == method]

    def configure(self, properties: Mapping[str, str]) -> None:
        self._did("configure", dict(properties))

    def quota_metric_tags(self, quota_type: QuotaType, user: str, client_id: str) -> Tags:
        told = self._did("quota_metric_tags", quota_type, user, client_id)
        return {"team": client_id.partition("-")[0]} if told is None else told  # type: ignore[return-value]

    def quota_limit(self, quota_type: QuotaType, tags: Tags) -> float | None:
        told = self._did("quota_limit", quota_type, dict(tags))
        return self.limit if told is None else told  # type: ignore[return-value]

    def update_quota(self, quota_type: QuotaType, entity: QuotaEntity, limit: float) -> None:
        self.limit = limit
        self._did("update_quota", quota_type, entity, limit)

    def remove_quota(self, quota_type: QuotaType, entity: QuotaEntity) -> None:
        self.limit = None
        self._did("remove_quota", quota_type, entity)

    def quota_reset_required(self, quota_type: QuotaType) -> bool:
        told = self._did("quota_reset_required", quota_type)
        is_due = quota_type in self.resets
        self.resets.discard(quota_type)
        return is_due if told is None else told  # type: ignore[return-value]

    def update_cluster_metadata(self, cluster: ClusterView) -> bool:
        told = self._did("update_cluster_metadata", cluster)
        return False if told is None else told  # type: ignore[return-value]

    def close(self) -> None:
        self._did("close")


def fails() -> None:
    msg = "no directory of users"
    raise LookupError(msg)


def sleeps() -> None:
    time.sleep(10)
