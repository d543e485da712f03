"""What a determined client is given: by a plain broker under its own quota, and through the gateway.

    ./run bench adversary [--attack NAME[,NAME]] [--way broker,sampled_rate,token_bucket] [--seconds 30]

The attacks of tests/adversary, for longer, one way after the other on one Kafka. ``given`` is what the
attacker had per second; ``x quota`` the same as a multiple of the quota. Beside each attack a client that is not
under the quota sends one small Produce after the other: how long it waited. ``growth`` is of the
gateway's resident memory, at its peak. Where an attack changes topics: what the cluster's own log says was
carried out, and what of it the gateway's record says was charged.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # the attacks are the tests'

from tests.adversary.attacks.table import ATTACKS  # noqa: E402
from tests.adversary.field import Field  # noqa: E402
from tests.adversary.target import Attack, Finding, Way  # noqa: E402

RESULT = HERE / "results" / "adversary.json"


def print_head() -> None:
    print(
        f"{'attack':<28}{'way':<14}{'given':>16}{'x quota':>10}{'answers':>9}{'closed':>8}"
        f"{'growth':>10}{'good p50':>10}{'p99':>10}{'worst':>10}"
    )


def print_finding(found: Finding, *, is_first: bool) -> None:
    rate = f"{found.got.used / found.seconds:,.0f} {found.attack.unit}/s"
    x_quota = f"{found.x_quota:.2f}" if found.x_quota is not None else "-"
    growth = f"{found.growth_mib:.0f} MiB" if found.growth_mib is not None else "-"
    good = found.good
    print(
        f"{found.attack.name if is_first else '':<28}{found.way.value:<14}{rate:>16}{x_quota:>10}"
        f"{found.got.answers:>9}{found.got.closed:>8}{growth:>10}"
        f"{good.p50_ms:>7.1f} ms{good.p99_ms:>7.0f} ms{good.worst_ms:>7.0f} ms",
        flush=True,
    )
    for name, figure in found.got.notes.items():
        print(f"{'':<42}{name}: {figure:,.3f}", flush=True)
    if found.carried_out is not None:
        done, charged = found.carried_out, sum(found.charged().values())
        print(
            f"{'':<42}carried out, by the cluster's log: {done.mutations:,} mutations, "
            f"{done.partitions:,} partitions; charged {charged:,.0f}",
            flush=True,
        )


def kept(found: Finding) -> dict[str, object]:
    result: dict[str, object] = {
        "seconds": round(found.seconds, 1),
        "used": found.got.used,
        "unit": found.attack.unit,
        "x_quota": found.x_quota,
        "got": asdict(found.got),
        "good": asdict(found.good),
        "growth_mib": found.growth_mib,
    }
    if found.carried_out is not None:
        result["carried_out"] = asdict(found.carried_out)
        result["charged"] = sum(found.charged().values())
    return result


async def run(attacks: list[Attack], ways: list[Way], seconds: float) -> dict[str, object]:
    results: dict[str, object] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kvota-adversary-")))
        fields: dict[int, Field] = {}
        print_head()
        for attack in attacks:
            nodes = attack.broker_nodes
            if nodes not in fields:
                fields[nodes] = stack.enter_context(Field(folder / str(nodes), nodes=nodes))
            findings = {}
            for way in ways:
                found = await fields[nodes].run(attack, way, seconds)
                print_finding(found, is_first=way is ways[0])
                findings[way.value] = kept(found)
            results[attack.name] = findings
    return results


def keep(results: dict[str, object], seconds: float) -> None:
    """Beside what earlier runs found of other attacks: all of them take half an hour."""
    all_kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for name, findings in results.items():
        command = f"./run bench adversary --seconds {seconds:g} --attack {name}"
        all_kept[name] = {"command": command, "ways": findings}
    RESULT.write_text(
        json.dumps({name: all_kept[name] for name in ATTACKS if name in all_kept}, indent=1) + "\n"
    )


def main() -> int:
    options = argparse.ArgumentParser(description="what a determined client is given")
    options.add_argument("--attack", help=f"of {', '.join(ATTACKS)}; several with commas")
    options.add_argument("--way", help="of broker, sampled_rate, token_bucket; with commas")
    options.add_argument("--seconds", type=float, default=30.0, help="of each attack on each way")
    args = options.parse_args()
    names = args.attack.split(",") if args.attack else list(ATTACKS)
    unknown = [name for name in names if name not in ATTACKS]
    if unknown:
        options.error(f"there is no attack {unknown[0]}; known are {', '.join(ATTACKS)}")
    try:
        ways = [Way(name) for name in args.way.split(",")] if args.way else list(Way)
    except ValueError as error:
        options.error(str(error))
    results = asyncio.run(run([ATTACKS[name] for name in names], ways, args.seconds))
    if not args.way:
        keep(results, args.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
