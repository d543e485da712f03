"""What ``kvota explain`` says of new producer ids."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from kvota.app.text_width import columns_of
from kvota.model.plain_text import on_one_line
from kvota.model.units import format_duration_ms

_Json = Mapping[str, Any]

WIDTH = 80

# What a gateway of an earlier version says of them.
_NOTHING: _Json = {
    "quota_type": "PRODUCER_ID",
    "counted": False,
    "refused_partitions": 0,
    "new_id_refused_until_ms": None,
}


def ids_in(explained: _Json) -> _Json:
    """What the gateway has told about new producer ids."""
    of_ids: _Json = explained.get("producer_ids", _NOTHING)
    return of_ids


def id_lines(of_ids: _Json) -> Iterator[str]:
    """The part about them; nothing where nobody has a quota on them and nothing is kept back."""
    refused = of_ids["refused_partitions"]
    if not of_ids["counted"] and not refused:
        return
    yield f"PRODUCER_ID  {_headline(of_ids)}"
    window = format_duration_ms(of_ids["window_ms"])
    if of_ids["rate_per_window"] is not None:
        yield from titled("decided by", f"{of_ids['decided_by']['text']}, {of_ids['limit_from']}")
        yield f"  limit        {of_ids['rate_per_window']:g} new ids in {window}"
        seen = (
            f"{_ids(of_ids['distinct_ids'])} seen in {window}, {of_ids['new_ids']} of them as new"
        )
        yield f"  now          {seen}; {max(0, int(of_ids['tokens']))} more may come"
    if refused:
        yield (
            f"  refused      {refused} {'partition has' if refused == 1 else 'partitions have'} a refused batch"
            " that was not sent again; nothing overtakes it"
        )
    title = "to limit it" if of_ids["decided_by"] is None else "to change"
    yield from titled(title, of_ids["change"])


def titled(title: str, text: str) -> Iterator[str]:
    """A line, or two where it would be longer than most are."""
    line = on_one_line(f"  {title:<12} {text}")
    if columns_of(line) <= WIDTH:
        yield line
    else:
        yield f"  {title}:"
        yield f"    {on_one_line(text)}"


def ids_held_until(of_ids: _Json) -> int | None:
    """Until when a new id of this user is refused (Unix ms); None: it is not."""
    until: int | None = of_ids["new_id_refused_until_ms"]
    return until


def _headline(of_ids: _Json) -> str:
    if of_ids["decided_by"] is not None and of_ids["rate_per_window"] is None:
        return "passes: its quota is no limit"
    if of_ids["rate_per_window"] is None:
        return "passes: no quota matches, so any number of new ids may come"
    if of_ids["learns_until_ms"]:
        until = clock_text(of_ids["learns_until_ms"])
        return f"passes: new ids are not counted until {until}, as those known before were lost"
    refused_ms = of_ids["new_id_refused_ms"]
    if not refused_ms:
        return "a new id passes" if of_ids["enforced"] else "passes: shadow mode, no id is refused"
    wait = format_duration_ms(refused_ms)
    if not of_ids["enforced"]:
        return f"passes: shadow mode (a new id would be refused for {wait})"
    return f"a new id is refused for {wait} more, until {clock_text(ids_held_until(of_ids) or 0)}"


def _ids(count: int) -> str:
    return "1 id" if count == 1 else f"{count} ids"


def clock_text(at_ms: int) -> str:
    """Unix ms as the time of the day here, with tenths of a second."""
    return time.strftime("%H:%M:%S", time.localtime(at_ms / 1000)) + f".{at_ms % 1000 // 100}"
