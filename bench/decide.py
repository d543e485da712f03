"""What one decision costs, tags and limit included.

    ./run bench decide

One produce charge and one strict mutation charge: kvota's engine (as the gateway calls it: the lane kept
while its version is the same; and once more looked up from user and client id each time), every
strategy of the package ``limits``, and Kafka's own managers in a warm JVM. Produce is counted by
``sampled_rate`` where nothing else is said, and by ``token_bucket``; both once more over the limit.
Rounds are interleaved; figures are medians of the rounds, ns of CPU per decision.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import (
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    SlidingWindowCounterRateLimiter,
)

from kvota.callbacks import DefaultQuotaCallback
from kvota.engine import QuotaEngine, QuotaType
from kvota.java.find import java_command
from kvota.localkafka.jars.class_path import kafka_classpath
from kvota.localkafka.jars.compile_java import compile_java
from kvota.model.bucket_settings import BucketSettings
from kvota.model.configured_quotas import ConfiguredQuotas
from kvota.model.quota_entity import DEFAULT, QuotaEntity

HERE = Path(__file__).parent
ROUNDS = 15
COUNT = 20_000
BYTES = 1_136
BAR_NS = 1_000
# A token bucket costs no more than the sampled rate beside it, but for what rounds differ by.
X_SAMPLED_MAX = 1.03
NEVER, ALWAYS = 1e12, 1.0  # bytes per second that are never reached, and always exceeded
SAMPLED, BUCKET = "kvota produce, lane kept", "kvota produce, token_bucket"
OVER = ", over"


def engine(
    limit: float = NEVER, buckets: dict[QuotaType, BucketSettings] | None = None
) -> QuotaEngine:
    limits = {QuotaType.PRODUCE: limit, QuotaType.CONTROLLER_MUTATION: NEVER}
    callback = DefaultQuotaCallback(ConfiguredQuotas({QuotaEntity(user=DEFAULT): limits}))
    return QuotaEngine(callback, {}, buckets or {})


def produce_kept(count: int) -> None:
    charge_kept(engine(), count)


def produce_bucket(count: int) -> None:
    charge_kept(engine(buckets={QuotaType.PRODUCE: BucketSettings()}), count)


def produce_over(count: int) -> None:
    charge_kept(engine(ALWAYS), count)


def produce_bucket_over(count: int) -> None:
    """More may be owed than is ever charged: nobody waits for a turn."""
    bucket = BucketSettings(debt_max_ms=10**12)
    charge_kept(engine(ALWAYS, {QuotaType.PRODUCE: bucket}), count)


def charge_kept(quotas: QuotaEngine, count: int) -> None:
    """As a connection does: its client id compared with the last one, its lane kept with its limit."""
    lane = quotas.lane(QuotaType.PRODUCE, 1, "alice", "bench", time.time_ns() // 1_000_000)
    assert lane is not None
    version, kept_client, client = lane.version, b"bench", b"".join((b"be", b"nch"))
    for _ in range(count):
        now_ms = time.time_ns() // 1_000_000
        if client != kept_client or version != lane.version:
            raise AssertionError
        lane.charge(BYTES, now_ms)


def produce_looked_up(count: int) -> None:
    quotas = engine()
    for _ in range(count):
        now_ms = time.time_ns() // 1_000_000
        lane = quotas.lane(QuotaType.PRODUCE, 1, "alice", "bench", now_ms)
        assert lane is not None
        lane.charge(BYTES, now_ms)


def mutation(count: int) -> None:
    quotas = engine()
    for _ in range(count):
        now_ms = time.time_ns() // 1_000_000
        quotas.mutations("alice", "bench", strict=True, now_ms=now_ms).charge(4, now_ms)


def with_limits(strategy: type) -> Callable[[int], None]:
    def run(count: int) -> None:
        limiter = strategy(MemoryStorage())
        item = RateLimitItemPerSecond(10**12)
        for _ in range(count):
            limiter.hit(item, "alice", "bench")

    return run


SUBJECTS: dict[str, Callable[[int], None]] = {
    SAMPLED: produce_kept,
    BUCKET: produce_bucket,
    SAMPLED + OVER: produce_over,
    BUCKET + OVER: produce_bucket_over,
    "kvota produce, looked up": produce_looked_up,
    "kvota mutation, strict": mutation,
    "limits, fixed window": with_limits(FixedWindowRateLimiter),
    "limits, moving window": with_limits(MovingWindowRateLimiter),
    "limits, sliding window": with_limits(SlidingWindowCounterRateLimiter),
}


def x_sampled(times: dict[str, list[float]], over: str) -> float:
    """What a token bucket costs, against the sampled rate of the same round."""
    pairs = zip(times[SAMPLED + over], times[BUCKET + over], strict=True)
    return statistics.median(bucket / sampled for sampled, bucket in pairs)


def missed_bars(ns: dict[str, float], x_sampled: dict[str, float]) -> list[str]:
    """At most a microsecond, faster than every strategy of the package, a bucket no dearer than samples."""
    limits = min(value for name, value in ns.items() if name.startswith("limits"))
    missed = [
        f"{name}: {value:.0f} ns; the bar is {min(BAR_NS, limits):.0f}"
        for name, value in ns.items()
        if name.startswith("kvota") and value > min(BAR_NS, limits)
    ]
    missed += [
        f"{name}: {ratio:.3f} x the sampled rate; the bar is {X_SAMPLED_MAX}"
        for name, ratio in x_sampled.items()
        if ratio > X_SAMPLED_MAX
    ]
    return missed


def main() -> int:
    classes = compile_java([HERE / "java/DecideBench.java"], classpath=kafka_classpath())
    jvm = subprocess.Popen(
        [
            str(java_command()),
            "-Xmx256m",
            "-cp",
            f"{classes}:{kafka_classpath()}",
            "DecideBench",
            str(ROUNDS + 5),
            "300000",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert jvm.stdout is not None
    times: dict[str, list[float]] = {}
    for _ in range(5):
        jvm.stdout.readline()  # the JVM warms up
    for round_number in range(ROUNDS + 1):
        # Every other round backwards: whoever comes first has a colder processor.
        for name in list(SUBJECTS)[:: 1 if round_number % 2 else -1]:
            start = time.thread_time()
            SUBJECTS[name](COUNT)
            if round_number:
                times.setdefault(name, []).append((time.thread_time() - start) / COUNT * 1e9)
        if round_number:
            produce_ns, mutation_ns = map(float, jvm.stdout.readline().split())
            times.setdefault("Kafka 4.3.1 produce (Java)", []).append(produce_ns)
            times.setdefault("Kafka 4.3.1 mutation (Java)", []).append(mutation_ns)
    jvm.wait()
    names = [*SUBJECTS, *(name for name in times if name not in SUBJECTS)]
    medians = {name: statistics.median(times[name]) for name in names}
    ratios = {BUCKET + over: x_sampled(times, over) for over in ("", OVER)}
    reference = medians[SAMPLED]
    print(f"{'':<34}{'ns':>8}{'x kvota produce':>18}")
    for name, ns in medians.items():
        print(f"{name:<34}{ns:>8.0f}{ns / reference:>18.2f}")
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.3f} x the sampled rate, median of pairs")
    folder = HERE / "results"
    folder.mkdir(exist_ok=True)
    (folder / "decide.json").write_text(
        json.dumps(
            {
                "command": "./run bench decide",
                "python": sys.version.split()[0],
                "median_ns": medians,
                "x_sampled": ratios,
            },
            indent=1,
        )
        + "\n"
    )
    missed = missed_bars(medians, ratios)
    print("\n".join(missed) or "all bars hold")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
