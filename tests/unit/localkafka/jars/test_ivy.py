"""The real Ivy, on a repository that is a folder."""

from pathlib import Path

import pytest

from kvota.localkafka.jars.ivy import SETTINGS_VARIABLE, Fetched, Found, fetch
from kvota.localkafka.jars.lock import Jar
from kvota.model.errors import UnreachableError


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    settings = tmp_path / "settings.xml"
    settings.write_text(
        '<ivysettings><property name="ivy.checksums" value=""/><settings defaultResolver="here"/>'
        f'<resolvers><ibiblio name="here" m2compatible="true" usepoms="false" root="{folder.as_uri()}/"/>'
        "</resolvers></ivysettings>"
    )
    monkeypatch.setenv(SETTINGS_VARIABLE, str(settings))
    return folder


def jar_named(artifact: str, version: str = "1.0") -> Jar:
    return Jar(
        group="org.example",
        artifact=artifact,
        version=version,
        sha256="",
        size_bytes=0,
        sets=(),
    )


def test_one_run_fetches_all_that_there_is_and_leaves_out_the_rest(
    repository: Path, tmp_path: Path
) -> None:
    first, second, missing = jar_named("first"), jar_named("second-2.13", "2.0-GA"), jar_named("no")
    for jar in (first, second):
        folder = repository / "org" / "example" / jar.artifact / jar.version
        folder.mkdir(parents=True)
        (folder / f"{jar.artifact}-{jar.version}.jar").write_text(f"content of {jar.artifact}")

    steps = list(fetch([first, second, missing], tmp_path / "fetched"))

    fetched = {step.jar: step.file.read_text() for step in steps if isinstance(step, Fetched)}
    assert fetched == {first: "content of first", second: "content of second-2.13"}
    assert sum(isinstance(step, Found) for step in steps) == 2


def test_nothing_fetched_is_an_error_with_ivys_words_and_what_to_do(
    repository: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnreachableError) as caught:
        list(fetch([jar_named("no")], tmp_path / "fetched"))

    assert "org.example#no;1.0" in str(caught.value)
    assert SETTINGS_VARIABLE in str(caught.value)
