"""Which process runs a test, where ``-n`` asks for several."""

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

# Their tests share what is started once in a process: servers, or Spark.
SHARING = ("integration", "spark", "adversary", "endurance")


class FolderScheduling(LoadScopeScheduling):
    """What shares something runs in one process, one test after the other; so do the folders that share nothing, each of them.

    A process takes the next folder when it has ended one; the folder with the most tests is the first. So none waits long
    at the end for the other.
    """

    def _split_scope(self, nodeid: str) -> str:
        """The folder whose tests share something, else the one right below ``tests``."""
        folders = PurePosixPath(nodeid.split("::", 1)[0]).parts[:-1]
        return next(
            (folder for folder in folders if folder in SHARING),
            folders[1] if folders[1:] else "tests",
        )
