"""``kvota forecast --tenants`` says when tenants outgrow their quotas."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvota.app.cli.exit_codes import DONE, NEGATIVE
from kvota.app.cli.json_output import print_json
from kvota.app.cli.spark_events import Record, on_record, save, say_hidden
from kvota.app.cli.usage_words import amount, unit_of
from kvota.app.text_table import text_table
from kvota.model.plain_text import on_one_line
from kvota.model.units import format_moment
from kvota.planning.outgrowing import DAYS_MIN

if TYPE_CHECKING:
    from kvota.pipeline.tenant_forecasts import TenantAhead, TenantsAhead


def run_tenants(args: argparse.Namespace) -> int:
    """Print when tenants outgrow their quotas; return 1 where one does within the horizon, or none has a quota."""
    ahead = on_record(args, "counting the days of", lambda record: _read(record, args))
    days = args.horizon / 24
    shown = ahead.rows[: args.top]
    if args.output == "json":
        print_json(_json(ahead, shown, args))
    elif shown:
        print(_table(shown, ahead.end_s, args))
    else:
        print("the record has no tenant with a quota of its own")
    say_hidden(len(shown), len(ahead.rows), "tenants")
    for note in _notes(ahead, shown):
        print(f"kvota: {note}", file=sys.stderr)
    is_likely = any(
        row.found is not None and row.found.days_p50 is not None and row.found.days_p50 <= days
        for row in ahead.rows
    )
    return NEGATIVE if is_likely or not ahead.rows else DONE


def _read(record: Record, args: argparse.Namespace) -> "TenantsAhead":
    from kvota.pipeline.tenant_forecasts import tenant_forecast_table, tenants_ahead
    from kvota.pipeline.usage_tables import USAGE_COLUMNS

    of_charges = record.chunks(args.by, further=USAGE_COLUMNS, modes_apart=True)
    every_chunk = of_charges.summed().persist()
    try:
        ahead = tenants_ahead(every_chunk)
    finally:
        every_chunk.unpersist()
    if args.save is not None:
        save(tenant_forecast_table(record.spark, ahead), "tenant_forecast", args)
    return ahead


def _table(rows: Sequence["TenantAhead"], end_s: int, args: argparse.Namespace) -> str:
    from kvota.pipeline.packing_choice import NAMES_OF

    names = NAMES_OF[args.by]
    header = [
        *names,
        "quota",
        "broker",
        "limit",
        "peak",
        "grows a day",
        "outgrown in",
        "or",
        "days",
        "",
    ]
    cells = [
        [
            *(
                "(none)" if row.total[name] is None else on_one_line(row.total[name])
                for name in names
            ),
            row.total["quota_type"],
            "all" if row.total["node_id"] == -1 else str(row.total["node_id"]),
            amount(row.total["quota_type"], row.total["limit_last"], raw=args.raw),
            *_growth_cells(row, raw=args.raw),
        ]
        for row in rows
    ]
    first = (
        f"from {format_moment(end_s * 1_000_000)} UTC; peak: the most in ten seconds of a day, by the line through its "
        "days; in brackets 80 % intervals"
    )
    table = text_table(
        header,
        cells,
        left=len(names) + 1,
        last_left=True,
        keys=len(names) + 2,
        names=range(len(names)),
    )
    return f"{first}\n\n{table}"


def _growth_cells(row: "TenantAhead", *, raw: bool) -> list[str]:
    found, quota_type = row.found, row.total["quota_type"]
    held = "held back" if row.is_throttled and row.total["enforced"] else ""
    if found is None:
        rate = amount(quota_type, row.total["rate_10s_max"], raw=raw)
        return [rate, "", "", "", "", f"short{', ' if held else ''}{held}"]
    words = [*(["short"] if found.is_short else []), *([held] if held else [])]
    interval = f"({_in(found.days_p10)} to {_in(found.days_p90)})" if found.days_p10 else ""
    return [
        amount(quota_type, found.peak, raw=raw),
        amount(quota_type, found.growth_per_day, raw=raw),
        _in(found.days_p50),
        interval,
        str(found.days),
        ", ".join(words),
    ]


def _in(days: float | None) -> str:
    if days is None or days > 10_000:
        return "never"
    return f"{days:.0f} d" if days >= 1 else "now" if not days else f"{days * 24:.0f} h"


def _notes(ahead: "TenantsAhead", shown: Sequence["TenantAhead"]) -> list[str]:
    notes = []
    if any(row.found is None or row.found.is_short for row in shown):
        notes.append(
            f"short: fewer than {DAYS_MIN} whole days (UTC) with traffic; the interval is of the least and largest growth "
            "from one day to the next"
        )
    if any(row.is_throttled and row.total["enforced"] for row in shown):
        notes.append("held back: it was throttled, so its days may show less than it wants")
    if ahead.limited > len(ahead.rows):
        notes.append(
            f"of {ahead.limited:,} tenants with a quota the {len(ahead.rows):,} nearest to it were looked at"
        )
    if ahead.unlimited:
        notes.append(f"{ahead.unlimited:,} lines have no quota of their own to outgrow")
    return notes


def _json(
    ahead: "TenantsAhead", shown: Sequence["TenantAhead"], args: argparse.Namespace
) -> dict[str, object]:
    return {
        "horizon_h": args.horizon,
        "by": args.by,
        "as_of_us": ahead.end_s * 1_000_000,
        "hidden_rows": len(ahead.rows) - len(shown),
        "rows": [_json_row(row) for row in shown],
    }


def _json_row(row: "TenantAhead") -> dict[str, object]:
    total, found = row.total, row.found
    names = ("quota_type", "level", "user", "client_id", "node_id", "enforced")
    return {
        **{name: total[name] for name in names},
        "unit": unit_of(total["quota_type"]),
        "limit_per_s": total["limit_last"],
        "is_throttled": row.is_throttled,
        "peak_per_s": None if found is None else found.peak,
        "growth_p10_per_s_per_day": None if found is None else found.growth_low,
        "growth_p50_per_s_per_day": None if found is None else found.growth_per_day,
        "growth_p90_per_s_per_day": None if found is None else found.growth_high,
        "outgrown_p10_days": None if found is None else found.days_p10,
        "outgrown_p50_days": None if found is None else found.days_p50,
        "outgrown_p90_days": None if found is None else found.days_p90,
        "days": 0 if found is None else found.days,
        "is_short": found is None or found.is_short,
    }
