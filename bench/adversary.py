"""What a determined client is given: by a plain broker under its own quota, and through the gateway.

    ./run bench adversary [--attack NAME[,NAME]] [--way broker,sampled_rate,token_bucket] [--seconds 30]
        [--places 2000]

The attacks of tests/adversary, for longer, one way after the other on one Kafka. ``given`` is what the
attacker had per second; ``x quota`` the same as a multiple of the quota. Beside each attack a client that is not
under the quota sends one small Produce after the other: how long it waited. Beside an attack through the gateway a second
one does the same straight at the broker (``straight``): what both wait is the broker's doing, and the machine's, on which
attackers, gateway and broker share the cores (``cores``: what each took). ``growth`` is of the
gateway's resident memory, at its peak. Where an attack changes topics: what the cluster's own log says was
carried out, and what of it the gateway's record says was charged.

What is found is kept in bench/results/adversary.json as it comes. A broker that does not live through an attack is
a finding, too; then the next attack has a new one.
"""

import argparse
import asyncio
import json
import os
import platform
import resource
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import Self

from relay import commit

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # the attacks are the tests'

from tests.adversary.attacks.table import ATTACKS  # noqa: E402
from tests.adversary.field import BrokerEndedError, Field  # noqa: E402
from tests.adversary.good_client import Waits  # noqa: E402
from tests.adversary.target import Attack, Finding, Way  # noqa: E402

RESULT = HERE / "results" / "adversary.json"

Findings = dict[str, dict[str, object]]  # by way


def print_head() -> None:
    print(
        f"{'attack':<28}{'way':<14}{'given':>16}{'x quota':>10}{'answers':>9}{'closed':>8}"
        f"{'growth':>10}{'good p50':>10}{'p99':>10}{'worst':>10}"
    )


def print_finding(found: Finding, *, is_first: bool) -> None:
    rate = f"{found.got.used / found.seconds:,.0f} {found.attack.unit}/s"
    x_quota = f"{found.x_quota:.2f}" if found.x_quota is not None else "-"
    growth = f"{found.growth_mib:.0f} MiB" if found.growth_mib is not None else "-"
    print(
        f"{found.attack.name if is_first else '':<28}{found.way.value:<14}{rate:>16}{x_quota:>10}"
        f"{found.got.answers:>9}{found.got.closed:>8}{growth:>10}{_shown(found.good)}",
        flush=True,
    )
    if found.straight is not None:
        print(f"{'':<42}{'straight':<53}{_shown(found.straight)}")
    cores = ", ".join(f"{name} {taken:.2f}" for name, taken in found.cores.items())
    print(f"{'':<42}cores: {cores}", flush=True)
    for name, figure in found.got.notes.items():
        print(f"{'':<42}{name}: {figure:,.3f}", flush=True)
    if found.carried_out is not None:
        done, charged = found.carried_out, sum(found.charged().values())
        print(
            f"{'':<42}carried out, by the cluster's log: {done.mutations:,} mutations, "
            f"{done.partitions:,} partitions; charged {charged:,.0f}",
            flush=True,
        )


def _shown(waits: Waits) -> str:
    return f"{waits.p50_ms:>7.1f} ms{waits.p99_ms:>7.0f} ms{waits.worst_ms:>7.0f} ms"


def kept(found: Finding) -> dict[str, object]:
    result: dict[str, object] = {
        "seconds": round(found.seconds, 1),
        "used": found.got.used,
        "unit": found.attack.unit,
        "x_quota": found.x_quota,
        "got": asdict(found.got),
        "good": asdict(found.good),
        "growth_mib": found.growth_mib,
        "cores": {name: round(taken, 2) for name, taken in found.cores.items()},
        "load": round(os.getloadavg()[0], 1),
    }
    if found.straight is not None:
        result["good_straight"] = asdict(found.straight)
    if found.carried_out is not None:
        result["carried_out"] = asdict(found.carried_out)
        result["charged"] = sum(found.charged().values())
    return result


class Fields:
    """One cluster for each number of nodes; a new one where one has ended."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, count(1)
        self._fields: dict[int, Field] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        for nodes in list(self._fields):
            self.end(nodes)

    def of(self, nodes: int) -> Field:
        if nodes not in self._fields:
            field = Field(self._folder / str(next(self._numbers)), nodes=nodes)
            self._fields[nodes] = field.__enter__()
        return self._fields[nodes]

    def end(self, nodes: int) -> None:
        field = self._fields.pop(nodes, None)
        if field is not None:
            field.__exit__(None, None, None)


async def run(
    attacks: list[Attack], ways: list[Way], seconds: float, keep: Callable[[str, Findings], None]
) -> None:
    """Runs all; what is found of an attack is kept when it has run on all ways."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvota-adversary-")))
        fields = stack.enter_context(Fields(folder))
        print_head()
        for attack in attacks:
            findings: Findings = {}
            for way in ways:
                field = fields.of(attack.broker_nodes)
                try:
                    found = await field.run(attack, way, seconds, beside_gateway=True)
                except BrokerEndedError as ended:
                    fields.end(attack.broker_nodes)
                    print(
                        f"{attack.name:<28}{way.value:<14}the broker has ended: {in_short(ended)}"
                    )
                    until_then = kept(ended.found) if ended.found is not None else {}
                    findings[way.value] = {"broker_ended": in_short(ended), **until_then}
                else:
                    print_finding(found, is_first=way is ways[0])
                    findings[way.value] = kept(found)
            keep(attack.name, findings)
            if attack.broker_connections_max is not None:
                # It notices only after an hour who has gone while a Fetch of his waited.
                fields.end(attack.broker_nodes)


def in_short(ended: BrokerEndedError) -> str:
    """Without its log, but for the first of Java's own words in it."""
    what, *log = str(ended).split(" From its log ")
    causes = [line for line in "".join(log).splitlines() if line.startswith("java.")]
    return " ".join([what, *causes[:1]])


def keep_in_results(command: str, name: str, findings: Findings) -> None:
    """Beside what earlier runs found of other attacks: all of them take half an hour."""
    all_kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    all_kept[name] = {
        "command": f"./run bench adversary {command} --attack {name}",
        "commit": commit(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "ways": findings,
    }
    text = json.dumps({name: all_kept[name] for name in ATTACKS if name in all_kept}, indent=1)
    RESULT.write_text(f"{text}\n")


def raise_descriptor_limit() -> None:
    """Two thousand places are as many files here, and twice as many in the gateway, which inherits the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> int:
    options = argparse.ArgumentParser(description="what a determined client is given")
    options.add_argument("--attack", help=f"of {', '.join(ATTACKS)}; several with commas")
    options.add_argument("--way", help="of broker, sampled_rate, token_bucket; with commas")
    options.add_argument("--seconds", type=float, default=30.0, help="of each attack on each way")
    options.add_argument("--places", type=int, help="of attacks on places; 400 by default")
    args = options.parse_args()
    names = args.attack.split(",") if args.attack else list(ATTACKS)
    unknown = [name for name in names if name not in ATTACKS]
    if unknown:
        options.error(f"there is no attack {unknown[0]}; known are {', '.join(ATTACKS)}")
    try:
        ways = [Way(name) for name in args.way.split(",")] if args.way else list(Way)
    except ValueError as error:
        options.error(str(error))
    attacks = [ATTACKS[name] for name in names]
    command = f"--seconds {args.seconds:g}"
    if args.places is not None:
        attacks = [attack.with_places(args.places) for attack in attacks]
        command += f" --places {args.places}"
    raise_descriptor_limit()
    keep = (lambda _name, _findings: None) if args.way else partial(keep_in_results, command)
    asyncio.run(run(attacks, ways, args.seconds, keep))
    return 0


if __name__ == "__main__":
    sys.exit(main())
