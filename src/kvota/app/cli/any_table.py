"""Gives commands over a record the option to work on a table of charges in place of it, whoever made that."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvota.app.cli.converting import (
    bad_texts,
    events_folder,
    keep_and_judge_bad,
    place_in,
    say,
)
from kvota.app.cli.places import a_place
from kvota.app.cli.progress import working
from kvota.app.text_table import text_table
from kvota.model.errors import NegativeError, UsageError
from kvota.model.plain_text import NAMED, name_on_screen, on_one_line, shortened, some
from kvota.model.quota_type import FACTS, QuotaType
from kvota.model.units import format_bytes, format_duration_ms, format_moment

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from kvota.pipeline.sources.any_table import TableConverted, TableReading
    from kvota.pipeline.sources.table_files import FoundFiles
    from kvota.pipeline.sources.table_mapping import TableMapping
    from kvota.pipeline.sources.table_rows import Column
    from kvota.pipeline.sources.table_times import Cell
    from kvota.record.found_events import FoundEvents

TABLE_OPTIONS = ("map", "const", "ts_unit", "ts_zone")
# So many of a table's rows are shown, and looked at, before the work.
_ROWS_SHOWN, _ROWS_LOOKED_AT = 3, 1000
_NAME_CHARS = 40


def add_table_options(parser: argparse.ArgumentParser, place: argparse._ActionsContainer) -> None:
    """Add the options.

    Args:
        parser: of the command.
        place: the group of options of which one says where the record is.
    """
    place.add_argument(
        "--table",
        type=a_place,
        metavar="PLACE",
        help="any table of charges: a file or a folder of .parquet, .csv or .jsonl, a URI, a table that Spark knows "
        "(catalog.table), or of another format (orc:PLACE); --map says what its columns are",
    )
    group = parser.add_argument_group("table")
    group.add_argument(
        "--map",
        action="append",
        metavar="FIELD=COLUMN,..",
        help="what is what: ts, value, and user or client_id or both; perhaps quota_type, node_id, seq, throttle_ms; "
        "e.g. ts=event_time,user=principal,value=bytes",
    )
    group.add_argument(
        "--const",
        action="append",
        metavar="FIELD=VALUE,..",
        help="what is the same in every row, e.g. quota_type=PRODUCE",
    )
    group.add_argument(
        "--ts-unit",
        choices=("s", "ms", "us", "ns"),
        help="of times that are numbers (default: by their size)",
    )
    group.add_argument(
        "--ts-zone",
        metavar="ZONE",
        help="of times that do not say theirs, e.g. UTC or Europe/Berlin",
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """What is known of a table before the work.

    Attributes:
        head: how it is called, how large it is.
        columns: its names.
        kinds: of its columns, where it says them.
        first: some of its first rows, by column.
        ends: what it has first and last as times, as far as it tells.
        unit: of the place of a row.
        others: files that cannot be read, and why.
    """

    head: str
    columns: Sequence[str]
    kinds: "Mapping[str, pa.DataType]"
    first: "Mapping[str, Column]"
    ends: "Sequence[Cell]"
    unit: str
    others: Sequence[str] = ()


class AnyTable:
    """A table of charges that becomes a record.

    Attributes:
        rows: about so many it has; None: that is known when Spark has looked at it.
    """

    def __init__(self, args: argparse.Namespace, folder: Path, files: "FoundFiles | None") -> None:
        self._args, self._folder, self._files = args, folder, files
        self._reading: TableReading | None = None
        self._unit = "row"
        self.rows = None if files is None else files.rows
        if files is not None:
            self._look_at(_look_at_files(files, args))

    def converted(self, spark: "SparkSession") -> "FoundEvents":
        """Return it as a record.

        Raises:
            KvotaError: too many rows cannot be read.
            NegativeError: none of them charges anything.
            UsageError: the table is not as it is mapped.
            UnreachableError: there is no room for the events.
        """
        from kvota.pipeline.sources.spark_tables import nanoseconds_as_numbers
        from kvota.record.found_events import find_events

        with nanoseconds_as_numbers(spark):
            done = self._convert(spark)
        say(_counts(done, self._unit))
        keep_and_judge_bad(
            self._args,
            done.bad,
            (done.bad_count, done.read),
            "rows of the table",
            "Is the mapping right (--map)?",
        )
        if not done.rows:
            msg = "the table has no row that charges anything"
            raise NegativeError(msg)
        return find_events([self._folder])

    def _convert(self, spark: "SparkSession") -> "TableConverted":
        from kvota.pipeline.sources.any_table import convert_files, convert_rows
        from kvota.pipeline.sources.spark_tables import open_table

        if self._files is not None:
            assert self._reading is not None
            with working(f"reading about {self._files.rows:,} rows of the table"):
                return convert_files(spark, self._files, self._reading, self._folder)
        with working("looking at the table"):
            table = open_table(spark, self._args.table)
            look = _look_at_rows(table, self._args)
        reading = self._look_at(look)
        with working("reading the table"):
            return convert_rows(table, reading, self._folder)

    def _look_at(self, look: _Look) -> "TableReading":
        """Say what was found, and return how it is read.

        Raises:
            UsageError: it is not as it is mapped.
        """
        from kvota.pipeline.sources.any_table import TableReading
        from kvota.pipeline.sources.table_mapping import refuse
        from kvota.pipeline.sources.table_rows import kind_faults

        mapping = _mapping(self._args, look.columns)
        refuse([*kind_faults(look.kinds, mapping)])
        times = _times(self._args, mapping, look)
        place = Path(self._args.table)
        name = place.name.partition(".")[0] if self._files is not None else self._args.table
        reading = TableReading(mapping, times, shortened(name or "table", _NAME_CHARS))
        say(_found_lines(look, reading))
        self._reading, self._unit = reading, look.unit
        return reading


@contextmanager
def any_table(args: argparse.Namespace) -> Iterator[AnyTable | None]:
    """Look at the table of ``--table`` and say what was found; None where there is no such option.

    Raises:
        UsageError: there is no such table, or it is not as it is mapped.
        UnreachableError: a file cannot be read, or a folder not be made.
    """
    table = place_in(args, "--table", TABLE_OPTIONS)
    if table is None:
        yield None
        return
    files = _files(table, args)
    with events_folder(args, "--table", "a table") as folder:
        yield AnyTable(args, folder, files)


def refuse_law(args: argparse.Namespace, option: str) -> None:
    """Refuse to replay a table by what was recorded.

    Raises:
        UsageError: there is a table.
    """
    if getattr(args, "table", None) is not None:
        msg = (
            f"{option}: a table does not say which quota held and how it was counted, so there is nothing to be compared. "
            "Try quotas with --candidates"
        )
        raise UsageError(msg)


def _files(place: str, args: argparse.Namespace) -> "FoundFiles | None":
    """Return the files of a table on this machine; None where Spark has to look."""
    from kvota.pipeline.sources.spark_tables import format_and_place, is_catalog_table
    from kvota.pipeline.sources.table_files import find_table_files
    from kvota.record.places import local_path

    path = local_path(place)
    is_of_spark = path is None or format_and_place(place) is not None or is_catalog_table(place)
    if path is None or (is_of_spark and not path.exists()):
        _mapping(args, None)  # what can be said before Spark starts
        return None
    with working("looking at the table"):
        return find_table_files(path)


def _mapping(args: argparse.Namespace, there: Sequence[str] | None) -> "TableMapping":
    from kvota.pipeline.sources.table_mapping import assignments, mapping_of

    return mapping_of(assignments(args.map or ()), assignments(args.const or ()), there)


def _times(args: argparse.Namespace, mapping: "TableMapping", look: _Look) -> Any:
    from kvota.pipeline.sources.table_rows import cells_of
    from kvota.pipeline.sources.table_times import reading_of

    column = mapping.columns["ts"]
    return reading_of(
        column,
        [*cells_of(look.first[column]), *look.ends],
        unit=args.ts_unit,
        zone=args.ts_zone,
        kind=look.kinds.get(column),
    )


def _look_at_files(files: "FoundFiles", args: argparse.Namespace) -> _Look:
    import pyarrow as pa

    from kvota.pipeline.sources.table_files import ends_of

    first = files.typical
    size_bytes = sum(file.size_bytes for file in files.files)
    about = "" if all(file.is_exact for file in files.files) else "about "
    head = f"table: {len(files.files)} files of {first.format}, {format_bytes(size_bytes)}, {about}{files.rows:,} rows"
    ts = dict(_pairs(args)).get("ts", "")
    ends = [cell for file in files.files if ts in file.columns for cell in ends_of(file, ts)]
    kinds = {
        name: column.type for name, column in first.first.items() if isinstance(column, pa.Array)
    }
    others = [f"{path}: {reason}" for path, reason in files.bad]
    unit = "row" if first.format == "Parquet" else "byte"
    return _Look(head, first.columns, kinds, first.first, ends, unit, others)


def _look_at_rows(table: "DataFrame", args: argparse.Namespace) -> _Look:
    from kvota.pipeline.sources.any_table import spark_column

    names = table.columns
    wanted = [column for _, column in _pairs(args) if names.count(column) == 1]
    columns = [spark_column(name) for name in dict.fromkeys(wanted)]
    first: dict[str, Column] = {}
    if columns:
        rows = table.select(columns).limit(_ROWS_LOOKED_AT).toArrow().combine_chunks()
        first = {name: rows[name].combine_chunks() for name in rows.column_names}
    kinds = {name: column.type for name, column in first.items()}
    head = f"table: {on_one_line(args.table)}, read by Spark"
    return _Look(head, names, kinds, first, [], "row")


def _pairs(args: argparse.Namespace) -> list[tuple[str, str]]:
    from kvota.pipeline.sources.table_mapping import assignments

    return assignments(args.map or ())


def _found_lines(look: _Look, reading: "TableReading") -> Iterator[str]:
    """Say what was found, before the work.

    Raises:
        UsageError: none of the first rows can be used.
    """
    from kvota.pipeline.sources.table_rows import TableRows, cells_of
    from kvota.pipeline.sources.table_times import UNIT_NAMES, MixedUnitsError, TableClock

    mapping, times = reading.mapping, reading.times
    sample = TableRows(mapping, times)
    count = len(look.first[mapping.columns["ts"]])
    try:
        bad = sample.take(dict(look.first), count)
        known = [time for time in TableClock(times).of_cells(look.ends) if isinstance(time, int)]
    except MixedUnitsError as error:
        from kvota.pipeline.sources.any_table import mixed_units

        raise mixed_units(str(error), reading) from error
    if count and len(bad) == count:
        msg = (
            f"none of the first {count:,} rows can be used: {bad[0].reason} ({on_one_line(shortened(bad[0].sample, 200))}). "
            "Is the mapping right (--map)?"
        )
        raise UsageError(msg)
    events = sample.table(gateway=reading.name, run_id="")
    known += events["ts_us"].to_pylist()
    yield look.head + (_span(known, is_all=bool(look.ends)) if known else "")
    zone = "" if times.zone is None else f", in {times.zone}"
    unit = "" if times.unit is None else f", {UNIT_NAMES[times.unit]} since 1970"
    guessed = "" if times.unit is None or times.is_given else " by their size (--ts-unit)"
    yield f"  ts: {_shown(mapping.columns['ts'])}{unit}{guessed}{zone}"
    yield "  " + "; ".join(_others(mapping))
    for other in look.others[:NAMED]:
        yield f"  left out: {on_one_line(other)}"
    if len(look.others) > NAMED:
        yield f"  and {len(look.others) - NAMED} more"
    users = sorted(set(events["user"].to_pylist()))
    yield f"  users in its first rows: {some([name_on_screen(user) for user in users])}"
    if any(
        isinstance(user, str) and user.startswith("User:")
        for user in (
            cells_of(look.first[mapping.columns["user"]]) if "user" in mapping.columns else ()
        )
    ):
        yield '  "User:" in front of a user is left out, as quotas name users without it'
    for line in _sample_table(events.slice(0, _ROWS_SHOWN).to_pylist()):
        yield f"  {line}"


def _span(times_us: Sequence[int], *, is_all: bool) -> str:
    first_us, last_us = min(times_us), max(times_us)
    span = format_duration_ms((last_us - first_us) // 1000)
    what = "" if is_all else "its first rows "
    return f", {what}{format_moment(first_us)} to {format_moment(last_us)} UTC ({span})"


def _others(mapping: "TableMapping") -> Iterator[str]:
    for name in ("user", "client_id", "quota_type", "value", "node_id", "throttle_ms"):
        if name in mapping.columns:
            yield f"{name}: {_shown(mapping.columns[name])}"
        elif name in mapping.constants:
            yield f"{name}: {_shown(mapping.constants[name])} in every row"
        elif name == "node_id":
            yield "node_id: not known, all on one broker"
    order = mapping.columns.get("seq")
    yield "order: by time, then by value" if order is None else f"order: by {_shown(order)}"


def _shown(name: str) -> str:
    return name_on_screen(name)


def _sample_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    header = ["time (UTC)", "user", "client id", "quota type", "value"]
    cells = [
        [
            f"{format_moment(row['ts_us'])}.{row['ts_us'] // 1000 % 1000:03}",
            *(on_one_line(row[name]) for name in ("user", "client_id")),
            row["quota_type"],
            f"{row['value']:,.15g} {FACTS[QuotaType(row['quota_type'])].value_unit}",
        ]
        for row in rows
    ]
    return text_table(header, cells, left=4, names=(1, 2)).splitlines()


def _counts(done: "TableConverted", unit: str) -> Iterator[str]:
    """Say what became of it."""
    yield f"{done.read:,} rows became {done.rows:,} events; {done.bad_count:,} could not be read"
    if done.twice:
        yield (
            f"  {done.twice:,} times are in an hour that the zone has twice, as clocks were put back: they count as in "
            "the first one"
        )
    if done.steps_back:
        yield (
            f"  {done.steps_back:,} rows are over 2 s earlier than the row before them: is seq one order of the whole table?"
        )
    yield from bad_texts(done.bad, done.bad_count, unit)
