"""Class paths lead to Kafka's programs and to the Java compiler; what they need is fetched once."""

import functools
import os
from collections.abc import Sequence
from pathlib import Path

from kvota.files.cache import cache_folder
from kvota.localkafka.jars.jar_store import JarStore
from kvota.localkafka.jars.lock import CLIENTS_PREFIX, ECJ_SET, STREAMS_PREFIX, Jar, jars_of

KAFKA_VERSION = "4.3.1"


@functools.cache
def kafka_classpath(version: str = KAFKA_VERSION) -> str:
    """Return the class path with Kafka's broker, clients and tools: ``a.jar:b.jar:...``.

    The first call on a machine fetches about 55 MB into the cache (10 s on a good line); later
    calls only verify (0.1 s).

    Raises:
        UsageError: the lock has no such version.
        UnreachableError: jars are missing and could not be fetched.
        CorruptDataError: a jar that was fetched twice is not the one the lock names.
    """
    return _class_path(f"Kafka {version}", jars_of(version))


@functools.cache
def clients_classpath(version: str) -> str:
    """Return the class path with the Java clients alone of a Kafka of which there is no broker here: ``2.5.1``.

    Raises:
        UsageError: the lock has no such clients.
        UnreachableError: jars are missing and could not be fetched.
        CorruptDataError: a jar that was fetched twice is not the one the lock names.
    """
    return _class_path(f"Kafka's clients {version}", jars_of(f"{CLIENTS_PREFIX}{version}"))


@functools.cache
def streams_classpath(version: str = KAFKA_VERSION) -> str:
    """Return the class path with Kafka Streams, behind that of Kafka itself; there are stores in memory alone.

    Raises:
        UsageError: the lock has no such version.
        UnreachableError: jars are missing and could not be fetched.
        CorruptDataError: a jar that was fetched twice is not the one the lock names.
    """
    streams = _class_path(f"Kafka Streams {version}", jars_of(f"{STREAMS_PREFIX}{version}"))
    return f"{kafka_classpath(version)}{os.pathsep}{streams}"


@functools.cache
def ecj_jar() -> Path:
    """Return the Eclipse compiler for Java, which compiles where there is a Java runtime but no JDK."""
    return Path(_class_path("the Java compiler ecj", jars_of(ECJ_SET)))


def _class_path(name: str, jars: Sequence[Jar]) -> str:
    # Each jar has one name, also where the cache is reached over a link.
    store = JarStore((cache_folder() / "jars").resolve())
    return os.pathsep.join(str(path) for path in store.paths(name, jars))
