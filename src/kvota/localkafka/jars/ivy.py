"""Jars are fetched with the Apache Ivy that ships in PySpark.

Ivy knows the public repository by itself, so no address stands in our files. Two settings make it
quick: descriptions of jars are not read (the lock names every jar already), and Ivy's own SHA-1
files are not asked for (the lock has SHA-256).
"""

import importlib.util
import os
import re
import subprocess
import urllib.parse
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from kvota.java.find import java_command
from kvota.localkafka.jars.lock import Jar
from kvota.localkafka.jars.trust_store import machine_certificates, write_trust_store
from kvota.model.errors import UnreachableError

# An Ivy settings file for people who cannot reach the public repository is named by this variable.
SETTINGS_VARIABLE = "KVOTA_IVY_SETTINGS"

_SETTINGS = """<ivysettings>
  <property name="ivy.checksums" value=""/>
  <timeout-constraints>
    <timeout-constraint name="patient" connectionTimeout="15000" readTimeout="60000"/>
  </timeout-constraints>
  <settings defaultResolver="public"/>
  <resolvers>
    <ibiblio name="public" m2compatible="true" usepoms="{poms}" timeoutConstraint="patient"/>
  </resolvers>
</ivysettings>
"""

_FOUND = re.compile(r"\tfound \S+#\S+ in \S+")
FETCHED = re.compile(r"\t\[SUCCESSFUL \] (?P<group>[^#]+)#(?P<artifact>[^;]+);(?P<version>[^!]+)!")
_TROUBLE_LINES = 2
_DISTRUST = "PKIX path"  # begins what Java says of a certificate it does not know
_TROUBLE = re.compile(
    r"(?i)unresolved|not found|exception|error|refused|failed|timed? ?out|unknown host"
)


@dataclass(frozen=True, slots=True)
class Found:
    """The repository has one more of the jars."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """One jar lies in a file, unverified."""

    jar: Jar
    file: Path


def fetch(jars: Sequence[Jar], folder: Path) -> Iterator[Found | Fetched]:
    """Fetches jars into ``folder`` in one JVM; tells each step as it happens.

    A jar that cannot be had is left out; the caller compares. Where Java does not trust the
    network's certificates, it is tried once more with those of the machine.

    Raises:
        UnreachableError: Ivy fetched nothing at all; the text quotes what it said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    trouble = yield from _fetch(jars, folder, [])
    if trouble and any(_DISTRUST in line for line in trouble):
        store = folder / "machine.jks"
        write_trust_store(machine_certificates(), store)
        trouble = yield from _fetch(jars, folder, [f"-Djavax.net.ssl.trustStore={store}"])
    if trouble is not None:
        said = "; ".join(trouble) or "nothing that explains it"
        msg = (
            f"none of {len(jars)} jars could be fetched (Ivy said: {said}). Check the network; where "
            "the public repository cannot be reached, set https_proxy, or name an Ivy settings file "
            f"in {SETTINGS_VARIABLE}."
        )
        raise UnreachableError(msg)


def _fetch(
    jars: Sequence[Jar], folder: Path, java_options: Sequence[str]
) -> Generator[Found | Fetched, None, list[str] | None]:
    """Returns None if at least one jar came, else what Ivy complained about last."""
    by_name = {(jar.group, jar.artifact, jar.version): jar for jar in jars}
    trouble: deque[str] = deque(maxlen=_TROUBLE_LINES)
    fetched_count = 0
    for line in run_ivy(jars, folder, transitive=False, java_options=java_options):
        if _FOUND.match(line):
            yield Found()
        elif step := FETCHED.match(line):
            jar = by_name[step["group"], step["artifact"], step["version"]]
            fetched_count += 1
            yield Fetched(jar, file_in(folder, jar))
        elif _TROUBLE.search(line) and "::" not in line:
            trouble.append(line.strip())
    return None if fetched_count else list(trouble)


def file_in(folder: Path, jar: Jar) -> Path:
    """Return where Ivy lays a jar in its cache."""
    return folder / jar.group / jar.artifact / "jars" / f"{jar.artifact}-{jar.version}.jar"


def run_ivy(
    jars: Sequence[Jar],
    folder: Path,
    *,
    transitive: bool,
    poms: bool = False,
    java_options: Sequence[str] = (),
) -> Iterator[str]:
    """Runs Ivy once over all jars; yields the lines it prints."""
    folder.mkdir(parents=True, exist_ok=True)
    module, settings = folder / "ivy.xml", folder / "ivysettings.xml"
    module.write_text(_module(jars, transitive=transitive), encoding="utf-8")
    settings.write_text(_SETTINGS.format(poms=str(poms).lower()), encoding="utf-8")
    command = [
        str(java_command()),
        *("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
        *_proxy_options(),
        *java_options,
        f"-Divy.default.ivy.user.dir={folder / 'user'}",
        *("-jar", str(ivy_jar())),
        *("-settings", os.environ.get(SETTINGS_VARIABLE) or str(settings)),
        *("-ivy", str(module), "-cache", str(folder)),
    ]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                yield line.rstrip("\n")
        finally:
            process.kill()


def ivy_jar() -> Path:
    """Return the Ivy jar inside the installed PySpark, found without importing it.

    Raises:
        UnreachableError: PySpark is not installed, or has no Ivy.
    """
    spec = importlib.util.find_spec("pyspark")
    folders = [] if spec is None else [Path(path) for path in spec.submodule_search_locations or []]
    for folder in folders:
        for jar in sorted((folder / "jars").glob("ivy-*.jar")):
            return jar
    msg = "Apache Ivy, which fetches Kafka, comes with PySpark: pip install 'kvota[localkafka]'"
    raise UnreachableError(msg)


def _module(jars: Sequence[Jar], *, transitive: bool) -> str:
    # A module whose description was read has "master" (its own jar); one without has "default" only.
    conf = "default->master,runtime" if transitive else "default->master(default)"
    dependencies = "".join(
        f"  <dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} "
        f"rev={quoteattr(jar.version)} transitive={quoteattr(str(transitive).lower())} "
        f"conf={quoteattr(conf)}/>\n"
        for jar in jars
    )
    return (
        '<ivy-module version="2.0">\n <info organisation="kvota" module="localkafka"/>\n'
        ' <configurations><conf name="default"/></configurations>\n'
        f" <dependencies>\n{dependencies} </dependencies>\n</ivy-module>\n"
    )


def _proxy_options() -> list[str]:
    # Java does not read the variable that every other program here reads.
    named = os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY") or ""
    proxy = urllib.parse.urlsplit(named)
    if not proxy.hostname:
        return []
    return [f"-Dhttps.proxyHost={proxy.hostname}", f"-Dhttps.proxyPort={proxy.port or 3128}"]
