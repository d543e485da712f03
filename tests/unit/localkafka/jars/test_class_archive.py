"""A JVM uses the archive of Kafka's classes, or makes it; one that is told to do both does not start."""

from pathlib import Path

import pytest

from kvota.localkafka.jars import class_archive

VERSION = "4.3.1"


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where it is to be; it is not there yet."""
    path = tmp_path / "kafka.jsa"
    monkeypatch.setattr(class_archive, "_archive", lambda _version: path)
    return path


def test_it_is_made_where_there_is_none_and_used_afterwards(archive: Path) -> None:
    assert class_archive.using_options(VERSION) == []

    archive.touch()

    assert class_archive.using_options(VERSION) == [f"-XX:SharedArchiveFile={archive}"]
    assert class_archive.making_options(VERSION, archive) == []


def test_a_node_that_shall_make_it_and_is_begun_again_uses_no_other(archive: Path) -> None:
    making = ["-Xmx256m", *class_archive.making_options(VERSION, archive.with_name("new.jsa"))]
    assert any("new.jsa" in option for option in making)

    archive.touch()  # another one has made it meanwhile

    assert class_archive.using_options(VERSION, making) == []
