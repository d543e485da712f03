"""How full volumes become a factor: Strimzi's own cases, and the line between soft and hard."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvota.volumes import PerVolumeLimit, SummedUsedLimit, Threshold, Volume

GB = 10**9


def volume(
    available: float, total: float = 100 * GB, *, broker: int = 1, log_dir: str = "/d"
) -> Volume:
    return Volume(
        broker_id=broker, log_dir=log_dir, total_bytes=int(total), available_bytes=int(available)
    )  # fmt: skip


HARD_BYTES = PerVolumeLimit(hard=Threshold(available_bytes=10))
HARD_RATIO = PerVolumeLimit(hard=Threshold(available_ratio=0.1))
SOFT_BYTES = PerVolumeLimit(
    hard=Threshold(available_bytes=GB), soft=Threshold(available_bytes=5 * GB)
)
SOFT_RATIO = PerVolumeLimit(
    hard=Threshold(available_ratio=0.01), soft=Threshold(available_ratio=0.05)
)
MIXED = PerVolumeLimit(hard=Threshold(available_bytes=GB), soft=Threshold(available_ratio=0.05))


@pytest.mark.parametrize(
    ("limit", "available", "total", "factor"),
    [
        (HARD_BYTES, 11, 100, 1.0),
        (HARD_BYTES, 10, 100, 0.0),  # at the limit is a violation
        (HARD_BYTES, 9, 100, 0.0),
        (HARD_BYTES, 9, 10**15, 0.0),  # how large the volume is does not matter
        (HARD_RATIO, 11, 100, 1.0),
        (HARD_RATIO, 10, 100, 0.0),
        (PerVolumeLimit(hard=Threshold(available_ratio=0.0)), 0, 0, 0.0),  # a volume without a size
        (PerVolumeLimit(hard=Threshold(available_bytes=0)), 1, 100, 1.0),
        (PerVolumeLimit(hard=Threshold(available_bytes=0)), 0, 100, 0.0),
        (SOFT_BYTES, 6 * GB, 100 * GB, 1.0),
        (SOFT_BYTES, 5 * GB, 100 * GB, 1.0),
        (SOFT_BYTES, 3 * GB, 100 * GB, 0.5),
        (SOFT_BYTES, GB + 1, 100 * GB, pytest.approx(0.0, abs=1e-9)),
        (SOFT_BYTES, GB, 100 * GB, 0.0),
        (SOFT_RATIO, 2 * GB, 100 * GB, 0.25),
        (MIXED, 2 * GB, 100 * GB, 0.25),  # 5 GB soft on this volume
        (MIXED, 1.5 * GB, 10 * GB, 1.0),  # 0.5 GB soft: below the hard limit, so there is no band
        (MIXED, 1 * GB, 10 * GB, 0.0),
    ],
)
def test_the_factor_of_one_volume(
    limit: PerVolumeLimit, available: float, total: float, factor: float
) -> None:
    assert limit.judge([volume(available, total)]).factor == factor


def test_no_volume_limits_nothing() -> None:
    assert SOFT_BYTES.judge([]).factor == 1.0
    assert SOFT_BYTES.judge([]).most_severe is None


def test_the_fullest_volume_decides_and_is_named() -> None:
    full = volume(2 * GB, broker=2)
    verdict = SOFT_BYTES.judge([volume(50 * GB), volume(4 * GB, broker=3), full])

    assert verdict.factor == 0.25
    assert verdict.most_severe == full
    assert [each.broker_id for each in verdict.breached] == [2, 3]


def test_all_observers_name_the_same_of_equal_volumes() -> None:
    # By number, not as texts: 9 comes before 10.
    volumes = [volume(0, broker=10), volume(0, broker=9, log_dir="/e"), volume(0, broker=9)]

    for order in (volumes, volumes[::-1]):
        severe = HARD_BYTES.judge(order).most_severe
        assert severe is not None
        assert (severe.broker_id, severe.log_dir) == (9, "/d")


@pytest.mark.parametrize(
    ("used", "factor"),
    [(0, 1.0), (800, 1.0), (801, 0.99), (850, 0.5), (899, 0.01), (900, 0.0), (10**6, 0.0)],
)
def test_used_bytes_of_the_first_generation(used: int, factor: float) -> None:
    limit = SummedUsedLimit(soft_bytes=800, hard_bytes=900)

    assert limit.judge([volume(10**6 - used, 10**6)]).factor == factor


def test_used_bytes_are_summed() -> None:
    limit = SummedUsedLimit(soft_bytes=800, hard_bytes=900)

    verdict = limit.judge([volume(500, 1000), volume(650, 1000, log_dir="/e")])

    assert verdict.factor == 0.5
    assert [each.log_dir for each in verdict.breached] == ["/d", "/e"]


def test_a_soft_limit_above_the_hard_one_opens_no_band() -> None:
    limit = SummedUsedLimit(soft_bytes=900, hard_bytes=800)

    assert [limit.factor(used) for used in (799, 800, 850, 901)] == [1.0, 0.0, 0.0, 0.0]


sizes = st.integers(0, 10**15)
ratios = st.floats(0, 1)
thresholds = st.builds(Threshold, available_bytes=sizes) | st.builds(
    Threshold, available_ratio=ratios
)


@given(
    hard=thresholds, soft=thresholds | st.none(), total=sizes, parts=st.lists(ratios, max_size=20)
)
def test_more_space_never_means_less(
    hard: Threshold, soft: Threshold | None, total: int, parts: list[float]
) -> None:
    limit = PerVolumeLimit(hard=hard, soft=soft)
    available = sorted(int(part * total) for part in parts)

    factors = [limit.factor(volume(each, total)) for each in available]

    assert factors == sorted(factors)
    assert all(0.0 <= factor <= 1.0 for factor in factors)


@given(
    hard=st.integers(0, 10**12),
    band=st.integers(1, 10**12),
    over=ratios,
)
def test_the_line_is_continuous_at_both_ends(hard: int, band: int, over: float) -> None:
    limit = PerVolumeLimit(
        hard=Threshold(available_bytes=hard), soft=Threshold(available_bytes=hard + band)
    )
    available = hard + int(over * band)

    factor = limit.factor(volume(available, 10**13))

    assert factor == pytest.approx((available - hard) / band)


def test_of_volumes_with_the_same_factor_the_one_with_the_least_part_left_is_named() -> None:
    """Before the broker's number counts; else observers that see other brokers first would name another one."""
    limit = PerVolumeLimit(hard=Threshold(available_bytes=50))
    small = Volume(broker_id=1, log_dir="/d", total_bytes=100, available_bytes=20)
    large = Volume(broker_id=2, log_dir="/d", total_bytes=1000, available_bytes=20)

    assert limit.judge([small, large]).breached == (large, small)
