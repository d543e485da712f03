"""Brokers and gateways are restarted in order under Kafka's verifiable clients, and nothing is lost or there twice."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.endurance.judging import judge_group
from tests.endurance.rolling import Rolling, run_rolling

from kvota.localkafka import LocalKafka
from kvota.model.quota_type import Algorithm

PLAN = Rolling(
    seconds=0.0,
    between_s=0.5,
    verifiable_per_s=200,
    libraries=["librdkafka"],
    producers=1,
    records_per_s=200,
    limit=20_000,
    protocols=["consumer"],
    members=1,
    with_copy=False,  # test_kills has one
)


def test_what_was_acknowledged_is_there_once_and_seen(kafka: LocalKafka, tmp_path: Path) -> None:
    found = run_rolling(kafka, tmp_path, Algorithm.TOKEN_BUCKET, PLAN)

    assert found.missed == [], found.figures


Event = Mapping[str, Any]


def saw(at_ms: int, offset: int) -> Event:
    return {"name": "record_data", "timestamp": at_ms, "partition": 0, "offset": offset}


def committed(at_ms: int, offset: int, *, success: bool = True) -> Event:
    offsets = [{"partition": 0, "offset": offset}]
    return {
        "name": "offsets_committed",
        "timestamp": at_ms,
        "offsets": offsets,
        "success": success,
    }


@pytest.mark.parametrize(
    ("events", "missed"),
    [
        ([saw(1, 0), saw(1, 1), committed(2, 2)], []),
        ([saw(1, 0), committed(2, 1, success=False), saw(3, 0), saw(3, 1), committed(4, 2)], []),
        ([saw(1, 0), committed(2, 2)], ["1 records were not seen"]),
        ([saw(1, 0), saw(1, 1), committed(2, 1)], ["1 were not committed at the end"]),
        (
            [saw(1, 0), committed(2, 1), saw(3, 0), saw(3, 1), committed(4, 2)],
            ["1 came after their commit"],
        ),
        (
            [saw(1, 0), saw(1, 1), saw(1, 2), committed(2, 2)],
            ["something was seen that is not in the log"],
        ),
    ],
)
def test_a_group_is_judged_by_what_it_has_committed(events: list[Event], missed: list[str]) -> None:
    assert judge_group([["a", "b"]], events).missed == missed
