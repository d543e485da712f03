"""The record that comes with kvota: made-up tenants and disks, for a first look."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SamplePlaces:
    """Where the sample's files lie.

    Attributes:
        record: the folder of the record.
        config: a gateway.toml with limits of volumes.
        plan: a plan that ``kvota recommend`` has made of the record.
    """

    record: Path
    config: Path
    plan: Path


@contextmanager
def sample_places() -> Iterator[SamplePlaces]:
    """Name them, as long as they are needed."""
    with as_file(files("kvota.app.report") / "sample") as folder:
        yield SamplePlaces(folder / "record", folder / "gateway.toml", folder / "plan.yaml")
