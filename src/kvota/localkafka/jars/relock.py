"""Maintenance: writes the lock file anew. ``python -m kvota.localkafka.jars.relock``.

Ivy resolves each Kafka version with all it needs; then every jar is fetched once more the way users
will fetch it, and what arrives is what gets locked. Review the difference before you commit it.
"""

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kvota.files.whole_file import write_whole
from kvota.localkafka.jars.ivy import FETCHED, Fetched, fetch, run_ivy
from kvota.localkafka.jars.lock import (
    CLIENTS_PREFIX,
    ECJ_SET,
    LOCK_FILE,
    STREAMS_PREFIX,
    Jar,
    format_lock,
)
from kvota.model.errors import UnreachableError

# Each set begins with these jars. Kafka 3.9 brings a logging back end, Kafka 4 does not.
ROOTS: dict[str, list[str]] = {
    "4.3.1": [
        "org.apache.kafka:kafka_2.13:4.3.1",
        "org.apache.kafka:kafka-tools:4.3.1",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.2",
    ],
    "3.9.2": [
        "org.apache.kafka:kafka_2.13:3.9.2",
        "org.apache.kafka:kafka-tools:3.9.2",
    ],
    # The oldest clients that are tried.
    f"{CLIENTS_PREFIX}2.5.1": ["org.apache.kafka:kafka-clients:2.5.1"],
    f"{STREAMS_PREFIX}4.3.1": ["org.apache.kafka:kafka-streams:4.3.1"],
    ECJ_SET: ["org.eclipse.jdt:ecj:3.45.0"],
}
# The compiler's description names bundles that nobody needs to compile a file; that of Kafka Streams names RocksDB, 70 MB
# for stores on a disk, and clients that are there with Kafka itself.
_ALONE = {f"{STREAMS_PREFIX}4.3.1", ECJ_SET}

_HEAD = (
    "Written by python -m kvota.localkafka.jars.relock: sha256, bytes, sets, group:artifact:version.",
    *(
        f"{name}: {', '.join(roots)}" + ("" if name in _ALONE else " and what they need")
        for name, roots in ROOTS.items()
    ),
)


def main(argv: list[str] | None = None) -> int:
    """Resolves, fetches, hashes, writes."""
    parser = argparse.ArgumentParser(
        prog="python -m kvota.localkafka.jars.relock", description=__doc__
    )
    parser.add_argument(
        "--to", type=Path, default=Path(__file__).with_name(LOCK_FILE), help="the file to write"
    )
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="kvota-relock-") as folder:
        locked = _union([_lock_set(set_name, Path(folder) / set_name) for set_name in ROOTS])
    write_whole(args.to, format_lock(locked, head=_HEAD).encode())
    sys.stdout.write(f"{args.to}: {len(locked)} jars\n")
    return 0


def _lock_set(set_name: str, folder: Path) -> list[Jar]:
    wanted = _resolve(set_name, folder / "resolve")
    # Sets are fetched one at a time: of two versions of one artifact, Ivy would fetch only the newer.
    locked = list(_hash_all(wanted, folder / "fetch"))
    missing = {jar.coordinate for jar in wanted} - {jar.coordinate for jar in locked}
    if missing:
        msg = f"{set_name}: resolved, but not fetched: {', '.join(sorted(missing))}"
        raise UnreachableError(msg)
    return locked


def _resolve(set_name: str, folder: Path) -> list[Jar]:
    roots = [_unhashed(coordinate, set_name) for coordinate in ROOTS[set_name]]
    sys.stderr.write(f"resolving {set_name}, about a minute\n")
    lines = run_ivy(roots, folder, transitive=set_name not in _ALONE, poms=True)
    steps = filter(None, map(FETCHED.match, lines))
    coordinates = [":".join(step.group("group", "artifact", "version")) for step in steps]
    return [_unhashed(coordinate, set_name) for coordinate in coordinates]


def _unhashed(coordinate: str, set_name: str) -> Jar:
    group, artifact, version = coordinate.split(":")
    return Jar(
        group=group, artifact=artifact, version=version, sha256="", size_bytes=0, sets=(set_name,)
    )


def _hash_all(jars: list[Jar], folder: Path) -> Iterable[Jar]:
    for step in fetch(jars, folder):
        if isinstance(step, Fetched):
            content = step.file.read_bytes()
            sha256 = hashlib.sha256(content).hexdigest()
            yield replace(step.jar, sha256=sha256, size_bytes=len(content))


def _union(locked: Iterable[list[Jar]]) -> list[Jar]:
    by_coordinate: dict[str, Jar] = {}
    for jars in locked:
        for jar in jars:
            known = by_coordinate.get(jar.coordinate)
            sets = jar.sets if known is None else (*known.sets, *jar.sets)
            by_coordinate[jar.coordinate] = replace(jar, sets=sets)
    return list(by_coordinate.values())


if __name__ == "__main__":
    sys.exit(main())
