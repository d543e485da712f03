"""Wheels without a network: of the project itself, and of packages that are installed here, packed again."""

import base64
import hashlib
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, distribution, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def build_wheel(into: Path) -> Path:
    """Build the project's own wheel, as pip does it for a user."""
    _pip("wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", str(into), str(ROOT))
    (wheel,) = into.glob("kvota-*.whl")
    return wheel


def pack_installed(extra: str, into: Path) -> list[str]:
    """Pack what an extra of the project needs, and what that needs; return the names."""
    names = needed_by(extra)
    for name in names:
        _pack(distribution(name), into)
    return names


def needed_by(extra: str) -> list[str]:
    """What an extra of the project needs here, and what that needs."""
    names: dict[str, None] = {}
    wanted = [Requirement(text) for text in requires("kvota") or ()]
    left = [need for need in wanted if _holds(need, extra) and not _holds(need, "")]
    while left:
        name = canonicalize_name(left.pop().name)
        if name not in names:
            names[name] = None
            further = [Requirement(text) for text in requires(name) or ()]
            left += [one for one in further if _holds(one, "")]
    return list(names)


def install(environment: Path, wheels: Path, *what: str) -> None:
    """Make an empty environment, and install into it from these wheels alone."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = str(environment / "bin" / "python")
    _pip("--python", python, "install", "--no-index", "--find-links", str(wheels), *what)


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _holds(need: Requirement, extra: str) -> bool:
    return need.marker is None or need.marker.evaluate({"extra": extra})


def _pack(installed: Distribution, into: Path) -> None:
    about = installed.read_text("WHEEL") or ""
    tags = [line.partition(": ")[2] for line in about.splitlines() if line.startswith("Tag: ")]
    parts = zip(*(tag.split("-") for tag in tags), strict=True)
    tag = "-".join(".".join(sorted(set(part))) for part in parts)
    name = installed.metadata["Name"].replace("-", "_")
    stem = f"{name}-{installed.version}"
    rows = []
    with zipfile.ZipFile(into / f"{stem}-{tag}.whl", "w") as wheel:
        for file in installed.files or ():
            # Scripts and byte code are made at each installation; two files tell of this one.
            is_made = ".." in file.parts or file.suffix == ".pyc"
            if is_made or file.name in {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}:
                continue
            content = Path(str(file.locate())).read_bytes()
            digest = (
                base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            )
            rows.append(f"{file},sha256={digest},{len(content)}")
            wheel.writestr(str(file), content)
        record = f"{stem}.dist-info/RECORD"
        wheel.writestr(record, "\n".join([*rows, f"{record},,", ""]))
