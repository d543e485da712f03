"""Keeps what Spark's JVM has loaded of its classes, in a form that the next JVM maps into memory: it starts faster.

Java calls it a dynamic archive of class data. The first session of a machine writes it when it ends; the JVM itself
passes over one that does not fit its version or its jars.
"""

import hashlib
import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from kvota.files.cache import cache_folder
from kvota.java.find import find_java

# What every JVM has in its archive of its own classes; a runtime without that cannot write another one.
_BASE = Path("lib") / "server" / "classes.jsa"

# Writing takes two to five seconds; a machine that needs so long has better things to do.
_WRITING_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """Where the archive is, and under which name one JVM writes it.

    Attributes:
        path: of the archive.
        unfinished: what the JVM is told to write; None: nothing.
    """

    path: Path
    unfinished: Path | None

    def option(self) -> str:
        """Return the JVM's option, as Spark reads options."""
        if self.unfinished is None:
            return f'"-XX:SharedArchiveFile={self.path}"'
        return f'"-XX:ArchiveClassesAtExit={self.unfinished}"'

    def wait_for(self, jvm: "subprocess.Popen[bytes]") -> None:
        """Wait for a JVM that was told to end, and keep what it has written."""
        try:
            jvm.wait(timeout=_WRITING_S_MAX)
        except subprocess.TimeoutExpired:
            jvm.kill()
            jvm.wait()
        if self.unfinished is None:
            return
        with suppress(OSError):
            if jvm.returncode == 0:
                self.unfinished.rename(self.path)
            else:
                self.unfinished.unlink()


def class_archive(folder: Path) -> ClassArchive | None:
    """Return the archive for this machine's Java and Spark; None where there can be none.

    Args:
        folder: of the session, on the file system of the cache; the JVM writes there.
    """
    runtime = find_java()
    if not (runtime.home / _BASE).exists():
        return None
    digest = hashlib.blake2b(_named(runtime.home).encode(), digest_size=8).hexdigest()
    path = cache_folder() / "java" / f"spark-classes-{digest}.jsa"
    if path.exists():
        return ClassArchive(path, None)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        return None
    return ClassArchive(path, folder / path.name)


def _named(home: Path) -> str:
    """Return what the archive fits to: this Java, as its release says, and this Spark."""
    release = ""
    with suppress(OSError):
        release = (home / "release").read_text(errors="replace")
    return "\0".join([str(home), release, str(pyspark.__file__), pyspark.__version__])
