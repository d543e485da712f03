"""Nothing that was reported as delivered is lost, or there twice, where new producer ids are refused."""

from pathlib import Path

import pytest
from tests.endurance.id_storms import LIBRARIES, IdStorm, run_id_storm

PLAN = IdStorm(
    libraries=LIBRARIES,
    producers=3,
    records=40,
    rate=2,
    window_s=4,
    victims=["broker", "gateway"],
    between_s=2.0,
)


@pytest.mark.timeout(600)
def test_what_crash_looping_producers_were_told_is_true(tmp_path: Path) -> None:
    found = run_id_storm(tmp_path, PLAN)

    assert found.missed == [], found.figures
