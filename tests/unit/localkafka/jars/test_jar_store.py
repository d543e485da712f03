import hashlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kvota.localkafka.jars.ivy import Fetched, Found
from kvota.localkafka.jars.jar_store import JarStore
from kvota.localkafka.jars.lock import Jar
from kvota.model.errors import CorruptDataError, UnreachableError


def jar_of(artifact: str, content: bytes) -> Jar:
    return Jar(
        group="g",
        artifact=artifact,
        version="1",
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        sets=("s",),
    )


CONTENTS = {"one": b"first jar", "two": b"second jar" * 1000}
JARS = [jar_of(artifact, content) for artifact, content in CONTENTS.items()]
ONE, TWO = JARS


@dataclass
class Repository:
    """Fetches from memory; each answer in ``spoiled`` is given once in place of the right one."""

    spoiled: list[dict[str, bytes | None]] = field(default_factory=list)
    asked: list[list[str]] = field(default_factory=list)

    def fetch(self, jars: Sequence[Jar], folder: Path) -> Iterator[Found | Fetched]:
        self.asked.append([jar.artifact for jar in jars])
        spoiled = self.spoiled.pop(0) if self.spoiled else {}
        for jar in jars:
            content = spoiled.get(jar.artifact, CONTENTS[jar.artifact])
            if content is not None:
                yield Found()
                file = folder / f"{jar.artifact}.part"
                file.write_bytes(content)
                yield Fetched(jar, file)


@pytest.fixture
def told() -> list[str]:
    return []


def store_at(folder: Path, repository: Repository, told: list[str]) -> JarStore:
    return JarStore(folder / "jars", fetch=repository.fetch, tell=told.append)


def test_jars_are_fetched_once_and_told_in_order(tmp_path: Path, told: list[str]) -> None:
    repository = Repository()
    store = store_at(tmp_path, repository, told)

    first = store.paths("Kafka", JARS)
    second = store.paths("Kafka", JARS)

    assert [path.read_bytes() for path in first] == list(CONTENTS.values())
    assert second == first
    assert repository.asked == [["one", "two"]]
    assert told[-1] == "fetching Kafka: 2 of 2 jars, 0 of 0 MB"
    assert {path.name for path in (tmp_path / "jars").iterdir()} == {
        ".lock",
        *(jar.file_name for jar in JARS),
    }


def test_a_jar_damaged_in_the_cache_is_said_and_fetched_anew(
    tmp_path: Path, told: list[str]
) -> None:
    repository = Repository()
    store = store_at(tmp_path, repository, told)
    damaged, whole = store.paths("Kafka", JARS)
    damaged.write_bytes(b"First jar")

    again = store.paths("Kafka", JARS)

    assert again == [damaged, whole]
    assert damaged.read_bytes() == b"first jar"
    assert repository.asked[1:] == [["one"]]
    assert f"{damaged} is damaged; it is fetched anew" in told


def test_a_truncated_download_is_said_and_fetched_anew(tmp_path: Path, told: list[str]) -> None:
    repository = Repository(spoiled=[{"two": b"second"}])
    store = store_at(tmp_path, repository, told)

    paths = store.paths("Kafka", JARS)

    assert paths[1].read_bytes() == CONTENTS["two"]
    assert repository.asked == [["one", "two"], ["two"]]
    (said,) = [line for line in told if line.startswith("broken download: g:two:1 ")]
    assert "(6 bytes)" in said
    assert "Fetching it anew." in said


def test_a_jar_that_is_wrong_twice_is_an_error_with_both_hashes(
    tmp_path: Path, told: list[str]
) -> None:
    repository = Repository(spoiled=[{"two": b"evil"}, {"two": b"evil"}])
    store = store_at(tmp_path, repository, told)

    with pytest.raises(CorruptDataError) as caught:
        store.paths("Kafka", JARS)

    assert "g:two:1" in str(caught.value)
    assert TWO.sha256 in str(caught.value)
    assert hashlib.sha256(b"evil").hexdigest() in str(caught.value)
    assert not (tmp_path / "jars" / TWO.file_name).exists()


def test_what_arrived_is_kept_when_other_jars_do_not_come(tmp_path: Path, told: list[str]) -> None:
    repository = Repository(spoiled=[{"two": None}, {"two": None}])
    store = store_at(tmp_path, repository, told)

    with pytest.raises(UnreachableError, match=r"Kafka: 1 of 2 jars .* first g:two:1\..*is kept"):
        store.paths("Kafka", JARS)
    store.paths("Kafka", JARS)

    assert repository.asked == [["one", "two"], ["two"], ["two"]]


def test_two_at_once_fetch_once(tmp_path: Path, told: list[str]) -> None:
    repository = Repository()
    barrier = threading.Barrier(2)
    results: list[list[Path]] = []

    def fetch() -> None:
        store = store_at(tmp_path, repository, told)
        barrier.wait()
        results.append(store.paths("Kafka", JARS))

    threads = [threading.Thread(target=fetch, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results[0] == results[1]
    assert repository.asked == [["one", "two"]]


def test_what_a_killed_fetch_left_is_removed(tmp_path: Path, told: list[str]) -> None:
    left_over = tmp_path / "jars" / "fetch-killed" / "g"
    left_over.mkdir(parents=True)
    (left_over.parent / "lock").touch()  # that nobody holds
    store = store_at(tmp_path, Repository(), told)

    store.paths("Kafka", JARS)

    assert not left_over.exists()
