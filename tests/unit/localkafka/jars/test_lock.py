import pytest

from kvota.localkafka.jars.lock import (
    ECJ_SET,
    format_lock,
    jars_of,
    kafka_versions,
    locked_jars,
    parse_lock,
)
from kvota.localkafka.jars.relock import ROOTS
from kvota.model.errors import CorruptDataError, UsageError

SHA = "ab" * 32
LINE = f"{SHA} 123 4.3.1,3.9.2 org.slf4j:slf4j-api:1.7.36"


def test_a_line_tells_jar_content_and_sets() -> None:
    (jar,) = parse_lock(f"# a note\n\n{LINE}\n")

    assert jar.coordinate == "org.slf4j:slf4j-api:1.7.36"
    assert (jar.sha256, jar.size_bytes, jar.sets) == (SHA, 123, ("4.3.1", "3.9.2"))
    assert jar.file_name == "slf4j-api-1.7.36-abababababab.jar"


@pytest.mark.parametrize(
    "line",
    [
        "org.slf4j:slf4j-api:1.7.36",
        f"{SHA[:-1]} 123 4.3.1 a:b:1",
        f"{SHA} many 4.3.1 a:b:1",
        f"{SHA} 123 4.3.1 a:b",
        f"{SHA} 123 a:b:1",
        f"{SHA} 123 4.3.1 ../../etc:b:1",
        f"{SHA} 123 4.3.1 a:b:1 ",
    ],
)
def test_a_line_of_another_form_is_refused_with_its_place(line: str) -> None:
    with pytest.raises(CorruptDataError, match=r"^jars\.lock:2: .*relock"):
        parse_lock(f"{LINE}\n{line}\n")


def test_what_is_written_reads_back_the_same() -> None:
    jars = list(locked_jars())

    assert parse_lock(format_lock(jars, head=["a note"])) == jars


@pytest.mark.parametrize("set_name", sorted(ROOTS))
def test_every_set_of_the_lock_holds_what_it_begins_with(set_name: str) -> None:
    coordinates = {jar.coordinate for jar in jars_of(set_name)}

    assert set(ROOTS[set_name]) <= coordinates


def test_no_two_jars_share_a_file() -> None:
    names = [jar.file_name for jar in locked_jars()]

    assert len(names) == len(set(names))


def test_kafkas_versions_are_the_sets_but_for_the_compiler() -> None:
    assert kafka_versions() == ["4.3.1", "3.9.2"]
    assert [jar.artifact for jar in jars_of(ECJ_SET)] == ["ecj"]


def test_an_unknown_version_is_told_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r'"2\.0\.0" is not available.*4\.3\.1, 3\.9\.2'):
        jars_of("2.0.0")
