"""``kvota demo`` shows the whole circle on a real Kafka."""

import argparse
from pathlib import Path

from kvota.app.cli.places import a_path

EXAMPLE = "{kvota} demo"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "--folder",
        type=a_path,
        default=Path("kvota-demo"),
        metavar="DIR",
        help="where record, quotas and logs stay (default: kvota-demo)",
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=20.0,
        help="traffic in each of the two runs (default: 20)",
    )
    parser.add_argument(
        "--volumes",
        action="store_true",
        help="show another thing: a disk that fills, and the produce rate that follows (about a minute, 250 MB)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo; return 0 if every limit and the law held, else 1."""
    if args.volumes:
        from kvota.app.demo.filling_disk import run_filling_disk

        return run_filling_disk(args.folder, seconds=args.seconds)
    from kvota.app.cli.recommend import understood
    from kvota.app.demo.circle import run_demo

    return run_demo(args.folder, seconds=args.seconds, understood=understood)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 5 <= value <= 600:
        msg = f'"{text}" is not a number of seconds from 5 to 600'
        raise argparse.ArgumentTypeError(msg)
    return value
