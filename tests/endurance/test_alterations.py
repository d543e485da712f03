"""Quotas outlive a gateway that is killed while they are altered."""

from pathlib import Path

import pytest
from tests.endurance.alterations import STORES, Alterations, run_alterations

from kvota.localkafka import LocalKafka

PLAN = Alterations(kills=4, users=1_500, many=1_200, seed=9)


@pytest.mark.parametrize("store", STORES)
def test_what_was_acknowledged_is_there_and_nothing_is_half(
    kafka: LocalKafka, tmp_path: Path, store: str
) -> None:
    found = run_alterations(kafka, tmp_path, store, PLAN)

    assert found.missed == [], found.figures
