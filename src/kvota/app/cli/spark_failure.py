"""Finds in what Spark says of a failed job, dozens of lines of stack traces, the one that its user can do something about."""

import re

# Spark's own words where a task read a file which had gone.
_GONE = ("FILE_NOT_EXIST", "PATH_NOT_FOUND")

# Behind these words stands a reason; the last one in the text is the deepest.
_CAUSE = re.compile(r"^(?:Caused by: |: )(?P<reason>.+)", re.MULTILINE)
_OF_A_STAGE = re.compile(
    r"Job aborted due to stage failure:.*?: (?P<reason>[\w.$]+(?:Exception|Error): .+)"
)
# What a worker's Python has raised stands behind its indented trace.
_OF_PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?P<reason>\S.*)")
# A file of a worker's Python that a disk did not take; Spark's own have no name in what is said of them.
_NAMES_FILE = re.compile(
    r"\[Errno \d+\] (?P<reason>No space left on device|Disk quota exceeded|Read-only file system): '(?P<file>[^'\n]+)'"
)
_WORKER_DIED = ("Python worker exited unexpectedly", "ExecutorLostFailure")
# Spark notices that a worker has died by what it says last, or by the end of what it says: also while it greets it.
_WORKER_ENDED = re.compile(
    r"java\.(?:io\.EOFException|io\.IOException: (?:Broken pipe|Connection reset)|net\.SocketException|nio\.channels\.\w+Exception)[^\n]*\n(?:\s+at [^\n]*\n)*?\s+at org\.apache\.spark\.api\.python\."
)
_CHARS_MAX = 400


def is_of_changed_record(text: str) -> bool:
    """Tell whether a job failed because files went or changed while it read them."""
    from kvota.pipeline.row_groups import FILE_CHANGED

    return any(mark in text for mark in (FILE_CHANGED, *_GONE))


def reason_in(text: str, work_folder: str = "") -> str:
    r"""Return one line: what went wrong, and what to do where that is known.

    Args:
        text: what Spark says.
        work_folder: where it keeps what does not fit into memory, if that is known.

    >>> reason_in(
    ...     "An error occurred while calling o1.collect.\n: java.io.IOException: closed\n\tat a.b(C.java)"
    ... )
    'java.io.IOException: closed'
    """
    from kvota.pipeline.row_groups import FILE_CHANGED

    lines = text.splitlines()
    for line in lines:
        if FILE_CHANGED in line:
            return line[line.index(FILE_CHANGED) :]
    of_a_disk = _refused_by_a_disk(text, work_folder)
    if of_a_disk:
        return of_a_disk
    if "OutOfMemoryError" in text:
        return "Spark had too little memory. Give it more: --memory 4g"
    has_died = any(words in text for words in _WORKER_DIED) or _WORKER_ENDED.search(text)
    if has_died:
        return "a worker died, perhaps for lack of memory; the system's log tells (dmesg)"
    of_python = list(_OF_PYTHON.finditer(text))  # the last one is what the others led to
    found = of_python[-1] if of_python else _OF_A_STAGE.search(text)
    if found is None:
        causes = list(_CAUSE.finditer(text))
        found = causes[-1] if causes else None
    reason = found["reason"] if found else next(iter(lines), "")
    return reason[:_CHARS_MAX].rstrip(". ")


def _refused_by_a_disk(text: str, work_folder: str) -> str:
    """Return which disk did not take what was written, and what to do; nothing where it was something else."""
    file = _NAMES_FILE.search(text)
    if file and not (work_folder and file["file"].startswith(work_folder)):
        return f"{file['file']} could not be written: {file['reason']}. Make room, or name another place"
    folder = work_folder or "a worker's spark.local.dir"
    if "No space left on device" in text or "Disk quota exceeded" in text:
        return (
            f"no room is left in {folder}, where Spark keeps what does not fit into memory. Make room, or name "
            "another folder: --conf spark.local.dir=/path"
        )
    if "Read-only file system" in text:
        return f"{folder} cannot be written to. Name another folder: --conf spark.local.dir=/path"
    return ""
