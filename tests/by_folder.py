"""Which process runs a test, where ``-n`` asks for several."""

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

# Their tests share servers that are started once in a process.
WITH_SERVERS = ("integration", "adversary", "endurance")


class FolderScheduling(LoadScopeScheduling):
    """What is in one folder runs in one process, one test after the other.

    A process takes the next folder when it has ended one; the folder with the most tests is the first.
    """

    def _split_scope(self, nodeid: str) -> str:
        """The folder with servers of its own; all that has none is one."""
        folders = PurePosixPath(nodeid.split("::", 1)[0]).parts[:-1]
        return next((folder for folder in folders if folder in WITH_SERVERS), "without servers")
