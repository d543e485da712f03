"""``kvota record`` looks after a record: merges its files, checks them, shows what is there."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvota.app.cli.event_options import (
    add_period_options,
    add_place_option,
    other_times,
    period,
    say_bad,
)
from kvota.app.cli.exit_codes import DONE, NEGATIVE
from kvota.app.cli.json_output import print_json
from kvota.app.cli.progress import RowsDone, working
from kvota.app.text_table import text_table
from kvota.files.command_name import called
from kvota.model.errors import NegativeError, UsageError
from kvota.model.plain_text import name_on_screen, on_one_line
from kvota.model.units import format_bytes, format_moment
from kvota.record.places import local_path

if TYPE_CHECKING:
    from kvota.record.check import Checked
    from kvota.record.compact import Compacted, Merged
    from kvota.record.event_file import EventFile
    from kvota.record.found_events import FoundEvents
    from kvota.record.runs import Run

EXAMPLE = "{kvota} record show --events kvota-demo/shadow/record"

# Lines of a table on a screen; JSON has them all.
_LINES_MAX = 40

# Files with other columns than the table's that are named; JSON has them all.
_FILES_NAMED = 3

# So often a record is read that changes while it is checked.
_TRIES = 3


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="compact|check|show")
    compact = actions.add_parser(
        "compact",
        help="merge the files of each hour that is over, also while gateways go on recording",
        description=f"example: {called()} record compact --events record",
    )
    compact.add_argument(
        "--every-hour",
        action="store_true",
        help="merge the files of hours that are not over, too; what comes later is merged the next time",
    )
    check = actions.add_parser(
        "check",
        help="read every row; name what is damaged, missing or there twice (else exit 1)",
        description=f"example: {called()} record check --events record",
    )
    show = actions.add_parser(
        "show",
        help="runs, hours, files and bytes per decision",
        description=f"example: {called()} record show --events record",
    )
    for action in (compact, check, show):
        add_place_option(action)
        add_period_options(action)
        action.add_argument("--output", choices=("table", "json"), default="table")


def run(args: argparse.Namespace) -> int:
    """Do what was asked for."""
    return {"compact": _compact, "check": _check, "show": _show}[args.action](args)


def _compact(args: argparse.Namespace) -> int:
    from kvota.record.found_events import find_events

    for place in args.events:
        path = local_path(place)
        if path is not None and path.is_file():
            msg = f"{place} is a file; hours of a folder are merged. Name the folder: --events {path.parent}"
            raise UsageError(msg)
    folders = dict.fromkeys(
        file.path.parent
        for found in [find_events(args.events)]
        for file in (*found.files, *found.superseded)
    )
    done = {str(folder): _compact_folder(folder, args) for folder in folders}
    if args.output == "json":
        found = [{"folder": folder} | _compacted_json(what) for folder, what in done.items()]
        print_json({"folders": found}, schema=2)
    else:
        for name, what in done.items():
            print(f"{name}: {_compacted_line(what)}")
    for what in done.values():
        for item in what.left:
            print(f"kvota: {item.file}: {item.reason}; stays as it is", file=sys.stderr)
    return DONE


def _compact_folder(folder: Path, args: argparse.Namespace) -> "Compacted":
    from kvota.record.compact import compact

    rows = RowsDone()

    def on_plan(to_merge: int) -> None:
        rows.total = rows.done + to_merge

    def on_step(step: "Merged") -> None:
        rows.done += step.rows
        _say_step(step)

    with working(f"merging files of {folder}", how_far=rows.how_far):
        return compact(
            folder,
            now_us=time.time_ns() // 1000,
            every_hour=args.every_hour,
            period=period(args),
            on_plan=on_plan,
            on_step=on_step,
            before_waiting=lambda: print(
                "kvota: another compaction is at work here; waiting for its end", file=sys.stderr
            ),
        )


def _say_step(step: "Merged") -> None:
    print(
        f"kvota: {_hour(step.hour_us)}: {_count(step.files, 'file')} with {step.rows:,} decisions, "
        f"{format_bytes(step.bytes_before)} → 1 file, {format_bytes(step.bytes_after)}",
        file=sys.stderr,
        flush=True,
    )


def _compacted_line(what: "Compacted") -> str:
    parts = []
    if what.steps:
        files, rows = (
            sum(part) for part in zip(*((s.files, s.rows) for s in what.steps), strict=True)
        )
        before = sum(step.bytes_before for step in what.steps)
        after = sum(step.bytes_after for step in what.steps)
        parts.append(
            f"{_count(files, 'file')} became {len(what.steps)}, {rows:,} decisions, "
            f"{format_bytes(before)} → {format_bytes(after)}"
        )
    else:
        parts.append("nothing to merge")
    if what.removed:
        parts.append(f"{_count(what.removed, 'file')} removed that had been merged before")
    if what.waiting:
        parts.append(f"{_count(what.waiting, 'file')} of hours that are not over (--every-hour)")
    return "; ".join(parts)


def _compacted_json(what: "Compacted") -> dict[str, Any]:
    return {
        "merged": [
            {
                "hour_us": step.hour_us,
                "files": step.files,
                "decisions": step.rows,
                "before_bytes": step.bytes_before,
                "after_bytes": step.bytes_after,
            }
            for step in what.steps
        ],
        "left": [{"file": str(item.file), "reason": item.reason} for item in what.left],
        "waiting_files": what.waiting,
        "removed_files": what.removed,
    }


def _check(args: argparse.Namespace) -> int:
    found, every = _found(args)
    if not found.files and every.files:
        raise NegativeError(other_times(every))
    checked = _read_all(found, every)
    for _ in range(_TRIES - 1):
        if not checked.has_changed:
            break
        # Somebody merges or removes files meanwhile: that is no fault of the record.
        print("kvota: the record changed while it was read; it is read again", file=sys.stderr)
        found, every = _found(args)
        checked = _read_all(found, every)
    if args.output == "json":
        print_json(_checked_json(checked, found))
    else:
        print("\n".join(_checked_lines(checked, found, every)))
    return DONE if checked.is_sound else NEGATIVE


def _read_all(found: "FoundEvents", every: "FoundEvents") -> "Checked":
    from kvota.record.check import check

    rows = RowsDone(found.rows)

    def count(file: "EventFile") -> None:
        rows.done += file.rows

    title = f"reading {found.rows:,} decisions in {_count(len(found.files), 'file')}"
    wanted = {file.path for file in found.files}
    others = [file for file in every.files if file.path not in wanted]
    with working(title, how_far=rows.how_far):
        return check(found, others=others, on_file=count)


def _checked_lines(checked: "Checked", found: "FoundEvents", every: "FoundEvents") -> list[str]:
    lines = [f"{item.file}: {item.reason}" for item in checked.bad]
    lines += [
        f"gateway {name_on_screen(gap.gateway)}, run {name_on_screen(gap.run_id)}: {_count(gap.rows, 'decision')} missing, "
        f"seq {gap.first} to {gap.last}"
        for gap in checked.gaps
    ]
    if checked.repeated:
        lines.append(f"{_count(checked.repeated, 'decision')} there more than once")
    beheaded = [run for run in _whole_runs(found, every) if not run.is_complete]
    lines += [
        f"note: run {name_on_screen(run.run_id)} of {name_on_screen(run.gateway)} begins with seq {run.first_seq}: older files have been "
        "removed, so the law does not judge its first decisions"
        for run in beheaded
    ]
    others = _with_other_columns(found)
    lines += [
        f"note: {file.place}: its columns are not those of the events table{_lacking(file)}, so record compact leaves it as it is"
        for file in others[:_FILES_NAMED]
    ]
    if len(others) > _FILES_NAMED:
        lines.append(f"note: the same of {_count(len(others) - _FILES_NAMED, 'more file')}")
    if found.superseded:
        lines.append(
            f"note: {_count(len(found.superseded), 'file')} were merged into others and wait to be "
            f"removed: {called()} record compact"
        )
    verdict = "sound" if checked.is_sound else "not sound"
    faults = [
        text
        for count, text in (
            (len(checked.bad), _count(len(checked.bad), "bad file")),
            (checked.missing, f"{checked.missing:,} missing"),
            (checked.repeated, f"{checked.repeated:,} repeated"),
        )
        if count
    ]
    total = f"{_count(checked.files, 'file')}, {checked.rows:,} decisions: {verdict}"
    return [*lines, f"{total} ({', '.join(faults)})" if faults else total]


def _checked_json(checked: "Checked", found: "FoundEvents") -> dict[str, Any]:
    return {
        "sound": checked.is_sound,
        "files": checked.files,
        "decisions": checked.rows,
        "bad_files": [{"file": str(item.file), "reason": item.reason} for item in checked.bad],
        "gaps": [
            {"gateway": g.gateway, "run_id": g.run_id, "first_seq": g.first, "last_seq": g.last}
            for g in checked.gaps
        ],
        "missing_decisions": checked.missing,
        "repeated_decisions": checked.repeated,
        "superseded_files": len(found.superseded),
        "other_columns_files": [file.place for file in _with_other_columns(found)],
    }


def _lacking(file: "EventFile") -> str:
    return f" (no {', '.join(file.lacking)})" if file.lacking else ""


def _with_other_columns(found: "FoundEvents") -> list["EventFile"]:
    return [file for file in found.files if not file.is_plain]


def _show(args: argparse.Namespace) -> int:
    found, every = _found(args)
    say_bad(found)
    if args.output == "json":
        print_json(_shown_json(found, every), schema=2)
        return DONE
    if not found.runs:
        print("0 decisions, 0 files")
        return DONE
    size = sum(file.size_bytes for file in found.files)
    first_us = min(run.first_us for run in found.runs)
    last_us = max(run.last_us for run in found.runs)
    print(
        f"{found.rows:,} decisions from {format_moment(first_us)} to {format_moment(last_us)} UTC, "
        f"{_count(len(found.files), 'file')}, {format_bytes(size)}, {_per_row(size, found.rows)} a decision"
    )
    print(f"\n{text_table(*_runs_table(found, every), left=2)}")
    print(f"\n{text_table(*_days_table(found.files))}")
    if found.superseded:
        print(
            f"\n{_count(len(found.superseded), 'file')} merged into others wait to be removed: "
            f"{called()} record compact"
        )
    return DONE


def _whole_runs(found: "FoundEvents", every: "FoundEvents") -> list["Run"]:
    """Return the runs of some files, as they are in all files of the record: whole, where they are only in part among these."""
    here = {(run.gateway, run.run_id) for run in found.runs}
    return [run for run in every.runs if (run.gateway, run.run_id) in here]


def _runs_table(found: "FoundEvents", every: "FoundEvents") -> tuple[list[str], list[list[str]]]:
    header = ["gateway", "run", "from (UTC)", "to", "decisions", "missing", "its start"]
    runs = zip(found.runs, _whole_runs(found, every), strict=True)
    shown = sorted(runs, key=lambda pair: pair[0].last_us)[-_LINES_MAX:]
    lines = [
        [
            on_one_line(run.gateway),
            on_one_line(run.run_id),
            format_moment(run.first_us),
            format_moment(run.last_us),
            f"{run.rows:,}",
            f"{max(0, whole.missing):,}",
            "is there" if whole.is_complete else "was removed",
        ]
        for run, whole in shown
    ]
    hidden = len(found.runs) - len(shown)
    if hidden:
        lines.insert(0, [f"… and {hidden} older ones (--output json)", *([""] * 6)])
    return header, lines


def _days_table(files: Sequence["EventFile"]) -> tuple[list[str], list[list[str]]]:
    """Return a line per day; a file is of the day on which its first decision was made."""
    header = ["day (UTC)", "files", "merged ones", "decisions", "size", "a decision"]
    days = _days(files)
    lines = []
    for day, of_day in list(days.items())[-_LINES_MAX:]:
        rows, size = sum(f.rows for f in of_day), sum(f.size_bytes for f in of_day)
        merged = sum(file.is_compacted for file in of_day)
        lines.append(
            [
                day,
                f"{len(of_day):,}",
                f"{merged:,}",
                f"{rows:,}",
                format_bytes(size),
                _per_row(size, rows),
            ]
        )
    hidden = len(days) - len(lines)
    if hidden:
        lines.insert(0, [f"… and {hidden} days before (--output json)", *([""] * 5)])
    return header, lines


def _days(files: Sequence["EventFile"]) -> Mapping[str, list["EventFile"]]:
    from kvota.record.period import is_a_time

    days: dict[str, list[EventFile]] = {}
    for file in sorted(files, key=lambda file: file.first_us):
        day = format_moment(file.first_us).split(" ")[0] if is_a_time(file.first_us) else "no day"
        days.setdefault(day, []).append(file)
    return days


def _shown_json(found: "FoundEvents", every: "FoundEvents") -> dict[str, Any]:
    return {
        "decisions": found.rows,
        "runs": [
            {
                "gateway": run.gateway,
                "run_id": run.run_id,
                "first_seq": run.first_seq,
                "last_seq": run.last_seq,
                "decisions": run.rows,
                "missing_decisions": max(0, whole.missing),
                "first_us": run.first_us,
                "last_us": run.last_us,
            }
            for run, whole in zip(found.runs, _whole_runs(found, every), strict=True)
        ],
        "files": [
            {
                "file": str(file.path),
                "size_bytes": file.size_bytes,
                "decisions": file.rows,
                "first_us": file.first_us,
                "last_us": file.last_us,
                "merged_files": len(file.sources),
            }
            for file in found.files
        ],
        "superseded_files": [str(file.path) for file in found.superseded],
        "bad_files": [{"file": str(item.file), "reason": item.reason} for item in found.bad],
    }


def _found(args: argparse.Namespace) -> tuple["FoundEvents", "FoundEvents"]:
    """Return the files with decisions of the period, and all of the record."""
    from kvota.record.found_events import find_events

    every = find_events(args.events)
    return every.within(period(args)), every


def _hour(hour_us: int) -> str:
    return format_moment(hour_us, until="minutes")


def _per_row(size_bytes: int, rows: int) -> str:
    return f"{size_bytes / rows:.1f} B" if rows else "none"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
