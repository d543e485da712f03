"""The record that comes with kvota is what its maker makes, and what the gateway would write."""

from collections import Counter

import pyarrow.parquet as pq
from tests.sample_record import SAMPLE, sample_events, sample_looks

from kvota.app.config import load_files
from kvota.app.report.sample import sample_places
from kvota.record.check import check
from kvota.record.found_events import find_events
from kvota.record.volume_looks import find_looks
from kvota.store.quotas_file import load_client_quotas
from kvota.store.quotas_yaml import load_document
from kvota.volumes.limits_ahead import limits_ahead


def test_its_decisions_are_those_of_the_engine() -> None:
    (path,) = (SAMPLE / "record").glob("events-*.parquet")
    table = pq.read_table(path)

    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    assert rows == sample_events()


def test_its_looks_are_those_of_synthetic_volumes() -> None:
    (path,) = (SAMPLE / "record" / "_volumes").glob("*.parquet")
    table = pq.read_table(path)

    kept = Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
    # The last figure of a float may be another one with another build of NumPy.
    made = Counter(tuple(row) for row in sample_looks())
    assert len(kept) == len(made)
    assert {row[:5] for row in kept} == {row[:5] for row in made}


def test_it_is_sound() -> None:
    with sample_places() as places:
        found = check(find_events([places.record]))

    assert not found.bad
    assert not found.gaps


def test_one_of_its_disks_reaches_its_limits_soon() -> None:
    with sample_places() as places:
        limit = load_files(places.config)[0].kafka.volumes.limit
        ahead = limits_ahead(find_looks([places.record]).histories, limit, horizon_h=72)

    likely = [row for row in ahead.rows if row.reached.hours_p50 is not None]
    assert [(row.history.broker_id, row.kind) for row in likely] == [(2, "soft"), (2, "hard")]


def test_its_plan_was_made_from_its_quotas() -> None:
    with sample_places() as places:
        document = load_document(places.plan)
        in_force = load_client_quotas(places.record.parent / "quotas.toml")

    assert document.plan is not None
    assert document.plan.in_force == in_force
    assert document.wanted.quotas != in_force
