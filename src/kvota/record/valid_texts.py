"""Refuses texts that are none: Parquet files may hold any bytes where a text should be. Pure."""

import pyarrow as pa


def refuse_invalid_texts(rows: pa.Table | pa.RecordBatch) -> None:
    """Refuse rows with a text that is no UTF-8; of columns with dictionaries each text is looked at once.

    Raises:
        pa.ArrowInvalid: there is one; the message names the column.
    """
    for name in rows.schema.names:
        column = rows.column(name)
        for part in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            texts = part.dictionary if pa.types.is_dictionary(part.type) else part
            if pa.types.is_string(texts.type):
                _refuse(name, texts)


def _refuse(name: str, texts: pa.StringArray) -> None:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        msg = f"column {name} has a text that is no UTF-8"
        raise pa.ArrowInvalid(msg) from error
