"""The compiled law against the engine, without Spark."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from kvota.engine.arithmetic import BLOCKED_THROTTLE_MS
from kvota.model.event import EVENT_COLUMNS
from kvota.model.quota_type import FACTS, QuotaType
from kvota.pipeline.kernels.law_kernel import STATE_SIZE, TOKENS_SIZE, law_rows
from kvota.testing.recorded_traffic import EventRow, RecordedTraffic

COLUMN = {column.name: place for place, column in enumerate(EVENT_COLUMNS)}
STRICT_SINCE = {19: 6, 20: 5, 37: 3}
OUTCOMES = ("admitted", "throttled", "rejected")

# A worst case for one batch: more samples than the recorded windows have.
SLOTS = 12


def recorded(seed: int, count: int) -> list[EventRow]:
    rows = list(RecordedTraffic(seed, enforced=True).rows(count))
    return sorted(
        rows,
        key=lambda row: (row[COLUMN["node_id"]], row[COLUMN["quota_type"]], row[COLUMN["tags"]]),
    )


def numbers(rows: list[EventRow], name: str) -> np.ndarray:
    return np.array([row[COLUMN[name]] for row in rows])


def is_debt(rows: list[EventRow]) -> np.ndarray:
    is_bandwidth = numbers(rows, "quota_type") != "CONTROLLER_MUTATION"
    return is_bandwidth & (numbers(rows, "algorithm") == "token_bucket")


def replayed(
    rows: list[EventRow], cuts: list[int], *, complete: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    keys = [
        (row[COLUMN["node_id"]], row[COLUMN["quota_type"]], row[COLUMN["tags"]]) for row in rows
    ]
    first = np.array([place == 0 or keys[place] != keys[place - 1] for place in range(len(keys))])
    api = zip(numbers(rows, "api_key"), numbers(rows, "api_version"), strict=True)
    limits = [row[COLUMN["limit"]] for row in rows]
    columns = (
        first,
        np.full(len(rows), complete),
        numbers(rows, "quota_type") == "CONTROLLER_MUTATION",
        numbers(rows, "quota_type") == "REQUEST",
        is_debt(rows),
        np.array([version >= STRICT_SINCE.get(key, 99) for key, version in api]),
        numbers(rows, "quota_type") == "PRODUCE",
        (numbers(rows, "quota_type") != "CONTROLLER_MUTATION")
        & (numbers(rows, "outcome") == "rejected"),
        numbers(rows, "ts_us").astype(np.int64),
        numbers(rows, "value").astype(np.float64),
        np.array([np.nan if limit is None else limit for limit in limits], np.float64),
        np.array([FACTS[kind].floor for kind in numbers(rows, "quota_type").tolist()], np.float64),
        numbers(rows, "samples").astype(np.int64),
        numbers(rows, "sample_ms").astype(np.int64),
    )
    state = (
        np.zeros(STATE_SIZE, np.int64),
        np.zeros(TOKENS_SIZE),
        np.zeros(SLOTS, np.int64),
        np.zeros(SLOTS, np.int64),
        np.zeros(SLOTS),
    )
    throttle_ms = np.full(len(rows), -7, np.int32)
    outcome = np.full(len(rows), -7, np.int8)
    judged = np.zeros(len(rows), np.bool_)
    for start, end in pieces(cuts, len(rows)):
        law_rows(
            *(column[start:end] for column in columns),
            *state,
            throttle_ms[start:end],
            outcome[start:end],
            judged[start:end],
        )
    return throttle_ms, outcome, judged


def pieces(cuts: list[int], length: int) -> Iterator[tuple[int, int]]:
    edges = [0, *cuts, length]
    yield from pairwise(edges)


@pytest.mark.parametrize("seed", range(5))
def test_every_decision_of_the_engine_is_replayed_to_the_millisecond(seed: int) -> None:
    rows = recorded(seed, 20_000)

    throttle_ms, outcome, judged = replayed(rows, [])

    assert judged.all()
    assert throttle_ms.tolist() == numbers(rows, "throttle_ms").tolist()
    assert [OUTCOMES[code] for code in outcome] == numbers(rows, "outcome").tolist()


def test_no_decision_depends_on_where_the_rows_are_cut() -> None:
    rows = recorded(3, 3_000)
    cuts = sorted(random.Random(1).sample(range(len(rows)), 700))

    whole = replayed(rows, [])
    in_pieces = replayed(rows, cuts)

    assert [part.tolist() for part in in_pieces] == [part.tolist() for part in whole]


def test_without_the_start_of_the_run_a_rate_is_judged_after_its_window_and_a_bucket_never() -> (
    None
):
    rows = recorded(4, 4_000)
    is_rate = numbers(rows, "algorithm") == "sampled_rate"
    is_bucket = numbers(rows, "quota_type") == "CONTROLLER_MUTATION"
    counts = numbers(rows, "samples") > 0

    _, _, judged = replayed(rows, [], complete=False)

    assert 0.5 < judged[is_rate & counts].mean() < 1
    assert judged[is_bucket & counts].mean() < 0.5
    assert judged[~counts].all()


def test_uncompiled_the_kernel_decides_the_same_and_stays_within_its_arrays() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_law_kernel as t; "
        "rows = t.recorded(5, 3_000); throttle_ms, _, _ = t.replayed(rows, [1_000]); "
        "assert type(t.law_rows).__name__ == 'function'; "
        "print(throttle_ms.tolist() == t.numbers(rows, 'throttle_ms').tolist())"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert (done.stdout.strip(), done.stderr) == ("True", "")


KINDS = ("PRODUCE", "FETCH", "CONTROLLER_MUTATION")


def is_blocked(row: EventRow) -> bool:
    limit = row[COLUMN["limit"]]
    floor = FACTS[QuotaType(str(row[COLUMN["quota_type"]]))].floor
    return isinstance(limit, float) and limit < floor


@pytest.mark.parametrize("kind", KINDS)
def test_every_charge_under_a_blocked_limit_is_replayed_as_30_s(kind: str) -> None:
    rows = recorded(1, 30_000)
    blocked = [
        place
        for place, row in enumerate(rows)
        if is_blocked(row) and row[COLUMN["quota_type"]] == kind
    ]

    throttle_ms, outcome, _ = replayed(rows, [])

    assert len(blocked) >= 30
    values = numbers(rows, "value")
    charged = [place for place in blocked if values[place] >= 0]
    assert set(throttle_ms[charged].tolist()) == {BLOCKED_THROTTLE_MS}
    assert "admitted" not in {OUTCOMES[code] for code in outcome[charged]}


def test_the_floor_of_each_row_decides_whether_it_is_blocked() -> None:
    rows = [row for row in recorded(1, 20_000) if row[COLUMN["quota_type"]] == "PRODUCE"]
    of_mutations = [
        (*row[: COLUMN["quota_type"]], "CONTROLLER_MUTATION", *row[COLUMN["quota_type"] + 1 :])
        for row in rows
    ]
    is_charge = numbers(rows, "value") >= 0
    blocked = [place for place, row in enumerate(rows) if is_blocked(row) and is_charge[place]]

    as_bytes, _, _ = replayed(rows, [])
    as_partitions, _, _ = replayed(of_mutations, [])

    # 0.0125 of a byte per second is too little; a partition each 80 s is a rate.
    assert set(as_bytes[blocked].tolist()) == {BLOCKED_THROTTLE_MS}
    assert BLOCKED_THROTTLE_MS not in set(as_partitions[blocked].tolist())
