"""The recorder may take this much memory, disk and time."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLimits:
    """These are all bounds of the recorder.

    Raises:
        ValueError: a bound that cannot work; names it.
    """

    # A row takes 40 bytes, so this is 8 MB. At 10,000 rows/s that is 20 s of a disk that does not answer.
    buffer_rows: int = 200_000
    # A flush costs milliseconds however few its rows; so it comes by rows, or by time when there are few:
    # the first ones of a run after ``flush_interval_s``, then up to twelve times as long after each other.
    flush_rows: int = 20_000
    flush_interval_s: float = 5.0
    folder_bytes_max: int = 10 * 1024**3
    age_s_max: float = 30 * 86_400.0
    # A failed write (disk full) is tried again not in a loop, and soon enough to lose little.
    retry_pause_s: float = 5.0
    # close() waits this long for the last rows; the gateway must not hang on a dead disk.
    close_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        """Refuse bounds under which nothing could be recorded."""
        if self.flush_rows < 1:
            msg = f"flush_rows: {self.flush_rows} is below 1; 20000 is the default"
            raise ValueError(msg)
        if self.buffer_rows < 2 * self.flush_rows:
            msg = (
                f"buffer_rows: {self.buffer_rows} is less than two flushes of {self.flush_rows} rows;"
                f" write at least {2 * self.flush_rows}"
            )
            raise ValueError(msg)
        for name in (
            "flush_interval_s",
            "folder_bytes_max",
            "age_s_max",
            "retry_pause_s",
            "close_timeout_s",
        ):
            if not getattr(self, name) > 0:
                msg = f"{name}: {getattr(self, name)} is not above 0"
                raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """These numbers tell how the recording into a topic stands."""

    is_up: bool  # false before start, after close, and while the cluster does not take rows
    rows_written: int
    rows_dropped: int
    last_error: str | None  # of the last failure, also when it is over


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStatus:
    """These numbers tell how the recording stands: into the folder or, where there is none, into the topic."""

    recording: bool  # false before start, after close, and while the disk refuses
    rows_written: int
    rows_dropped: int
    files: int  # complete files in the folder now
    bytes: int  # their size
    last_error: str | None  # of the last failure, also when it is over
    topic: TopicStatus | None = None
