"""The lock file names every jar with its coordinate, size and SHA-256, and the sets it belongs to.

One line per jar::

    <sha256> <bytes> <set>[,<set>] <group>:<artifact>:<version>

A set is a Kafka version (``4.3.1``), ``clients-`` and a version, of which there are only Kafka's Java clients, ``streams-``
and a version, which comes behind that Kafka, or ``ecj``, the Java compiler.
``python -m kvota.localkafka.jars.relock`` writes the file.
"""

import functools
import importlib.resources
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kvota.model.errors import CorruptDataError, UsageError

LOCK_FILE = "jars.lock"
ECJ_SET = "ecj"
CLIENTS_PREFIX = "clients-"
STREAMS_PREFIX = "streams-"

_LINE = re.compile(
    r"(?P<sha256>[0-9a-f]{64}) (?P<bytes>[0-9]+) (?P<sets>[\w.,-]+) "
    r"(?P<group>[\w.-]+):(?P<artifact>[\w.-]+):(?P<version>[\w.-]+)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One jar as the lock knows it."""

    group: str
    artifact: str
    version: str
    sha256: str
    size_bytes: int
    sets: tuple[str, ...]

    @property
    def coordinate(self) -> str:
        """``group:artifact:version``."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        """The name in the cache tells the content, so another content gets another name."""
        return f"{self.artifact}-{self.version}-{self.sha256[:12]}.jar"

    def __str__(self) -> str:
        """The jar's line in the lock file."""
        return f"{self.sha256} {self.size_bytes} {','.join(self.sets)} {self.coordinate}"


def parse_lock(text: str, *, place: str = LOCK_FILE) -> list[Jar]:
    """Return all jars of a lock file; empty lines and lines that begin with # are passed over.

    Raises:
        CorruptDataError: a line is not of the form above.
    """
    jars = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            msg = (
                f'{place}:{number}: "{line}" is not "sha256 bytes sets group:artifact:version". '
                "Write the file anew: python -m kvota.localkafka.jars.relock"
            )
            raise CorruptDataError(msg)
        jars.append(
            Jar(
                group=found["group"],
                artifact=found["artifact"],
                version=found["version"],
                sha256=found["sha256"],
                size_bytes=int(found["bytes"]),
                sets=tuple(found["sets"].split(",")),
            )
        )
    return jars


def format_lock(jars: Iterable[Jar], *, head: Sequence[str] = ()) -> str:
    """Return the text of a lock file, sorted by coordinate."""
    lines = [f"# {line}" for line in head]
    lines += [str(jar) for jar in sorted(jars, key=lambda jar: jar.coordinate)]
    return "\n".join(lines) + "\n"


@functools.cache
def locked_jars() -> tuple[Jar, ...]:
    """Return the jars of the lock file in this package."""
    text = (importlib.resources.files("kvota.localkafka.jars") / LOCK_FILE).read_text(
        encoding="utf-8"
    )
    return tuple(parse_lock(text))


def kafka_versions() -> list[str]:
    """Return the Kafka versions that can be had, newest first."""
    sets = {name for jar in locked_jars() for name in jar.sets} - {ECJ_SET}
    brokers = [name for name in sets if not name.startswith((CLIENTS_PREFIX, STREAMS_PREFIX))]
    return sorted(
        brokers, key=lambda version: [int(part) for part in version.split(".")], reverse=True
    )


def jars_of(set_name: str) -> list[Jar]:
    """Return the jars of one set.

    Raises:
        UsageError: there is no such set.
    """
    jars = [jar for jar in locked_jars() if set_name in jar.sets]
    if not jars:
        msg = (
            f'Kafka "{set_name}" is not available here. Take one of {", ".join(kafka_versions())}.'
        )
        raise UsageError(msg)
    return jars
