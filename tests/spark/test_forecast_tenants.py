"""``kvota forecast --tenants``: days of a record, and when they outgrow a quota."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.json_page import not_on_the_page

from kvota.app.cli.main import main
from kvota.model.tags import CLIENT_ID_TAG, USER_TAG, tags_text
from kvota.testing.recorded_traffic import EventRow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400), pytest.mark.usefixtures("spark")]

WriteEvents = Callable[..., Path]
DAY_US = 86_400_000_000
MIDNIGHT_US = 1_900_022_400_000_000
LIMIT = 3_000_000.0


def rows(
    days: int, *, user: str = "growing", growth: float = 1e6, limit: float | None = LIMIT
) -> list[EventRow]:
    """At noon of each day ten seconds of a rate that is larger each day; in between it says that it is there."""
    found: list[EventRow] = []
    for day in range(days):
        peak = 10e6 + growth * day  # of ten seconds
        moments = [(hour * 3600, 1.0) for hour in range(24)] + [
            (43_200 + s, peak / 10) for s in range(1, 11)
        ]
        for second, value in sorted(moments):
            ts_us = MIDNIGHT_US + day * DAY_US + second * 1_000_000
            found.append(
                (
                    ts_us,
                    len(found),
                    "gw",
                    "run",
                    1,
                    "PRODUCE",
                    1,
                    user,
                    "app",
                    tags_text({USER_TAG: user, CLIENT_ID_TAG: ""}),
                    0,
                    11,
                    value,
                    limit,
                    11,
                    1000,
                    "sampled_rate",
                    "admitted",
                    True,
                    0,
                    0,
                    None,
                    None,
                )
            )
    return found


def asked(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["forecast", "--tenants", "--events", str(folder), *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_days_that_grow_reach_the_quota(
    write_events: WriteEvents, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, saved = write_events(rows(12)), tmp_path / "saved"

    words = ["--horizon", "20d", "--output", "json", "--save", str(saved)]
    code, out, err = asked(folder, capsys, *words)

    said = json.loads(out)
    assert not_on_the_page(said, "forecast --tenants") == set()
    (row,) = said["rows"]
    assert code == 1  # within the horizon
    assert (row["user"], row["limit_per_s"], row["days"], row["is_short"]) == (
        "growing",
        LIMIT,
        12,
        False,
    )
    assert row["peak_per_s"] == pytest.approx(2.1e6, rel=0.01)
    assert row["growth_p50_per_s_per_day"] == pytest.approx(1e5, rel=0.01)
    assert row["outgrown_p50_days"] == pytest.approx(9, abs=0.2)
    assert f"the table tenant_forecast is in {saved}" in err
    (kept,) = pq.read_table(saved).to_pylist()
    assert (kept["user"], kept["limit"], kept["days"], kept["short"]) == (
        "growing",
        LIMIT,
        12,
        False,
    )
    for share in (10, 50, 90):
        assert kept[f"growth_per_day_p{share}"] == row[f"growth_p{share}_per_s_per_day"]
        assert kept[f"days_to_limit_p{share}"] == row[f"outgrown_p{share}_days"]
    assert kept["as_of"].timestamp() * 1e6 == json.loads(out)["as_of_us"]


def test_beyond_the_horizon_is_0_and_few_days_are_short(
    write_events: WriteEvents, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = asked(write_events(rows(4)), capsys, "--horizon", "3d")

    assert code == 0
    assert "growing" in out
    assert "short" in out
    assert "short: fewer than 7 whole days" in err


def test_who_has_no_quota_is_counted(
    write_events: WriteEvents, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = asked(write_events(rows(3, limit=None)), capsys)

    assert code == 1
    assert "no tenant with a quota" in out
    assert "1 lines have no quota" in err
