"""Gives commands that replay the record the options of how bandwidth is counted."""

import argparse
from typing import TYPE_CHECKING

from kvota.app.cli.durations import duration_above_0_ms, duration_ms
from kvota.model.bucket_settings import BucketSettings
from kvota.model.quota_type import Algorithm
from kvota.model.quota_window import QuotaWindow
from kvota.model.units import parse_duration_ms

if TYPE_CHECKING:
    from kvota.pipeline.charged import Counted

_DEFAULT = BucketSettings()


def add_counting_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group("counting")
    group.add_argument(
        "--algorithm",
        choices=[algorithm.value for algorithm in Algorithm],
        help="count bandwidth by this one (default: each row as recorded; mutations have but one)",
    )
    group.add_argument(
        "--window",
        type=_window,
        metavar="NxTIME",
        help="of sampled_rate, and of mutations, e.g. 11x1s (default: as recorded)",
    )
    group.add_argument(
        "--burst",
        type=duration_above_0_ms,
        metavar="TIME",
        help="of bandwidth under token_bucket (default: as recorded, else 1s)",
    )
    group.add_argument(
        "--debt-max",
        type=duration_ms,
        metavar="TIME",
        help="under token_bucket a Produce waits for its turn while more than this is owed; open loop: it "
        "spends nothing and counts as rejected (default: 15s)",
    )


def counted(args: argparse.Namespace) -> "Counted":
    """Return what the options say."""
    from kvota.pipeline.charged import Counted

    return Counted(
        algorithm=None if args.algorithm is None else Algorithm(args.algorithm),
        window=args.window,
        burst_ms=args.burst,
        debt_max_ms=_DEFAULT.debt_max_ms if args.debt_max is None else args.debt_max,
    )


def _window(text: str) -> QuotaWindow:
    samples, _, length = text.partition("x")
    try:
        return QuotaWindow(int(samples), parse_duration_ms(length))
    except ValueError as error:
        msg = f'"{text}" is not a window, e.g. 11x1s'
        raise argparse.ArgumentTypeError(msg) from error
