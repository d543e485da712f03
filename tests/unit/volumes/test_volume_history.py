"""Several log directories on one device count once."""

import numpy as np

from kvota.volumes.volume_history import VolumeHistory, one_per_device, together

HOUR_US = 3_600_000_000


def history(
    log_dir: str,
    *usable: int,
    broker_id: int | None = 1,
    observer: str = "",
    device: str | None = None,
    total: int = 1_000_000,
    late_us: int = 0,
) -> VolumeHistory:
    times = HOUR_US * np.arange(len(usable), dtype=np.int64) + late_us
    return VolumeHistory(
        observer=observer,
        broker_id=broker_id,
        log_dirs=(log_dir,),
        device=device,
        ts_us=times,
        total_bytes=np.full(len(usable), total),
        usable_bytes=np.array(usable),
    )


def test_directories_that_are_always_equally_full_are_on_one_device() -> None:
    found = one_per_device(
        [history("/b", 900_000, 800_000), history("/a", 900_100, 800_050, late_us=1_000)]
    )

    assert [each.log_dirs for each in found] == [("/a", "/b")]


def test_disks_of_one_size_that_fill_apart_are_two() -> None:
    found = one_per_device([history("/a", 900_000, 800_000), history("/b", 900_000, 700_000)])

    assert [each.log_dirs for each in found] == [("/a",), ("/b",)]


def test_the_device_decides_where_it_is_known() -> None:
    one = history("/a", 900_000, device="8:1", broker_id=None, observer="gw")
    same = history("/b", 100_000, device="8:1", broker_id=None, observer="gw")
    other = history("/c", 900_000, device="8:2", broker_id=None, observer="gw")

    found = one_per_device([one, same, other])

    assert [each.log_dirs for each in found] == [("/a", "/b"), ("/c",)]


def test_brokers_have_disks_of_their_own() -> None:
    found = one_per_device([history("/a", 900_000), history("/a", 900_000, broker_id=2)])

    assert [each.broker_id for each in found] == [1, 2]


def test_a_sum_begins_when_all_are_known() -> None:
    found = together([history("/a", 10, 20, 30), history("/b", 100, 200, late_us=HOUR_US)])

    assert found.usable_bytes.tolist() == [120, 230]
    assert found.log_dirs == ("/a", "/b")
