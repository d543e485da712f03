"""The record of looks at volumes: one row for each volume and look, and the one list its schema is made from."""

from typing import NamedTuple

from kvota.model.event import Column

VOLUME_SCHEMA_VERSION = "2"

VOLUME_COLUMNS: tuple[Column, ...] = (
    Column("observer", "string", "name of the gateway that has looked"),
    Column("ts_us", "long", "when the look had ended, Unix microseconds"),
    Column(
        "broker_id",
        "int",
        "whose volume; null: the gateway's own machine, a look that has failed, or a factor that was told",
        nullable=True,
    ),
    Column("log_dir", "string", "as the broker names it; null: no volume", nullable=True),
    Column("source", "string", "local, cluster, or the name of a class of one's own"),
    Column("status", "string", "how the look ended: SUCCESS, or why not"),
    Column("device", "string", "of the file system, where it is known", nullable=True),
    Column("total_bytes", "long", "size of the volume", nullable=True),
    Column("usable_bytes", "long", "what an unprivileged user may still take", nullable=True),
    Column("cached", "boolean", "true: not seen by this look, its broker is away"),
    Column("factor", "double", "of the broker's produce limits after this look"),
)


class VolumeRow(NamedTuple):
    """One row, with the columns of ``VOLUME_COLUMNS``; of a look that has failed, or that told a factor, there is one without a volume."""

    observer: str
    ts_us: int
    broker_id: int | None
    log_dir: str | None
    source: str
    status: str
    device: str | None
    total_bytes: int | None
    usable_bytes: int | None
    cached: bool
    factor: float
