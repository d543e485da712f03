"""Refuses rows whose texts are none: a damaged or hostile file may hold anything where a text should be. Pure."""

import pyarrow as pa
import pyarrow.compute as pc

# Without these nobody knows which run a row is of.
RUN_COLUMNS = ("gateway", "run_id")


def refuse_invalid_texts(rows: pa.Table | pa.RecordBatch) -> None:
    """Refuse rows with a text that is no UTF-8, or with a code for which there is no text.

    Of columns with dictionaries each text is looked at once. Sums of pages do not cover their headers, so codes may be
    wrong where every sum is right.

    Raises:
        pa.ArrowInvalid: there is one; the message names the column.
    """
    for name in rows.schema.names:
        column = rows.column(name)
        for part in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            if pa.types.is_dictionary(part.type):
                _refuse_codes(name, part)
                _refuse_texts(name, part.dictionary)
            else:
                _refuse_texts(name, part)


def refuse_nameless_runs(rows: pa.Table | pa.RecordBatch) -> None:
    """Refuse rows without gateway or run_id.

    Raises:
        pa.ArrowInvalid: there are some.
    """
    for name in RUN_COLUMNS:
        if name in rows.schema.names and rows.column(name).null_count:
            msg = f"column {name} has nulls"
            raise pa.ArrowInvalid(msg)


def refuse_other_runs(rows: pa.RecordBatch, gateway: str, run_id: str) -> None:
    """Refuse rows that are not of the run of which the footer says that all are.

    Raises:
        pa.ArrowInvalid: there are some.
    """
    for name, text in zip(RUN_COLUMNS, (gateway, run_id), strict=True):
        column = rows.column(name)
        if pa.types.is_dictionary(column.type) and column.dictionary.to_pylist() == [text]:
            continue
        if not pc.all(pc.equal(column.cast(pa.string()), text)).as_py():
            msg = f"its rows are not those that its footer names: not every {name} is {text}"
            raise pa.ArrowInvalid(msg)


def refuse_fewer_rows(found: int, wanted: int) -> None:
    """Refuse a file that has not as many rows as its footer says: where columns differ in length, PyArrow ends early.

    Raises:
        pa.ArrowInvalid: it has not.
    """
    if found != wanted:
        msg = f"{found:,} rows where its footer says {wanted:,}"
        raise pa.ArrowInvalid(msg)


def _refuse_codes(name: str, column: pa.DictionaryArray) -> None:
    codes = pc.min_max(column.indices)
    least, most = codes["min"].as_py(), codes["max"].as_py()
    if least is not None and not 0 <= least <= most < len(column.dictionary):
        msg = f"column {name} has a code without a text"
        raise pa.ArrowInvalid(msg)


def _refuse_texts(name: str, texts: pa.Array) -> None:
    if not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        return
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as error:
        msg = f"column {name} has a text that is no UTF-8"
        raise pa.ArrowInvalid(msg) from error
