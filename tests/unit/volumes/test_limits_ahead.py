"""Each limit of each volume has its row."""

import numpy as np

from kvota.volumes import PerVolumeLimit, SummedUsedLimit, Threshold
from kvota.volumes.limits_ahead import limits_ahead
from kvota.volumes.volume_history import VolumeHistory

HOUR_US = 3_600_000_000
TOTAL = 1_000_000_000


def history(
    broker_id: int | None, per_hour: int, *, hours: int = 100, ended_h: int = 0
) -> VolumeHistory:
    hour = np.arange(hours + 1, dtype=np.int64)
    return VolumeHistory(
        observer="" if broker_id is not None else "gw",
        broker_id=broker_id,
        log_dirs=(f"/d{broker_id}",),
        device=None,
        ts_us=HOUR_US * (hour - ended_h),
        total_bytes=np.full(len(hour), TOTAL),
        usable_bytes=TOTAL // 2 - per_hour * (hour - hours),
    )


def test_soft_hard_and_full_are_reached_one_after_the_other() -> None:
    limit = PerVolumeLimit(
        hard=Threshold(available_bytes=400_000_000), soft=Threshold(available_ratio=0.45)
    )

    rows = limits_ahead([history(1, 5_000_000)], limit, horizon_h=200).rows

    assert [(row.kind, row.limit_bytes) for row in rows] == [
        ("soft", 550_000_000),
        ("hard", 600_000_000),
        ("full", TOTAL),
    ]
    assert [round(row.reached.hours_p50 or -1) for row in rows] == [10, 20, 100]


def test_without_limits_a_volume_is_only_full() -> None:
    assert [row.kind for row in limits_ahead([history(1, 5)], None, horizon_h=5).rows] == ["full"]


def test_what_is_reached_first_comes_first() -> None:
    rows = limits_ahead([history(1, 1), history(2, 5_000_000)], None, horizon_h=200).rows

    assert [row.history.broker_id for row in rows] == [2, 1]


def test_used_bytes_of_a_machine_are_summed() -> None:
    limit = SummedUsedLimit(soft_bytes=550_000_000, hard_bytes=2**63 - 1)

    rows = limits_ahead([history(None, 5_000_000)], limit, horizon_h=100).rows

    assert [row.kind for row in rows] == ["soft", "full"]  # a limit above its size is never reached
    assert round(rows[0].reached.hours_p50 or -1) == 10


def test_a_volume_that_has_gone_is_left_out() -> None:
    ahead = limits_ahead([history(1, 5), history(2, 5, ended_h=30)], None, horizon_h=5)

    assert [row.history.broker_id for row in ahead.rows] == [1]
    assert [each.broker_id for each in ahead.gone] == [2]


def test_a_volume_that_was_seen_once_is_left_out() -> None:
    ahead = limits_ahead([history(1, 5, hours=0)], None, horizon_h=5)

    assert not ahead.rows
    assert [each.broker_id for each in ahead.seen_once] == [1]
