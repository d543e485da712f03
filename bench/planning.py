"""A plan for tenants whose demand is known, judged on days that it has not seen.

    ./run bench planning [--seeds 3] [--days 10] [--contended 20]

Seven tenants come through three gateways to two brokers of 48 MB/s, three hours on each day: *steady*; *diurnal*, which
swings by half; *bursty*, which does ten times its usual for 20 s in five minutes; *quiet*; *newcomer*, which comes on the
second day and to one broker only; *greedy-1* and *greedy-2*, which want 18 MB/s of each broker and have the
weights 1 and 2. ``kvota recommend`` learns on the first 70 % of the time with the guardrails as they are. Bars, on the
rest of it: of those who behave less than 0.1 % is throttled, open and backlog; the greedy ones get their weighted
share, 5 % more or less, of what the others leave; all together stay within the capacity in 99.9 % of the seconds.

Then the same record is planned for with a capacity that is less than they need (20 MB/s): who wants no more than its part by
weight gets it, with the bars above; all others get the same by weight, 5 % more or less; all together stay within the capacity.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_type import QuotaType
from kvota.pipeline import (
    USAGE_COLUMNS,
    Recommendation,
    Wishes,
    chunks_of_files,
    end_session,
    find_events,
    read_files,
    recommend,
    session,
)
from kvota.planning.guardrails import Guardrails
from kvota.planning.plan import HEADROOM
from kvota.planning.plan_line import Reason
from kvota.record.event_schema import EVENT_SCHEMA
from verdict import judged

RESULT = Path(__file__).parent / "results" / "planning.json"
MB = 1e6
CAPACITY = 48 * MB
GATEWAYS = 3
BROKERS = (0, 1)
HOURS = 3
START_S = 1_900_022_400  # a midnight, UTC
WEIGHTS = {"greedy-1": 1.0, "greedy-2": 2.0}
BEHAVING = ("steady", "diurnal", "bursty", "quiet", "newcomer")

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tenant:
    """Demand per broker: the mean rate in bytes per second, and the size of a request."""

    name: str
    rate: float
    request: float
    brokers: tuple[int, ...] = BROKERS
    from_day: int = 0

    def factor(self, second: Doubles, rng: np.random.Generator) -> Doubles:
        """How much of the mean is wanted, at seconds of a day's traffic."""
        if self.name == "diurnal":
            return 1 + 0.5 * np.sin(2 * np.pi * second / (HOURS * 3600))
        if self.name == "bursty":
            return np.where((second + rng.integers(300)) % 300 < 20, 6.25, 0.625)
        return np.ones(len(second))


TENANTS = (
    Tenant("steady", 2 * MB, 250_000),
    Tenant("diurnal", 2 * MB, 250_000),
    Tenant("bursty", 0.4 * MB, 50_000),
    Tenant("quiet", 1_000, 10_000),
    Tenant("newcomer", 2 * MB, 250_000, brokers=(1,), from_day=1),
    Tenant("greedy-1", 18 * MB, 600_000),
    Tenant("greedy-2", 18 * MB, 600_000),
)


def requests(tenant: Tenant, days: int, rng: np.random.Generator) -> tuple[Doubles, Doubles]:
    """When requests come (s since the start), and how large they are; Poisson, sizes by half."""
    times = []
    for day in range(tenant.from_day, days):
        second = np.arange(HOURS * 3600, dtype=np.float64)
        mean = tenant.rate * tenant.factor(second, rng) / tenant.request
        count = rng.poisson(mean * rng.normal(1.0, 0.03))
        times.append(day * 86_400 + np.repeat(second, count) + rng.random(count.sum()))
    every = np.sort(np.concatenate(times))
    return every, tenant.request * rng.uniform(0.5, 1.5, len(every))


def write_record(folder: Path, days: int, seed: int) -> int:
    """Write what three gateways would have recorded in shadow mode; return how many requests."""
    rng = np.random.default_rng(seed)
    parts: list[list[tuple[Doubles, Doubles, str, int]]] = [[] for _ in range(GATEWAYS)]
    for tenant in TENANTS:
        for broker in tenant.brokers:
            times, values = requests(tenant, days, rng)
            through = rng.integers(GATEWAYS, size=len(times))
            for gateway, part in enumerate(parts):
                mine = through == gateway
                part.append((times[mine], values[mine], tenant.name, broker))
    total = 0
    for gateway, part in enumerate(parts):
        total += _write(folder, f"gateway-{gateway + 1}", part)
    return total


_NOTHING = {
    "string": "",
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "double": 0.0,
}


def _write(folder: Path, gateway: str, part: list[tuple[Doubles, Doubles, str, int]]) -> int:
    times = np.concatenate([each[0] for each in part])
    order = np.argsort(times, kind="stable")
    lengths = [len(each[0]) for each in part]
    owner = np.repeat(np.arange(len(part)), lengths)[order]
    names, brokers = [each[2] for each in part], np.array([each[3] for each in part])
    count = len(order)
    known: dict[str, object] = {
        "ts_us": ((START_S + times[order]) * 1e6).astype(np.int64),
        "seq": np.arange(count),
        "node_id": brokers[owner],
        "user": pa.DictionaryArray.from_arrays(owner, names).cast(pa.string()),
        "client_id": pa.DictionaryArray.from_arrays(owner, names).cast(pa.string()),
        "value": np.concatenate([each[1] for each in part])[order].round(),
    }
    same: dict[str, object] = {
        "gateway": gateway,
        "run_id": "r",
        "quota_type": "PRODUCE",
        "tags": "client-id=,user=",
        "api_key": 0,
        "api_version": 9,
        "samples": 1,
        "sample_ms": 1000,
        "algorithm": "token_bucket",
        "outcome": "admitted",
        "enforced": False,
        "throttle_ms": 0,
        "upstream_throttle_ms": 0,
    }
    columns = []
    for field in EVENT_SCHEMA:
        if field.name in known:
            columns.append(pa.array(known[field.name]).cast(field.type))
        else:
            value = same.get(field.name, None if field.nullable else _NOTHING[str(field.type)])
            columns.append(pa.array([value], field.type).take(pa.array(np.zeros(count, np.int64))))
    table = pa.Table.from_arrays(columns, schema=EVENT_SCHEMA)
    pq.write_table(table, folder / f"events-{gateway}-r-{0:012}-0.parquet")
    return count


def planned(folder: Path, capacity: float) -> Recommendation:
    spark = session()
    found = find_events([folder])
    chunks = chunks_of_files(spark, found, "user", further=USAGE_COLUMNS, gateways_apart=True)
    capacities = {QuotaType.PRODUCE: capacity}
    # The guardrails as they are, but that the greedy ones may get less than they usually take.
    wishes = Wishes(weights=WEIGHTS, guardrails=Guardrails(keeps_median=False))
    clients = read_files(spark, found.good)
    return recommend(chunks, clients, ConfiguredQuotas(), capacities, wishes)


def missed_of(found: Recommendation) -> list[str]:
    """What misses a bar."""
    lines = {str(line.entity.user): line for line in found.plan.lines}
    missed = missed_by(found, BEHAVING)
    first, second = ((lines[name].proposed or 0.0) for name in WEIGHTS)
    if not 0.95 <= second / first / 2 <= 1.05:
        missed.append(f"greedy: {first:.0f} and {second:.0f}, not 1 : 2 within 5 %")
    left = CAPACITY / GATEWAYS - sum((lines[name].proposed or 0.0) for name in BEHAVING)
    if not 0.95 <= (first + second) / left <= 1.05:
        missed.append(f"greedy: together {first + second:.0f} of {left:.0f} B/s that are left")
    return missed


def missed_where_contended(found: Recommendation) -> list[str]:
    """The same where the needs are more than there is."""
    capped = [line for line in found.plan.lines if line.reason is Reason.SHARE]
    level = min((line.proposed or 0.0) / line.weight for line in capped)
    modest = [
        str(line.entity.user)
        for line in found.plan.lines
        if line.need is not None and line.need.rate * (1 + HEADROOM) <= level * line.weight
    ]
    missed = missed_by(found, modest)
    missed += [
        f"{line.entity.user}: {(line.proposed or 0.0) / line.weight:.0f} B/s by weight, others {level:.0f}"
        for line in capped
        if (line.proposed or 0.0) / line.weight > 1.05 * level
    ]
    if not modest or len(modest) + len(capped) < len(TENANTS):
        missed.append(f"{len(modest)} get their need and {len(capped)} their share")
    return missed


def missed_by(found: Recommendation, behaving: Iterable[str]) -> list[str]:
    """What misses the bars of those who behave, and of all together."""
    missed = []
    lines = {str(line.entity.user): line for line in found.plan.lines}
    proofs = {str(key[1].user): proof for key, proof in found.verified.items()}
    for name in behaving:
        proof, line = proofs[name], lines[name]
        if line.reason not in {Reason.NEED, Reason.FLOOR}:
            missed.append(f"{name}: {line.reason.value}: {line.evidence}")
        for loop, share in (("open", proof.share_open), ("backlog", proof.share_closed)):
            if share >= 0.001:
                missed.append(f"{name}: {share:.3%} throttled ({loop}), 0.1 % is the bar")
    missed += [
        f"broker {whole.node_id}: above the capacity in {whole.seconds_over} of {whole.seconds} s"
        for whole in found.together
        if not whole.is_kept
    ]
    return missed


def shown(found: Recommendation) -> list[dict[str, object]]:
    proofs = {key[1]: proof for key, proof in found.verified.items()}
    rows = []
    for line in found.plan.lines:
        proof, need = proofs[line.entity], line.need
        rows.append(
            {
                "tenant": str(line.entity.user),
                "need_mb_per_s": None if need is None else round(need.rate / MB, 3),
                "quota_mb_per_s": round((line.proposed or 0.0) / MB, 3),
                "reason": line.reason.value,
                "held_out_requests": proof.events,
                "throttled_open_pct": round(100 * proof.share_open, 3),
                "throttled_backlog_pct": round(100 * proof.share_closed, 3),
            }
        )
        print("  ", *(f"{key}={value}" for key, value in rows[-1].items()))
    for whole in found.together:
        print(
            f"   broker {whole.node_id}: above the capacity in {whole.seconds_over} of "
            f"{whole.seconds} s; {whole.usual_most / MB:.2f} MB/s in 99.9 % of them"
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="so many records (default: 3)")
    parser.add_argument("--days", type=int, default=10, help="of each (default: 10)")
    parser.add_argument(
        "--contended", type=float, default=20.0, help="MB/s of a broker, less than is needed"
    )
    options = parser.parse_args()
    kept: list[dict[str, object]] = []
    contended: list[dict[str, object]] = []
    missed: list[str] = []
    for seed in range(1, options.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            rows = write_record(Path(folder), options.days, seed)
            began_s = time.monotonic()
            found = planned(Path(folder), CAPACITY)
            took_s = time.monotonic() - began_s
            scarce = planned(Path(folder), options.contended * MB)
        print(f"seed {seed}: {rows:,} requests, planned in {took_s:.1f} s")
        kept.append({"seed": seed, "requests": rows, "plan_s": round(took_s, 1), **figures(found)})
        missed += [f"seed {seed}: {text}" for text in missed_of(found)]
        print(f"seed {seed}, brokers of {options.contended:g} MB/s:")
        contended.append({"seed": seed, **figures(scarce)})
        missed += [f"seed {seed}, contended: {text}" for text in missed_where_contended(scarce)]
    end_session(session())
    result = {
        "days": options.days,
        "capacity_mb_per_s": CAPACITY / MB,
        "runs": kept,
        "contended_mb_per_s": options.contended,
        "contended": contended,
    }
    return judged(RESULT, result, missed)


def figures(found: Recommendation) -> dict[str, object]:
    return {
        "tenants": shown(found),
        "brokers": [
            {
                "broker": whole.node_id,
                "seconds": whole.seconds,
                "seconds_over": whole.seconds_over,
                "most_in_999_of_1000_mb_per_s": round(whole.usual_most / MB, 3),
            }
            for whole in found.together
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
