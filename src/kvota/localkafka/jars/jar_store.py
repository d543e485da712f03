"""Kafka's jars are fetched once into the cache and verified against the lock whenever they are used."""

import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kvota.files.folder_lock import folder_lock
from kvota.files.run_folder import RunFolder
from kvota.localkafka.jars.ivy import Fetched, Found, fetch
from kvota.localkafka.jars.lock import Jar
from kvota.model.errors import CorruptDataError, UnreachableError

Fetch = Callable[[Sequence[Jar], Path], Iterator[Found | Fetched]]

_MB = 1_000_000
# A broken download is tried once more; a second one is the network's or the lock's fault.
_ATTEMPTS_MAX = 2
_PROGRESS_INTERVAL_S = 1.0


class JarStore:
    """A folder holds verified jars; several processes may use it at once."""

    def __init__(
        self, folder: Path, *, fetch: Fetch = fetch, tell: Callable[[str], None] | None = None
    ) -> None:
        """``tell`` takes each line for the user; without it lines go to stderr."""
        self._folder = folder
        self._fetch = fetch
        self._tell = _to_stderr if tell is None else tell

    def paths(self, name: str, jars: Sequence[Jar]) -> list[Path]:
        """Return the files of all jars, in order; fetches what is missing or damaged first."""
        if not all(is_intact(self._file(jar), jar) for jar in jars):
            with folder_lock(self._folder, before_waiting=self._tell_waiting):
                self._complete(name, jars)
        return [self._file(jar) for jar in jars]

    def _file(self, jar: Jar) -> Path:
        return self._folder / jar.file_name

    def _complete(self, name: str, jars: Sequence[Jar]) -> None:
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            wanted = [jar for jar in jars if not is_intact(self._file(jar), jar)]
            if not wanted:
                return
            for jar in wanted:
                if self._file(jar).exists():
                    self._tell(f"{self._file(jar)} is damaged; it is fetched anew")
                    self._file(jar).unlink()
            missing, wrong = self._fetch_once(name, wanted)
            if attempt < _ATTEMPTS_MAX:
                self._tell_retry(missing, wrong)
            elif wrong:
                raise CorruptDataError(" ".join(map(_wrong_content, wrong.items())))
            elif missing:
                msg = (
                    f"{name}: {len(missing)} of {len(jars)} jars could not be fetched, first "
                    f"{missing[0].coordinate}. Check the network and run this again; what arrived is kept."
                )
                raise UnreachableError(msg)

    def _fetch_once(self, name: str, wanted: list[Jar]) -> tuple[list[Jar], dict[Jar, str]]:
        """Returns the jars that did not come and the SHA-256 of those that came out wrong."""
        arrived: set[Jar] = set()
        wrong: dict[Jar, str] = {}
        progress = _Progress(name, wanted, self._tell)
        with RunFolder("fetch-", inside=self._folder) as own:
            for step in self._fetch(wanted, own.path):
                if isinstance(step, Found):
                    progress.found()
                    continue
                arrived.add(step.jar)
                sha256 = _sha256(step.file)
                if sha256 == step.jar.sha256:
                    step.file.replace(self._file(step.jar))
                    progress.fetched(step.jar)
                else:
                    wrong[step.jar] = f"{sha256} ({step.file.stat().st_size} bytes)"
        return [jar for jar in wanted if jar not in arrived], wrong

    def _tell_waiting(self) -> None:
        self._tell("another process is fetching jars; waiting for it")

    def _tell_retry(self, missing: list[Jar], wrong: dict[Jar, str]) -> None:
        for damaged in wrong.items():
            self._tell(f"broken download: {_wrong_content(damaged)} Fetching it anew.")
        if missing:
            names = ", ".join(jar.coordinate for jar in missing)
            self._tell(f"{len(missing)} jars did not come ({names}); asking once more")


class _Progress:
    """Tells lines like "fetching Kafka 4.3.1: 37 of 92 jars, 21 of 55 MB", at most one a second."""

    def __init__(self, name: str, jars: Sequence[Jar], tell: Callable[[str], None]) -> None:
        self._name, self._tell = name, tell
        self._jars_total, self._bytes_total = len(jars), sum(jar.size_bytes for jar in jars)
        self._found = self._jars = self._bytes = 0
        self._told_s = 0.0

    def found(self) -> None:
        self._found += 1
        self._say(f"looking for {self._name}: {self._found} of {self._jars_total} jars")

    def fetched(self, jar: Jar) -> None:
        self._jars += 1
        self._bytes += jar.size_bytes
        text = (
            f"fetching {self._name}: {self._jars} of {self._jars_total} jars, "
            f"{self._bytes / _MB:.0f} of {self._bytes_total / _MB:.0f} MB"
        )
        self._say(text, last=self._jars == self._jars_total)

    def _say(self, text: str, *, last: bool = False) -> None:
        now_s = time.monotonic()
        if last or now_s - self._told_s >= _PROGRESS_INTERVAL_S:
            self._told_s = now_s
            self._tell(text)


def is_intact(file: Path, jar: Jar) -> bool:
    """Tell whether the file is there and has the very content that the lock names."""
    try:
        return file.stat().st_size == jar.size_bytes and _sha256(file) == jar.sha256
    except FileNotFoundError:
        return False


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _wrong_content(damaged: tuple[Jar, str]) -> str:
    jar, got = damaged
    return f"{jar.coordinate} should have SHA-256 {jar.sha256} ({jar.size_bytes} bytes), but has {got}."


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - progress is for people, on stderr
