"""Sends kvota's own code to Spark's workers, where they have none: as a small archive that unpacks itself once.

Kernels keep their machine code beside their source, and find what they are made of there. So they cannot be read out of
an archive, as Spark's workers read what is sent to them: each worker unpacks it into a folder, and has its code from there.
"""

import hashlib
import io
import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

import kvota
from kvota.files.cache import cache_folder
from kvota.files.whole_file import write_whole
from kvota.pipeline.any_session import is_connect

# What workers never run.
_LEFT_OUT = frozenset({"app", "localkafka", "gateway", "web"})

# Archives of the same code are the same to the last bit, and so have one name.
_TIME = (1980, 1, 1, 0, 0, 0)


def send_code(spark: SparkSession) -> None:
    """Send kvota's code to the workers of a session, of which none needs to have kvota installed.

    They need Python of the same version, with pyarrow, pandas, NumPy and Numba.
    """
    path = str(code_archive())
    if is_connect(spark):
        spark.addArtifacts(path, pyfile=True)
    else:
        spark.sparkContext.addPyFile(path)


def code_archive() -> Path:
    """Return the archive, in the cache folder: for ``--py-files``, or where Spark is started by others."""
    content = _zipped({"code.zip": _code(), "kvota/__init__.py": _bootstrap()})
    digest = hashlib.blake2b(content, digest_size=8).hexdigest()
    path = cache_folder() / "code" / f"kvota-{digest}.zip"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    return path


def _code() -> bytes:
    (folder,) = (Path(place) for place in kvota.__path__)
    files = {}
    for file in sorted(folder.rglob("*.py")):
        inside = file.relative_to(folder)
        if inside.parts[0] not in _LEFT_OUT:
            files[f"kvota/{inside.as_posix()}"] = file.read_bytes()
    return _zipped(files)


def _bootstrap() -> bytes:
    return Path(__file__).with_name("unpacked_code.py").read_bytes()


def _zipped(files: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)
    return made.getvalue()
