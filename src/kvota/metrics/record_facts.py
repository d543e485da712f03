"""How the recording stands, as far as metrics want to know."""

from typing import Protocol


class RecordFacts(Protocol):
    """``record.RecordStatus`` is such."""

    @property
    def recording(self) -> bool:
        """False while the disk refuses."""
        ...

    @property
    def rows_written(self) -> int:
        """Rows that are on disk."""
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
