"""Java sources are compiled with ecj, so that a Java runtime without a compiler is enough."""

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from kvota.files.cache import cache_folder
from kvota.files.made_whole import made_whole
from kvota.java.find import JAVA_VERSION_MIN, java_command
from kvota.localkafka.jars.class_path import ecj_jar
from kvota.model.errors import UsageError

_COMPILE_TIMEOUT_S = 120


def compile_java(sources: Sequence[Path], *, classpath: str) -> Path:
    """Compiles Java files; returns the folder with their classes, ready for a class path.

    The folder is in the cache under a hash of sources, class path and compiler, so the same sources
    are compiled once (about 2 s).

    Raises:
        UsageError: a source cannot be read, or the compiler refuses it; the text is the compiler's.
        UnreachableError: the compiler could not be fetched.
    """
    compiler = ecj_jar()
    folder = cache_folder() / "classes" / _key(sources, classpath, compiler)
    if folder.is_dir():
        return folder
    with made_whole(folder) as made:
        _run_compiler(sources, classpath, compiler, made)
    return folder


def _key(sources: Sequence[Path], classpath: str, compiler: Path) -> str:
    digest = hashlib.sha256(f"{classpath}\n{compiler.name}\n".encode())
    for source in sources:
        try:
            content = source.read_bytes()
        except OSError as error:
            msg = f"{source}: cannot be read ({error.strerror})"
            raise UsageError(msg) from error
        digest.update(f"{source.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:24]


def _run_compiler(sources: Sequence[Path], classpath: str, compiler: Path, out: Path) -> None:
    command = [
        str(java_command()),
        *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
        *("-cp", str(compiler), "org.eclipse.jdt.internal.compiler.batch.Main"),
        # Warnings are left to whoever writes the Java; errors stop.
        *("-nowarn", "-encoding", "UTF-8"),
        *(f"-{JAVA_VERSION_MIN}", "-cp", classpath or os.curdir, "-d", str(out)),
        *map(str, sources),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_COMPILE_TIMEOUT_S, check=False
    )
    if done.returncode:
        msg = f"Java does not compile:\n{done.stdout}{done.stderr}".rstrip()
        raise UsageError(msg)
