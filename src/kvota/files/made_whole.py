"""Files and folders that another program makes are there whole, or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvota.files.run_folder import RunFolder


@contextmanager
def made_whole(path: Path) -> Iterator[Path]:
    """Give a free place in a folder of its own; what is made there becomes ``path`` as the block ends.

    It may be a file or a folder. If the block fails nothing is left. Where another process made the same folder
    meanwhile, that one stays.

    Raises:
        OSError: it could not be moved there, or the block made nothing.
    """
    with RunFolder("making-", inside=path.parent) as own:
        made = own.path / path.name
        yield made
        try:
            made.rename(path)
        except OSError:
            if not (made.is_dir() and path.is_dir()):
                raise
