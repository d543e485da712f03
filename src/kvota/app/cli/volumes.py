"""``kvota volumes`` shows how full the disks are, and what the limits make of it."""

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvota.app.cli.durations import duration_above_0_ms
from kvota.app.cli.exit_codes import DONE, NEGATIVE
from kvota.app.cli.places import a_path
from kvota.app.text_table import text_table
from kvota.model.errors import UnreachableError, UsageError
from kvota.model.units import (
    format_byte_rate,
    format_bytes,
    format_duration_ms,
)

if TYPE_CHECKING:
    from kvota.app.config import GatewayConfig
    from kvota.volumes import Observation, PerVolumeLimit, Volume, VolumeThrottle

EXAMPLE = "{kvota} volumes -c gateway.toml --watch"

_HEADER = ("broker", "log dir", "available", "of", "", "grows by", "soft in", "hard in", "factor")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "-c",
        "--config",
        type=a_path,
        default=Path("gateway.toml"),
        metavar="FILE",
        help="whose [kafka] table says where the volumes are and what is too full (default: gateway.toml)",
    )
    parser.add_argument(
        "--over",
        type=duration_above_0_ms,
        default=5_000,
        metavar="TIME",
        help="how far apart two looks are, for the growth between them (default: 5s)",
    )
    parser.add_argument("--watch", action="store_true", help="look again and again; Ctrl-C ends it")
    parser.add_argument("--output", choices=("table", "json"), default="table")


def run(args: argparse.Namespace) -> int:
    """Print all volumes; return 1 where a limit is breached now."""
    from kvota.app.config import load_files

    config, _ = load_files(args.config)
    if config.kafka.volumes.source == "none":
        msg = (
            f"{args.config}: [kafka] names no limit of a volume that would be looked at. Write e.g. "
            '"client.quota.callback.static.storage.per.volume.limit.min.available.ratio" = 0.1'
        )
        raise UsageError(msg)
    return asyncio.run(_looks(args, config))


async def _looks(args: argparse.Namespace, config: "GatewayConfig") -> int:
    from kvota.app.own_source import open_own_source
    from kvota.app.system_clock import elapsed_ms
    from kvota.app.volume_observer import VolumeObserver, throttle_of

    source = VolumeObserver(config, open_own_source(config))
    throttle = throttle_of(config, now_ms=elapsed_ms())
    settings = config.kafka.volumes
    before: dict[tuple[int, str], Volume] = {}
    before_ms = 0
    try:
        await source.check()
        while True:
            observation = await source.observe()
            if not (observation.succeeded or args.watch):
                raise UnreachableError(_failed(observation))
            now_ms = elapsed_ms()
            throttle.take(observation, now_ms)
            if before or args.watch or settings.tells_factor:
                rows = _rows(config, throttle, before, (now_ms - before_ms) / 1000)
                _show(rows, throttle, observation, args.output, told_by=settings.own_class)
                if not args.watch:
                    is_negative = throttle.verdict.breached or throttle.verdict.factor < 1.0
                    return NEGATIVE if is_negative else DONE
            if observation.succeeded:
                before = {(each.broker_id, each.log_dir): each for each in observation.volumes}
                before_ms = now_ms
            await asyncio.sleep(args.over / 1000)
    finally:
        await source.close()


def _failed(observation: "Observation") -> str:
    return f"the volumes cannot be looked at: {observation.status}: {observation.reason}"


def _rows(
    config: "GatewayConfig",
    throttle: "VolumeThrottle",
    before: Mapping[tuple[int, str], "Volume"],
    elapsed_s: float,
) -> list[dict[str, Any]]:
    from kvota.volumes import PerVolumeLimit
    from kvota.volumes.growth import Growth

    limit = config.kafka.volumes.limit
    rows: list[dict[str, Any]] = []
    for volume in sorted(throttle.volumes, key=lambda each: (each.broker_id, each.log_dir)):
        was = before.get((volume.broker_id, volume.log_dir))
        growth = Growth.between(was, volume, elapsed_s=elapsed_s) if was and elapsed_s > 0 else None
        row: dict[str, Any] = {
            "broker_id": volume.broker_id,
            "log_dir": volume.log_dir,
            "available_bytes": volume.available_bytes,
            "total_bytes": volume.total_bytes,
            "growth_bytes_per_s": None if growth is None else growth.bytes_per_s,
            "soft_in_s": None,
            "hard_in_s": None,
            "factor": None,
        }
        if isinstance(limit, PerVolumeLimit):
            row |= _until(limit, volume, growth)
        rows.append(row)
    return rows


def _until(limit: "PerVolumeLimit", volume: "Volume", growth: Any) -> dict[str, Any]:
    from kvota.volumes.growth import Growth

    seen = growth or Growth(volume=volume, bytes_per_s=0.0)
    return {
        "soft_in_s": None if limit.soft is None else seen.seconds_until(limit.soft),
        "hard_in_s": seen.seconds_until(limit.hard),
        "factor": limit.factor(volume),
    }


def _show(
    rows: list[dict[str, Any]],
    throttle: "VolumeThrottle",
    observation: "Observation",
    output: str,
    *,
    told_by: str,
) -> None:
    if output == "json":
        told = {
            "status": observation.status.value,
            "reason": observation.reason or None,
            "factor": throttle.factor,
            "is_fallback": throttle.is_fallback,
            "without_size": throttle.dropped,
            "volumes": rows,
        }
        print(json.dumps(told), flush=True)
        return
    if not observation.succeeded:
        kind = "the fallback" if throttle.is_fallback else "until its validity ends"
        print(f"{_failed(observation)}\nthe factor is {throttle.factor:.2f}, {kind}", flush=True)
        return
    if observation.factor is not None:
        print(
            f"producers get {observation.factor:.0%} of their quota: {told_by} says so", flush=True
        )
        return
    print(text_table(_HEADER, [_cells(row) for row in rows], left=2, names=()))
    severe = throttle.verdict.most_severe
    if severe is None:
        print("\nproducers are not slowed down: no limit is breached")
    else:
        where = f"broker {severe.broker_id} " if severe.broker_id >= 0 else ""
        print(
            f"\nproducers get {throttle.factor:.0%} of their quota: {where}{severe.log_dir} decides"
        )
    if observation.dropped:
        print(f"{observation.dropped} log directories tell no size (offline) and do not count")
    sys.stdout.flush()


def _cells(row: Mapping[str, Any]) -> list[str]:
    total, available = row["total_bytes"], row["available_bytes"]
    growth = row["growth_bytes_per_s"]
    return [
        str(row["broker_id"]) if row["broker_id"] >= 0 else "here",
        row["log_dir"],
        format_bytes(available),
        format_bytes(total),
        f"{available / total:.1%}" if total else "-",
        "-" if growth is None else format_byte_rate(growth),
        _in(row["soft_in_s"]),
        _in(row["hard_in_s"]),
        "-" if row["factor"] is None else f"{row['factor']:.2f}",
    ]


def _in(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return format_duration_ms(seconds * 1000) if seconds else "now"
