"""What is said of a failed job of Spark: the cause, and what to do about it."""

import pytest

from kvota.app.cli.spark_failure import is_of_changed_record, reason_in

CALL = "An error occurred while calling o232.collectToPython.\n"
STAGE = f"{CALL}: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 2.0 failed 1 times, "
WORKER = "An exception was thrown from the Python worker:\n"
TRACE = "\tat org.apache.spark.scheduler.Task.run(Task.scala:147)\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{CALL}: java.io.IOException: No space left on device\n{TRACE}", "no room is left in /work-folder"),
        (f"{CALL}{TRACE}Caused by: java.io.IOException: Disk quota exceeded", "Make room, or name another folder"),
        (f"{CALL}: java.nio.file.FileSystemException: /x: Read-only file system", "cannot be written to"),
        (
            f"{WORKER}Traceback (most recent call last):\n  File \"x.py\", line 6\nOSError: [Errno 28] No space left on device: '/kept/a.parquet'\n",
            "/kept/a.parquet could not be written: No space left on device",
        ),
        (
            f"{WORKER}OSError: [Errno 28] No space left on device: '/work-folder/spill'\n",
            "no room is left in /work-folder",
        ),
        (f"{CALL}: java.lang.OutOfMemoryError: Java heap space", "--memory 4g"),
        (f"{STAGE}Python worker exited unexpectedly (crashed)", "a worker died"),
        (
            (f"{STAGE}most recent failure: Lost task 1.0 (TID 3): java.io.EOFException\n\tat java.base/java.io.DataInputStream.readInt(X.java:386)\n"
            "\tat org.apache.spark.api.python.PythonWorkerFactory.createThroughDaemon(PythonWorkerFactory.scala:1)\n"),
            "a worker died",
        ),
        (
            (f"{STAGE}most recent failure: Lost task 1.0 (TID 3): java.io.IOException: Broken pipe\n\tat java.base/sun.nio.ch.SocketDispatcher.write(X.java:1)\n"
            "\tat org.apache.spark.api.python.BasePythonRunner$ReaderInputStream.writeAdditionalInputToPythonWorker(PythonRunner.scala:1)\n"),
            "a worker died",
        ),
        (f"{CALL}: java.io.EOFException\n\tat org.apache.parquet.Reader.read(Reader.java:1)\n", "java.io.EOFException"),
        (
            f"{STAGE}most recent failure: Lost task 1.0 (TID 3): java.lang.IllegalStateException: what it is\n{TRACE}",
            "java.lang.IllegalStateException: what it is",
        ),
        (f"{CALL}: java.io.IOException: first\n{TRACE}Caused by: java.io.IOException: deepest\n", "IOException: deepest"),
        (f"{CALL}: x.Y: RuntimeError: kvota: the record changed while it was read: a is gone\n", "kvota: the record changed"),
        (
            f'{WORKER}Traceback (most recent call last):\n  File "x.py", line 6, in bad\n    raise ValueError("boom")\nValueError: boom: 5 of 3\n',
            "ValueError: boom: 5 of 3",
        ),
        ("[UNRESOLVED] a column", "[UNRESOLVED] a column"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_cause_is_said_in_one_line(text: str, said: str) -> None:
    reason = reason_in(text, "/work-folder")

    assert said in reason
    assert "calling o232" not in reason
    assert "\n" not in reason


def test_a_record_that_changed_is_told_from_other_failures() -> None:
    assert is_of_changed_record(f"{CALL}kvota: the record changed while it was read: a is gone")
    assert is_of_changed_record("[PATH_NOT_FOUND] Path does not exist")
    assert not is_of_changed_record(f"{CALL}: java.io.IOException: No space left on device")
