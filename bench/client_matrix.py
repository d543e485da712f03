"""Seven client libraries against three brokers with TLS, SCRAM and ACLs: directly, and through the gateway; what they say is compared.

    ./run bench client_matrix [--records 3000] [--clients "Java 4.3.1,franz-go"] [--without "franz-go,kafkajs"] [--json FILE]

Each creates topics, produces, consumes in groups (classic; KIP-848 and share groups where it has them), commits and aborts a
transaction, asks for offsets, is refused what it has no right to, deletes, and logs in with a wrong password. The gateway takes
TLS and speaks TLS to the brokers; a tap keeps what clients get, and no broker's address may stand in it. librdkafka and aiokafka go a
third time, through a listener where all nodes have one port and are found by their names (SNI). A client that cannot be built on this
machine (franz-go needs Go, kafkajs needs npm, both their modules) is a failure, unless it is left out with ``--without``.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.integration.matrix.matrix import (
    THROUGH,
    Outcome,
    run_matrix,
    secured_place,
)
from tests.integration.matrix.programs import PROGRAMS


def tell(name: str, outcome: Outcome) -> None:
    """Prints what came of one client."""
    if outcome.skipped:
        print(f"{name:13} NOT TRIED: {outcome.skipped}", flush=True)
        return
    word = "same" if outcome.is_same else "DIFFERENT"
    print(f"{name:13} {word}, {len(outcome.steps[THROUGH])} steps, {outcome.seconds}", flush=True)
    for line in outcome.differences():
        print(f"    {line}", flush=True)


def main() -> int:
    """Returns 1 where a client differs or was not tried; a leaked address is an error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=3_000, help="that each client produces")
    parser.add_argument("--clients", default=",".join(PROGRAMS), help="some of them only")
    parser.add_argument("--without", default="", help="those that shall not be tried")
    parser.add_argument("--json", type=Path, help="where the results are written")
    args = parser.parse_args()
    left_out = args.without.split(",") if args.without else []
    names = [name for name in args.clients.split(",") if name not in left_out]
    if unknown := [name for name in (*names, *left_out) if name not in PROGRAMS]:
        print(f"there is no client {unknown[0]}; known are {', '.join(PROGRAMS)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder, secured_place(Path(folder)) as place:
        outcomes = run_matrix(place, Path(folder), names, records=args.records, told=tell)
        place.assert_no_address_leaked()
        scanned = sum(map(len, place.tap.sent_to_clients))
    print(f"no address of a broker in {scanned / 1e6:.1f} MB that clients got through the gateway")
    if args.json:
        found = {
            name: {
                "same": one.is_same,
                "skipped": one.skipped,
                "seconds": one.seconds,
                "steps": one.steps[THROUGH],
            }
            for name, one in outcomes.items()
        }
        text = json.dumps({"records": args.records, "clients": found}, indent=2)
        args.json.write_text(text + "\n")
    if not_tried := [name for name, one in outcomes.items() if one.skipped]:
        words = ",".join(not_tried)
        print(
            f"NOT TRIED, so nothing is known of them: {words}. Install what they need, see above, or leave them out: "
            f'--without "{words}"',
            file=sys.stderr,
        )
    return 0 if all(one.is_same and not one.skipped for one in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
