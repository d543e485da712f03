"""The Arrow schema of the events table is made from ``model.event.EVENT_COLUMNS``."""

import pyarrow as pa

from kvota.model.event import EVENT_COLUMNS, SCHEMA_VERSION, ColumnType

ARROW_TYPES: dict[ColumnType, pa.DataType] = {
    "long": pa.int64(),
    "int": pa.int32(),
    "short": pa.int16(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
}

# A reader gets this schema. Parquet keeps the version in the metadata of each file.
EVENT_SCHEMA = pa.schema(
    [
        pa.field(column.name, ARROW_TYPES[column.type], nullable=column.nullable)
        for column in EVENT_COLUMNS
    ],
    metadata={"schema_version": SCHEMA_VERSION},
)

# A text repeats in most rows: it is written as a code per row and a list of the different texts.
_DICTIONARY_TYPE = pa.dictionary(pa.int32(), pa.string())

# The writer is handed this one; in the file both schemas are the same.
WRITE_SCHEMA = pa.schema(
    [
        field.with_type(_DICTIONARY_TYPE) if field.type == pa.string() else field
        for field in EVENT_SCHEMA
    ],
    metadata=EVENT_SCHEMA.metadata,
)
