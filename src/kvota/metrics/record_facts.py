"""How the recording stands, as far as metrics want to know."""

from typing import Protocol


class TopicFacts(Protocol):
    """``record.TopicStatus`` is such."""

    @property
    def is_up(self) -> bool:
        """False while the cluster does not take rows."""
        ...

    @property
    def rows_written(self) -> int:
        """Rows that the topic has."""
        ...

    @property
    def rows_dropped(self) -> int:
        """Rows that it will not have."""
        ...


class RecordFacts(Protocol):
    """``record.RecordStatus`` is such."""

    @property
    def recording(self) -> bool:
        """False while the disk refuses."""
        ...

    @property
    def rows_written(self) -> int:
        """Rows that are on disk; without a folder, in the topic."""
        ...

    @property
    def rows_dropped(self) -> int:
        """Rows that will be in no file."""
        ...

    @property
    def files(self) -> int:
        """Files in the folder now."""
        ...

    @property
    def bytes(self) -> int:
        """Their size."""
        ...

    @property
    def topic(self) -> TopicFacts | None:
        """How the recording into a topic stands, where there is one."""
        ...
