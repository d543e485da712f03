"""What client libraries do under ``token_bucket`` while they offer ten times their limit.

    ./run bench clients [--seconds 30]

Ten producers of each library, idempotent and not, with all time-outs at their defaults, each crowd under a limit
of 5,000 bytes/s: its producers offer ten times as much for so many seconds, which takes ten times as long to
deliver. With 30 s the records of the end wait for longer than most
producers try. Counted: what each client reported, what the broker's log has, what is missing in it, what is
there twice, and what was reported as failed and is there all the same. It exits 1 where a record is missing that was
reported as delivered, an idempotent producer has written one twice, or a client is silent about one.
"""

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # the crowds are those of the integration test

from tests.integration.overload.crowds import CROWDS, Crowd, Offer, Seen, run_crowds  # noqa: E402

from kvota.localkafka import LocalKafka  # noqa: E402
from verdict import judged  # noqa: E402

RESULT = HERE / "results" / "clients.json"


def figures(seen: Seen, offer: Offer) -> dict[str, object]:
    log = Counter(seen.log)
    return {
        "delivered": len(seen.delivered),
        "failed": dict(Counter(seen.failed.values())),
        "silent": len(offer.keys - {*seen.delivered, *seen.failed}),
        "missing": len(set(seen.delivered) - set(log)),
        "twice": sum(times > 1 for times in log.values()),
        "failed and there": len(set(seen.failed) & set(log)),
    }


def missed_bars(crowd: Crowd, found: dict[str, object]) -> list[str]:
    names = ["silent", "missing", *(["twice"] if crowd.idempotent else [])]
    return [f"{crowd.name}: {found[name]} {name}" for name in names if found[name]]


def main() -> int:
    options = argparse.ArgumentParser(description="clients that offer ten times their limit")
    options.add_argument("--seconds", type=int, default=30)
    args = options.parse_args()
    # librdkafka tries for 5 minutes, the others for less.
    offer = Offer(seconds=args.seconds, end_s=args.seconds + 400.0)
    with tempfile.TemporaryDirectory(prefix="kvota-clients-") as folder, LocalKafka() as kafka:
        run = run_crowds(kafka, Path(folder), offer)
    found = {crowd: figures(run.seen[crowd], offer) for crowd in CROWDS}
    for crowd, values in found.items():
        print(f"{crowd.name:<26}" + ", ".join(f"{name} {value}" for name, value in values.items()))
    closed = run.log.count("has waited 25 s")
    print(f"{len(offer.keys)} records each; {closed} connections closed in line")
    missed = [text for crowd, values in found.items() for text in missed_bars(crowd, values)]
    kept = {
        "command": f"./run bench clients --seconds {args.seconds}",
        "records": len(offer.keys),
        "closed_in_line": closed,
        "crowds": {crowd.name: values for crowd, values in found.items()},
        "missed": missed,
    }
    return judged(RESULT, kept, missed)


if __name__ == "__main__":
    sys.exit(main())
