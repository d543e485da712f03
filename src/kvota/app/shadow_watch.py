"""Tries the file of ``quotas.shadow`` on what passes, and shows what it would do."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from kvota.app.config import GatewayConfig
from kvota.app.dynamic_settings import RunningConfig
from kvota.app.shadow_file import ShadowFile
from kvota.metrics.shadow_quotas import PackedRows, ShadowCounter, ShadowQuotas
from kvota.metrics.tally import Tally
from kvota.model.client_quotas import ClientQuotas
from kvota.model.clock import Clock
from kvota.model.decision_sink import ChargeMemo
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, tag_value

# Each row takes about 1 us of the interpreter, which the thread that runs the gateway wants as well.
_ROWS_AT_ONCE = 250
_BREATH_S = 0.0003


class ShadowWatch:
    """Is shown rows in place of the tally, which it shows them to first.

    Every second it looks what is in force and which file there is. All but the making is called on the thread that counts.

    Args:
        tally: sums the decisions up.
        running: what the gateway runs by.
        in_force: its quotas.
        clock: Unix time.

    Attributes:
        tally: the same.
    """

    def __init__(
        self,
        tally: Tally,
        running: RunningConfig,
        in_force: Callable[[], ClientQuotas],
        clock: Clock,
    ) -> None:
        self.tally = tally
        self._running = running
        self._in_force = in_force
        self._clock = clock
        self._file: ShadowFile | None = None
        self._basis: tuple[GatewayConfig, ClientQuotas] | None = None
        self._shadow: ShadowQuotas | None = None

    def take(self, rows: PackedRows, memos: Sequence[ChargeMemo]) -> None:
        """Take the next rows."""
        self.tally.take(rows, memos)
        self._follow()
        if self._shadow is None:
            return
        for begin in range(0, len(rows), _ROWS_AT_ONCE):
            self._shadow.take(rows[begin : begin + _ROWS_AT_ONCE], memos)
            time.sleep(_BREATH_S)

    def look(self, now_ms: int) -> None:
        """Some time has passed."""
        self.tally.look(now_ms)
        self._follow()
        if self._shadow is not None:
            self._shadow.look(now_ms)

    def view(self, at_most: int) -> dict[str, Any]:
        """What ``/v1/shadow`` shows; without a file there is none of it."""
        self._follow()
        file, shadow = self._file, self._shadow
        if file is None or shadow is None:
            return {"file": None}
        found = shadow.worst()
        return {
            "file": str(file.path),
            "digest": file.digest,
            "since_ms": shadow.since_ms,
            "decisions": sum(one.decisions for one in found) + shadow.unlisted,
            "counters": len(found),
            "counters_that_would_hold": sum(one.held > 0 for one in found),
            "worst": [_shown(one) for one in found[:at_most]],
        }

    def _follow(self) -> None:
        """Another file begins anew; other quotas in force, windows or algorithms go on."""
        config, quotas = self._running.config, self._in_force()
        if self._basis is not None and self._basis[0] is config and self._basis[1] is quotas:
            return
        self._basis = config, quotas
        # Kafka's tools may have chosen a callback since; its limits are not those of a file.
        file = config.shadow if config.kafka.callback.is_default else None
        if file is None:
            self._file = self._shadow = None
            return
        configured = file.quotas(quotas).configured()
        if self._shadow is None or self._file is None or self._file.digest != file.digest:
            now_ms = self._clock.now_us() // 1000
            self._shadow = ShadowQuotas(
                configured, config.windows, config.quotas.buckets, since_ms=now_ms
            )
        else:
            self._shadow.replace(configured, config.windows, config.quotas.buckets)
        self._file = file


def _shown(one: ShadowCounter) -> dict[str, Any]:
    return {
        "quota_type": one.key.quota_type.value,
        "tags": one.key.tags,
        "user": tag_value(one.key.tags, USER_TAG) or None,
        "client_id": tag_value(one.key.tags, CLIENT_ID_TAG) or None,
        "node_id": one.key.node_id,
        "limit_per_s": one.limit,
        "limit_in_force_per_s": one.in_force,
        "decisions": one.decisions,
        "would_be_held": one.held,
        "longest_wait_ms": one.longest_ms,
        "charged": one.charged,
    }
