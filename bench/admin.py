"""The admin client beside Kafka's own (Java), librdkafka's and aiokafka's, on one broker in one run.

    ./run bench admin [--part times | bursts] [--topics 5000] [--rounds 5]

Times are of whole calls, the JVM warm. The bar: never slower than Java's, and 500 quotas in less than a second.
Then bursts under ``controller_mutation_rate``: how long each takes of what the bucket allows.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient as RdKafkaAdmin
from confluent_kafka.admin import NewTopic as RdNewTopic

from kvota.admin import (
    AdminClient,
    ClientQuotaAlteration,
    NewTopic,
    QuotaEntity,
    ThrottlingQuotaExceededError,
)
from kvota.app.gateway_process import GatewayProcess, gateway_toml
from kvota.localkafka import LocalKafka

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # Java's Admin is driven as in the tests

from tests.integration.java_admin import JavaAdmin  # noqa: E402

RESULT = HERE / "results/admin.json"
HOST = "127.0.0.2"
QUOTAS, CREATED, WARM, REST_S = 500, 1_000, 3, 0.5
# 200 topics at 10 partitions/s, of which 11 s of rate are in the bucket at first, and one overdraws it.
RATE, BURST, AT_ONCE = 10, 200, 111
ALLOWED_S = (BURST - AT_ONCE) / RATE
# The first of two topics of so many partitions leaves the bucket 100 short: 10 s, less what creating it takes.
OVERDRAWN = 210
KEY = "controller_mutation_rate"
# Topics cost files: small indexes, so that thousands fit.
SMALL_INDEXES = {"log.index.size.max.bytes": "4096"}
OURS, JAVA = "kvota", "Java"


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


async def timed(call: Coroutine[Any, Any, object]) -> float:
    begin = time.perf_counter()
    await call
    return time.perf_counter() - begin


Calls = dict[str, Callable[[], Coroutine[Any, Any, object]]]


class Contest:
    """The same of all, one after the other, round by round."""

    def __init__(self, servers: str, ours: AdminClient, java: JavaAdmin, aio: AIOKafkaAdminClient):
        self._ours = ours
        self._java = java
        self._aio = aio
        self._rd = RdKafkaAdmin({"bootstrap.servers": servers})

    async def describe(self, count: int, number: int) -> dict[str, float]:
        wanted = names("described", count)

        async def ours() -> None:
            assert len((await self._ours.describe_topics(wanted)).all()) == count

        def rd() -> None:
            futures = self._rd.describe_topics(TopicCollection(wanted), request_timeout=60)
            assert len([future.result() for future in futures.values()]) == count

        async def aio() -> None:
            assert len(await self._aio.describe_topics(wanted)) == count

        calls: Calls = {
            OURS: ours,
            JAVA: lambda: self._in_java(f"describe described {count}"),
            "confluent-kafka": lambda: asyncio.to_thread(rd),
            "aiokafka": aio,
        }
        return await in_turn(calls, number)

    async def alter(self, number: int) -> dict[str, float]:
        value = 1e9 + 10 * number

        async def ours() -> None:
            alterations = [
                ClientQuotaAlteration(QuotaEntity(user=name), {"producer_byte_rate": value})
                for name in names("user", QUOTAS)
            ]
            (await self._ours.alter_client_quotas(alterations)).all()

        calls: Calls = {
            OURS: ours,
            JAVA: lambda: self._in_java(f"alter {value + 1} {QUOTAS}"),
        }
        return await in_turn(calls, number)

    async def create(self, count: int, number: int) -> dict[str, float]:
        async def ours() -> None:
            topics = [NewTopic(name, 1, 1) for name in names(OURS, count)]
            (await self._ours.create_topics(topics)).all()

        def rd() -> None:
            topics = [RdNewTopic(name, 1, 1) for name in names("confluent-kafka", count)]
            for future in self._rd.create_topics(topics, request_timeout=60).values():
                future.result()

        async def aio() -> None:
            topics = [AioNewTopic(name, 1, 1) for name in names("aiokafka", count)]
            answer = await self._aio.create_topics(topics, timeout_ms=60_000)
            assert {error[1] for error in answer.topic_errors} == {0}

        async def delete(who: str) -> None:
            (await self._ours.delete_topics(names(who, count), timeout_ms=120_000)).all()

        calls: Calls = {
            OURS: ours,
            JAVA: lambda: self._in_java(f"create {JAVA} {count}"),
            "confluent-kafka": lambda: asyncio.to_thread(rd),
            "aiokafka": aio,
        }
        return await in_turn(calls, number, delete)

    async def _in_java(self, line: str) -> None:
        await asyncio.to_thread(self._java.carry_out, line)


async def in_turn(
    calls: Calls, number: int, after: Callable[[str], Coroutine[Any, Any, None]] | None = None
) -> dict[str, float]:
    """Seconds of each; in every round another one is the first, and the broker has its rest after each."""
    took = {}
    who = list(calls)
    for turn in range(len(who)):
        name = who[(turn + number) % len(who)]
        took[name] = await timed(calls[name]())
        if after is not None:
            await after(name)
        await asyncio.sleep(REST_S)
    return {name: took[name] for name in who}


async def race(servers: str, topics: int, rounds: int) -> dict[str, dict[str, float]]:
    """Medians, s."""
    async with AdminClient(servers) as ours:
        for begin in range(0, topics, CREATED):
            made = names("described", topics)[begin : begin + CREATED]
            (await ours.create_topics([NewTopic(name, 1, 1) for name in made])).all()
        while len(await ours.list_topics()) < topics:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        aio = AIOKafkaAdminClient(bootstrap_servers=servers, request_timeout_ms=60_000)
        await aio.start()
        try:
            with JavaAdmin(servers, "java") as java:
                contest = Contest(servers, ours, java, aio)
                for number in range(WARM):
                    await contest.describe(topics, number)
                    await contest.alter(number)
                    await contest.create(50, number)
                return {
                    f"{topics} topics described": median(
                        [await contest.describe(topics, number) for number in range(rounds)]
                    ),
                    f"{QUOTAS} quotas altered": median(
                        [await contest.alter(WARM + number) for number in range(rounds)]
                    ),
                    f"{CREATED} topics created": median(
                        [await contest.create(CREATED, number) for number in range(rounds)]
                    ),
                }
        finally:
            await aio.close()


def median(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(took[name] for took in rounds) for name in rounds[0]}


# ---------------------------------------------------------------------- bursts


async def bursts(servers: str, place: str) -> dict[str, dict[str, float]]:
    """How long a burst takes with retries, and which wait is told without."""
    with JavaAdmin(servers, "warm") as java:
        for number in range(WARM):
            java.carry_out(f"create warm-{place}-{number} {BURST}")
        java.carry_out(f"as java-{place} 0")
        java_s, _ = await asyncio.to_thread(java.carry_out, f"create java-{place} {BURST}")
        java.carry_out(f"as java-once-{place} 0")
        _, said = java.carry_out(f"create-once java-once-{place} {OVERDRAWN}")
    async with AdminClient(servers, client_id=f"ours-{place}") as admin:
        topics = [NewTopic(name, 1, 1) for name in names(f"ours-{place}", BURST)]
        ours_s = await timed(admin.create_topics(topics))
    async with AdminClient(servers, client_id=f"ours-once-{place}") as admin:
        topics = [NewTopic(name, OVERDRAWN, 1) for name in names(f"ours-once-{place}", 2)]
        results = await admin.create_topics(topics, retry_on_quota_violation=False)
        (error,) = results.errors.values()
        assert isinstance(error, ThrottlingQuotaExceededError)
    java_made, java_wait = said.split()
    return {
        "seconds": {OURS: ours_s, JAVA: java_s},
        "of what the bucket allows": {OURS: ours_s / ALLOWED_S, JAVA: java_s / ALLOWED_S},
        "without retry: wait told, ms": {OURS: error.throttle_time_ms, JAVA: int(java_wait)},
        "without retry: created": {OURS: len(results.values), JAVA: int(java_made)},
    }


def limited(place: str) -> list[str]:
    return [f"{who}{once}-{place}" for who in ("ours", "java") for once in ("", "-once")]


async def limit(servers: str, place: str) -> None:
    async with AdminClient(servers) as admin:
        alterations = [
            ClientQuotaAlteration(QuotaEntity(client_id=client_id), {KEY: RATE})
            for client_id in limited(place)
        ]
        (await admin.alter_client_quotas(alterations)).all()
        while len(await admin.describe_client_quotas()) < len(alterations):  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def all_bursts(kafka: LocalKafka, folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    await limit(kafka.bootstrap_servers, "broker")
    quotas = "".join(
        f'[[quota]]\nclient_id = "{client_id}"\n{KEY} = {RATE}\n'
        for client_id in limited("gateway")
    )
    config = gateway_toml(
        upstream=kafka.bootstrap_servers,
        node_ids="0-2",
        enforce={"CONTROLLER_MUTATION": True},
    )
    with GatewayProcess(folder, config=config, quotas=quotas) as gateway:
        return {
            "broker": await bursts(kafka.bootstrap_servers, "broker"),
            "gateway": await bursts(gateway.bootstrap_servers, "gateway"),
        }


def run_bursts() -> dict[str, object]:
    with (
        tempfile.TemporaryDirectory(prefix="kvota-admin-") as folder,
        LocalKafka(host=HOST, properties=SMALL_INDEXES) as kafka,
    ):
        found = asyncio.run(all_bursts(kafka, Path(folder)))
    print(f"{BURST} topics under {KEY} = {RATE}: the bucket allows it in {ALLOWED_S:g} s")
    for place, figures in found.items():
        for figure, by in figures.items():
            line = ", ".join(f"{who} {value:.4g}" for who, value in by.items())
            print(f"  {place}: {figure:<32}{line}")
    return {"allowed_s": ALLOWED_S, "bursts": found}


def run_times(topics: int, rounds: int) -> dict[str, dict[str, float]]:
    with LocalKafka(host=HOST, properties=SMALL_INDEXES) as kafka:
        times = asyncio.run(race(kafka.bootstrap_servers, topics, rounds))
    for what, took in times.items():
        line = ", ".join(f"{who} {seconds * 1_000:.0f} ms" for who, seconds in took.items())
        print(f"{what:<24}{line}")
        ratios = ", ".join(f"{who} {took[who] / took[OURS]:.2f}" for who in took if who != OURS)
        print(f"{'  times as long as ours':<24}{ratios}")
    return times


def main() -> int:
    options = argparse.ArgumentParser(description="the admin client beside others")
    options.add_argument("--part", choices=("times", "bursts"), help="only one of both")
    options.add_argument("--topics", type=int, default=5_000)
    options.add_argument("--rounds", type=int, default=5)
    asked = options.parse_args()
    result = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    if asked.part != "times":
        result |= run_bursts()
    code = 0
    if asked.part != "bursts":
        times = run_times(asked.topics, asked.rounds)
        result |= {"topics": asked.topics, "rounds": asked.rounds, "seconds": times}
        slower = [what for what, took in times.items() if took[OURS] > took[JAVA]]
        if slower:
            print(f"slower than Java's Admin: {', '.join(slower)}", file=sys.stderr)
        code = 1 if slower or times[f"{QUOTAS} quotas altered"][OURS] > 1 else 0
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
