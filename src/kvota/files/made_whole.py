"""What other programs write into a folder that many processes read: there whole, or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvota.files.run_folder import RunFolder


@contextmanager
def made_whole(path: Path) -> Iterator[Path]:
    """A free place, in a folder of its own, for what becomes the file or folder ``path`` as the block ends.

    If the block fails nothing is left. Where another process made the same folder meanwhile, that one stays.

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
